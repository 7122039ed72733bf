"""Long polls: who waits for records of which partition."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from bmq.values import TopicPartition


class Waiters:
    """Futures by partition; each is woken once."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[TopicPartition, dict[asyncio.Future[None], None]] = defaultdict(dict)

    async def wait(self, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        """Returns when one of the partitions changed or the time is up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = list(tps)
        for tp in keys:
            self._futures[tp][future] = None
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            pass
        finally:
            for tp in keys:
                futures = self._futures.get(tp)
                if futures is not None:
                    futures.pop(future, None)
                    if not futures:
                        del self._futures[tp]

    def wake(self, tp: TopicPartition) -> None:
        """Something about the partition changed."""
        for future in tuple(self._futures.get(tp, ())):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """For a broker that ends."""
        for tp in tuple(self._futures):
            self.wake(tp)
