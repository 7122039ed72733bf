"""Long polls: who waits for records of which partition."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from bmq.values import TopicPartition


class Waiters:
    """Futures by partition; each is woken once."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[TopicPartition, dict[asyncio.Future[None], None]] = defaultdict(dict)

    async def wait(self, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        """Returns when one of the partitions changed or the time is up."""
        with self.watched(tps) as news:
            await self.until(news, timeout_s)

    @contextmanager
    def watched(self, tps: Iterable[TopicPartition]) -> Iterator["asyncio.Future[None]"]:
        """A future that resolves when one of the partitions changes meanwhile: for who looks at them in several turns, and waits afterwards."""
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

    def wake(self, tp: TopicPartition) -> None:
        """Something about the partition changed."""
        for future in tuple(self._futures.get(tp, ())):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """For a broker that ends."""
        for tp in tuple(self._futures):
            self.wake(tp)
