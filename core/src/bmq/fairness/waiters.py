"""Who waits for news of which partition: long polls, each woken once, some in each turn of the loop, and those who
follow, who are told of each change.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from bmq.fairness.crowd import go_on
from bmq.values import TopicPartition

Changed = Callable[[TopicPartition], None]


class Waiters:
    """By partition: futures, and who is called."""

    __slots__ = ("_futures", "_watching")

    def __init__(self) -> None:
        self._futures: dict[TopicPartition, dict[asyncio.Future[None], None]] = defaultdict(dict)
        self._watching: dict[TopicPartition, tuple[Changed, ...]] = {}

    async def wait(self, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        """Returns when one of the partitions changed or the time is up."""
        with self.watched(tps) as news:
            await self.until(news, timeout_s)

    @contextmanager
    def watched(self, tps: Iterable[TopicPartition]) -> Iterator["asyncio.Future[None]"]:
        """A future that resolves when one of the partitions changes meanwhile: for who looks at them in several turns,
        and waits afterwards.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = list(tps)
        for tp in keys:
            self._futures[tp][future] = None
        try:
            yield future
        finally:
            for tp in keys:
                futures = self._futures.get(tp)
                if futures is not None:
                    futures.pop(future, None)
                    if not futures:
                        del self._futures[tp]

    async def until(self, news: "asyncio.Future[None]", timeout_s: float) -> None:
        """Returns when there are news or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await news

    def has(self, tp: TopicPartition) -> bool:
        """Whether anybody waits for it, and was not woken."""
        return tp in self._futures

    def watch(self, tp: TopicPartition, changed: Changed) -> None:
        """It is called with the partition each time that something about it changed."""
        self._watching[tp] = (*self._watching.get(tp, ()), changed)

    def leave(self, tp: TopicPartition, changed: Changed) -> None:
        """It is not called any more."""
        left = tuple(one for one in self._watching.get(tp, ()) if one != changed)
        if left:
            self._watching[tp] = left
        else:
            self._watching.pop(tp, None)

    def wake(self, tp: TopicPartition) -> None:
        """Something about the partition changed."""
        for changed in self._watching.get(tp, ()):
            changed(tp)
        go_on(tuple(self._futures.pop(tp, ())))

    def wake_all(self) -> None:
        """For a broker that ends."""
        for tp in {**self._futures, **self._watching}:
            self.wake(tp)
