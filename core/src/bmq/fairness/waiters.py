"""Who waits for news of which partition: long polls, each woken once, some in each turn of the loop, and those who
follow, who are told of each change.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from bmq.fairness.crowd import go_on
from bmq.values import TopicPartition

Changed = Callable[[TopicPartition], None]


class Lacking(NamedTuple):
    """What is of use to one who waits: that its partitions have grown by `size_bytes` together, without those that are
    `full`; and any other change.
    """

    size_bytes: int
    full: Sequence[TopicPartition] = ()


ANYTHING: Final = Lacking(0)


class Waiters:
    """By partition: futures, and who is called."""

    __slots__ = ("_futures", "_lacking", "_watching")

    def __init__(self) -> None:
        self._futures: dict[TopicPartition, dict[asyncio.Future[None], bool]] = defaultdict(dict)
        """With whether it is of use to them that the partition grows."""
        self._lacking: dict[asyncio.Future[None], int] = {}
        """By how many bytes their partitions have to grow before they have enough, of those to whom one byte is not."""
        self._watching: dict[TopicPartition, tuple[Changed, ...]] = {}

    async def wait(self, tps: Iterable[TopicPartition], timeout_s: float, lacking: Lacking = ANYTHING) -> None:
        """Returns when one of the partitions changed, as far as that is of use, or the time is up."""
        with self.watched(tps) as news:
            await self.until(news, timeout_s, lacking)

    @contextmanager
    def watched(self, tps: Iterable[TopicPartition]) -> Iterator["asyncio.Future[None]"]:
        """A future that resolves when one of the partitions changes meanwhile: for who looks at them in several turns,
        and waits afterwards.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = list(tps)
        for tp in keys:
            self._futures[tp][future] = True
        try:
            yield future
        finally:
            self._lacking.pop(future, None)
            for tp in keys:
                futures = self._futures.get(tp)
                if futures is not None:
                    futures.pop(future, None)
                    if not futures:
                        del self._futures[tp]

    async def until(self, news: "asyncio.Future[None]", timeout_s: float, lacking: Lacking = ANYTHING) -> None:
        """Returns when there are news or the time is up; `news` are of one who has looked at the partitions since it
        watches them.
        """
        if (lacking.size_bytes > 1 or lacking.full) and not news.done():
            self._lacking[news] = lacking.size_bytes
            for tp in lacking.full:
                self._futures[tp][news] = False
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

    def wake(self, tp: TopicPartition, *, grown_bytes: int | None = None) -> None:
        """Something about the partition changed; `grown_bytes`: nothing but that it grew by so much."""
        for changed in self._watching.get(tp, ()):
            changed(tp)
        futures = self._futures.pop(tp, {})
        if grown_bytes is None or not self._lacking:
            go_on(tuple(futures))
            return
        enough, waiting = [], {}
        for future, grows in futures.items():
            lacking_bytes = self._lacking.get(future, 0) - (grown_bytes if grows else 0)
            if lacking_bytes <= 0:
                enough.append(future)
            else:
                self._lacking[future] = lacking_bytes
                waiting[future] = grows
        if waiting:
            self._futures[tp] = waiting
        go_on(enough)

    def wake_all(self) -> None:
        """For a broker that ends."""
        for tp in {**self._futures, **self._watching}:
            self.wake(tp)
