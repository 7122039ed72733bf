"""What tests of abuse share."""

from collections.abc import Iterator

import pytest
from abuse_process import BmqProcess, bmq_process


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BmqProcess]:
    """As it is shipped, for the tests of a file."""
    with bmq_process(tmp_path_factory.mktemp("process")) as running:
        yield running
