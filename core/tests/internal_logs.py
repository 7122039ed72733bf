"""An owner whose partitions are logs in memory, which others follow over a connection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from internal_under_test import CLIENT, SERVER, MemoryOwner, serving
from typing_extensions import Buffer

from bmq.errors import BmqError, FencedLeaderEpoch, OffsetOutOfRange
from bmq.fairness.turns import NOBODY, Party
from bmq.internal import RemoteOwner, owner_handlers
from bmq.internal.framing.routes import Handlers
from bmq.internal.tails.tail_cache import TailCache
from bmq.roles.owner import Appended, TailAnswer, TailRequest, TailRoom
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq.wire.records import Record, build_batch

MIB = 1 << 20


class Log:
    """One partition as its owner has it."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.log_start = 0
        self.tail_start = 0
        self.manifest_version = 1
        self.leader_epoch = 3
        self.error: BmqError | None = None

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0


class LogTails:
    """Implements Tails: one follower's."""

    def __init__(self, owner: "LogOwner", changed: Callable[[TopicPartition], None]) -> None:
        self.changed = changed
        self.watched: set[TopicPartition] = set()
        self.read = owner.at_once

    def watch(self, tp: TopicPartition) -> None:
        assert tp not in self.watched
        self.watched.add(tp)

    def leave(self, tp: TopicPartition) -> None:
        self.watched.remove(tp)


class LogOwner(MemoryOwner):
    """Answers reads as a broker does; counts what they cost it."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[TopicPartition, Log] = {}
        self.bytes_given = 0
        self.reads = 0
        self.bug: Exception | None = None
        self._changed = asyncio.Event()
        self.followers: dict[LogTails, None] = {}

    def tails(self, changed: Callable[[TopicPartition], None]) -> "LogTails":
        tails = LogTails(self, changed)
        self.followers[tails] = None
        return tails

    def log(self, one: TopicPartition) -> Log:
        return self.logs.setdefault(one, Log())

    def write(self, one: TopicPartition, *, records: int = 1, size_bytes: int = 50) -> None:
        log = self.log(one)
        base = log.end
        values = [b"%d " % (base + n) + bytes(size_bytes) for n in range(records)]
        log.batches.append(
            (base, base + records, build_batch([Record(0, 1_000, None, value) for value in values], base_offset=base))
        )
        self.changed()

    def changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        for follower in self.followers:
            for one in tuple(follower.watched):
                follower.changed(one)

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        base = self.log(tp).end
        self.write(tp)
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        future.set_result(Appended(base_offset=Offset(base), log_append_time_ms=-1, log_start=Offset(0)))
        return future

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + max_wait_ms / 1000
        while True:
            self._counted()
            answers: list[TailAnswer] = []
            size_bytes = 0
            for request in requests:
                answers.append(self._answer(request, max_bytes - size_bytes, first=not size_bytes))
                size_bytes += answers[-1].size_bytes
            settled = any(
                answer.error is not None or request.offset < answer.tail_start
                for request, answer in zip(requests, answers, strict=True)
            )
            if settled or size_bytes >= min_bytes or loop.time() >= until_s:
                self.bytes_given += size_bytes
                return answers
            try:
                async with asyncio.timeout_at(until_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _counted(self) -> None:
        self.reads += 1
        bug, self.bug = self.bug, None
        if bug is not None:
            raise bug

    def at_once(self, request: TailRequest) -> TailAnswer:
        self._counted()
        answer = self._answer(request, request.max_bytes, first=True)
        self.bytes_given += answer.size_bytes
        return answer

    def _answer(self, request: TailRequest, max_bytes: int, *, first: bool) -> TailAnswer:
        log = self.log(request.tp)
        if log.error is not None:
            return TailAnswer(tp=request.tp, error=log.error)
        if request.current_leader_epoch not in (-1, log.leader_epoch):
            return TailAnswer(tp=request.tp, error=FencedLeaderEpoch("another epoch"))
        error = None if log.log_start <= request.offset <= log.end else OffsetOutOfRange(f"offset {request.offset}")
        found: list[bytes] = []
        size_bytes = 0
        for base, next_offset, batch in log.batches if error is None and request.offset >= log.tail_start else ():
            if next_offset <= request.offset or base < log.tail_start:
                continue
            if size_bytes + len(batch) > min(max_bytes, request.max_bytes) and (found or not first):
                break
            found.append(batch)
            size_bytes += len(batch)
        return TailAnswer(
            tp=request.tp,
            error=error,
            leader_epoch=LeaderEpoch(log.leader_epoch),
            manifest_version=ManifestVersion(log.manifest_version),
            log_start=Offset(log.log_start),
            tail_start=Offset(log.tail_start),
            high_watermark=Offset(log.end),
            last_stable_offset=Offset(log.end),
            batches=tuple(found),
            size_bytes=size_bytes,
        )


@asynccontextmanager
async def following(
    owner: LogOwner, *, handlers: Handlers | None = None, cache_bytes: int = MIB
) -> AsyncIterator[RemoteOwner]:
    async with serving(handlers or owner_handlers(owner)) as (_, host, port):
        there = RemoteOwner(host, port, peer=SERVER.node_id, me=CLIENT, cache=TailCache(cache_bytes))
        try:
            yield there
        finally:
            await there.close()
