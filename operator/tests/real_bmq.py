"""A started bmq that knows the token of the operator's tests."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.started_bmq import StartedBmq, started_bmq

TOKEN = "a-token-of-the-operators-tests"


@contextlib.contextmanager
def bmq_with_token(folder: Path, *arguments: str) -> Iterator[StartedBmq]:
    """As `started_bmq`."""
    with started_bmq(folder, *arguments, environment={"BMQ_ADMIN_TOKEN": TOKEN}) as started:
        yield started
