"""What a proxy keeps of the tails that it follows: the newest batches, as its owners' answers brought them. Pure.

An answer's batches of many partitions share one buffer, which lives as long as any of them: so whole answers leave, the
oldest first, and what is counted is what is held.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from bmq.roles.owner import TailAnswer, TailRequest
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq.wire.batch_headers import read_header


class CachedTail:
    """One partition's: batches from `start` to `end`, and what its owner said last. `start` == `end`: none, only that
    there is nothing more.
    """

    __slots__ = (
        "_bases",
        "_batches",
        "_sizes",
        "end",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start",
        "manifest_version",
        "start",
        "tail_start",
        "tp",
    )

    def __init__(self, tp: TopicPartition, offset: Offset) -> None:
        self.tp = tp
        self.start = self.end = offset
        self.leader_epoch = LeaderEpoch(-1)
        self.manifest_version = ManifestVersion(0)
        self.log_start = self.tail_start = self.high_watermark = self.last_stable_offset = Offset(0)
        self._bases: list[int] = []
        self._batches: list[Buffer] = []
        self._sizes: list[int] = []

    def add(self, answer: TailAnswer) -> int:
        """Takes over what an answer brought, without an error, and what it says; returns how many batches are new."""
        self.leader_epoch = answer.leader_epoch
        self.manifest_version = max(self.manifest_version, answer.manifest_version)
        self.log_start = max(self.log_start, answer.log_start)
        self.tail_start = max(self.tail_start, answer.tail_start)
        self.high_watermark = max(self.high_watermark, answer.high_watermark)
        self.last_stable_offset = max(self.last_stable_offset, answer.last_stable_offset)
        added = 0
        for batch in answer.batches:
            header = read_header(batch)
            next_offset = Offset(header.next_offset)
            if next_offset <= self.end:
                continue
            if not self._bases:
                self.start = Offset(header.base_offset)
            self._bases.append(header.base_offset)
            self._batches.append(batch)
            self._sizes.append(memoryview(batch).nbytes)
            self.end = next_offset
            added += 1
        return added

    def drop(self, count: int) -> None:
        """Forgets so many of the oldest batches."""
        del self._bases[:count]
        del self._batches[:count]
        del self._sizes[:count]
        self.start = Offset(self._bases[0]) if self._bases else self.end

    def deleted_before(self, log_start: Offset) -> None:
        """What lies below is shown no more."""
        self.log_start = max(self.log_start, log_start)

    def covers(self, request: TailRequest) -> bool:
        """Whether what is kept answers the request; otherwise only the owner can."""
        return (
            max(self.start, self.log_start) <= request.offset <= self.end
            and request.current_leader_epoch in (-1, self.leader_epoch)
            and self.leader_epoch >= 0
        )

    def answer(self, request: TailRequest, *, max_bytes: int, at_least_one: bool) -> TailAnswer:
        """What the owner would answer. Only where it `covers` the request."""
        first = max(bisect_right(self._bases, request.offset) - 1, 0)
        last, size_bytes = first, 0
        if request.offset < self.end and (at_least_one or max_bytes > 0):
            limit = min(request.max_bytes, max_bytes)
            while last < len(self._batches) and (
                size_bytes + self._sizes[last] <= limit or (last == first and at_least_one)
            ):
                size_bytes += self._sizes[last]
                last += 1
        return TailAnswer(
            tp=self.tp,
            leader_epoch=self.leader_epoch,
            manifest_version=self.manifest_version,
            log_start=self.log_start,
            # Where a segment took over what is still here, the reader need not look for it there.
            tail_start=min(self.tail_start, self.start),
            high_watermark=max(self.high_watermark, self.end),
            last_stable_offset=self.last_stable_offset,
            batches=tuple(self._batches[first:last]),
            size_bytes=size_bytes,
        )


def end_of(batches: Sequence[Buffer]) -> Offset:
    """The offset behind them."""
    return Offset(read_header(batches[-1]).next_offset)


class _Held(NamedTuple):
    size_bytes: int
    batches: Sequence[tuple[CachedTail, int]]
    """Whose, and how many."""


class TailCache:
    """All of one proxy's. The newest answer is kept whole, however large."""

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self._limit_bytes = limit_bytes
        self._held: deque[_Held] = deque()
        self.held_bytes = 0

    def add(self, news: Sequence[tuple[CachedTail, TailAnswer]]) -> None:
        """One answer's news of several partitions; what is too much leaves."""
        batches = [(tail, added) for tail, answer in news if (added := tail.add(answer))]
        size_bytes = sum([answer.size_bytes for _, answer in news])
        if not batches:
            return
        self._held.append(_Held(size_bytes, batches))
        self.held_bytes += size_bytes
        while self.held_bytes > self._limit_bytes and len(self._held) > 1:
            oldest = self._held.popleft()
            self.held_bytes -= oldest.size_bytes
            for tail, count in oldest.batches:
                tail.drop(count)
