"""A node of all roles starts though its store is slow."""

import asyncio
from types import SimpleNamespace

import pytest

from bmq.errors import ControllerUnavailable, StoreUnavailable
from bmq_node.single import REGISTERED_AGAIN_MAX, Node


class SlowBroker:
    """Its registration takes longer than anybody is let wait for, so often."""

    def __init__(self, often: int, error: Exception | None = None) -> None:
        self.left = often
        self.starts = 0
        self.error = error or ControllerUnavailable("the stream could not be sealed within 30 s: look, and try again")

    async def start(self) -> None:
        self.starts += 1
        if self.left:
            self.left -= 1
            raise self.error


def start(broker: SlowBroker) -> None:
    asyncio.run(Node._start_broker(SimpleNamespace(broker=broker)))  # type: ignore[arg-type]


def test_a_registration_that_takes_too_long_is_tried_again() -> None:
    broker = SlowBroker(2)
    start(broker)
    assert broker.starts == 3


def test_a_start_that_comes_to_nothing_says_so_in_the_end() -> None:
    broker = SlowBroker(1_000)
    with pytest.raises(ControllerUnavailable, match="try again"):
        start(broker)
    assert broker.starts == REGISTERED_AGAIN_MAX + 1


def test_what_trying_again_does_not_mend_ends_the_start_at_once() -> None:
    broker = SlowBroker(1, StoreUnavailable("no such bucket"))
    with pytest.raises(StoreUnavailable):
        start(broker)
    assert broker.starts == 1
