"""Bugs to plant in the real code, to prove that the simulator finds them. Each patches the real function: a rename
breaks it loudly.

A planted bug is what a hurried change would do: the rest of the code around it stays as it is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

import msgspec

from bmq.errors import OutOfOrderSequence
from bmq.storage import durable, flatlog, stream, stream_read
from bmq.storage.keys import segment_prefix
from bmq.storage.wal import WalObject
from bmq.values import Nonce
from bmq_broker import broker, upkeep
from bmq_broker.partitions import partition as partitions
from bmq_broker.partitions import producers
from bmq_broker.segments import roll_writing
from bmq_broker.wal import commit
from bmq_sim.planted_administration import PLANTED_ADMINISTRATION
from bmq_sim.planted_choosing import PLANTED_CHOOSING
from bmq_sim.planted_cluster import PLANTED_IN_CLUSTERS
from bmq_sim.planted_falling import PLANTED_FALLING
from bmq_sim.planted_garbage import PLANTED_GARBAGE
from bmq_sim.planted_giving_up import PLANTED_GIVING_UP

Plant = Callable[[], AbstractContextManager[Any]]


def _acknowledge_before_durable() -> AbstractContextManager[Any]:
    """The producer is told as soon as the batch is in the buffer."""

    def when_durable(self: commit.GroupCommit, partition: Any, future: "asyncio.Future[Any]", result: Any) -> None:
        if not future.done():
            future.set_result(result)

    return patch.object(commit.GroupCommit, "when_durable", autospec=True, side_effect=when_durable)


def _acknowledge_duplicate_in_flight() -> AbstractContextManager[Any]:
    """A batch that was sent again is acknowledged at once, although the first one is not durable yet."""
    real_check, real_when_durable = producers.Producers.check, commit.GroupCommit.when_durable
    is_duplicate = False

    def check(self: producers.Producers, header: Any, *, is_sparse: bool = False) -> int | None:
        nonlocal is_duplicate
        earlier = real_check(self, header, is_sparse=is_sparse)
        is_duplicate = earlier is not None
        return earlier

    def when_durable(self: commit.GroupCommit, partition: Any, future: "asyncio.Future[Any]", result: Any) -> None:
        nonlocal is_duplicate
        if is_duplicate and not future.done():
            is_duplicate = False
            future.set_result(result)
        else:
            real_when_durable(self, partition, future, result)

    stack = ExitStack()
    stack.enter_context(patch.object(producers.Producers, "check", autospec=True, side_effect=check))
    stack.enter_context(patch.object(commit.GroupCommit, "when_durable", autospec=True, side_effect=when_durable))
    return stack


def _gap_is_taken() -> AbstractContextManager[Any]:
    """A batch whose sequence does not follow is appended all the same."""
    real = producers.Producers.check

    def check(self: producers.Producers, header: Any) -> int | None:
        try:
            return real(self, header)
        except OutOfOrderSequence:
            return None

    return patch.object(producers.Producers, "check", autospec=True, side_effect=check)


def _refused_from_memory() -> AbstractContextManager[Any]:
    """A sequence is refused for good by who may have been replaced: its successor may have the batch before it."""

    def refuse(self: broker.Broker, partition: Any, refused: Any, future: "asyncio.Future[Any]") -> None:
        future.set_exception(refused)

    return patch.object(broker.Broker, "_refuse", autospec=True, side_effect=refuse)


def _complete_out_of_order() -> AbstractContextManager[Any]:
    """A WAL object counts as durable although one below it is still on its way."""

    def complete(self: stream.StreamWriter) -> None:
        while self._ended is None and self._created:
            number = min(self._created)
            del self._created[number]
            self._durable_below = max(self._durable_below, number + 1)
            self._on_durable(number)

    return patch.object(stream.StreamWriter, "_complete", autospec=True, side_effect=complete)


def _skip_seal_check() -> AbstractContextManager[Any]:
    """An owner answers from its memory without making sure that it still is the owner."""

    async def verify_not_sealed(self: stream.StreamWriter) -> None:
        return None

    return patch.object(stream.StreamWriter, "verify_not_sealed", autospec=True, side_effect=verify_not_sealed)


def _unknown_is_failure() -> AbstractContextManager[Any]:
    """A create whose outcome is unknown counts as failed: what then stands at its key can only be another's."""

    async def nonce_at(store: Any, key: str) -> Nonce:
        return Nonce(b"")

    return patch.object(durable, "_nonce_at", autospec=True, side_effect=nonce_at)


def _offsets_twice_after_recovery() -> AbstractContextManager[Any]:
    """The last run that the WAL holds of a partition is forgotten, and its offsets are given again."""
    real = partitions.Partition.opened

    def opened(
        self: partitions.Partition, manifest: Any, entry: Any, rolled: Any, recovered: Sequence[Any], *, now_ms: int
    ) -> None:
        real(self, manifest, entry, rolled, recovered[:-1], now_ms=now_ms)

    return patch.object(partitions.Partition, "opened", autospec=True, side_effect=opened)


class _LiveProducers(producers.Producers):
    """A copy of live state where the previous snapshot should be: it knows batches that the segment does not have."""

    def copy(self) -> producers.Producers:
        other = _LiveProducers()
        other._producers = super().copy()._producers
        return other

    def replay(self, header: Any, *, base_offset: int, seen_ms: int) -> None:
        return None


def _snapshot_live_producers() -> AbstractContextManager[Any]:
    """A segment's producer snapshot is the live state, which runs ahead of it."""
    real = roll_writing.RollWriter._write

    async def write(self: roll_writing.RollWriter, partition: partitions.Partition, plan: Any) -> Any:
        live = _LiveProducers()
        live._producers = partition.live.copy()._producers
        partition.rolled = live
        return await real(self, partition, plan)

    return patch.object(roll_writing.RollWriter, "_write", autospec=True, side_effect=write)


def _roll_above_high_watermark() -> AbstractContextManager[Any]:
    """A roll takes everything in memory, durable or not."""
    real = partitions.Partition.plan_roll

    def plan_roll(self: partitions.Partition, *, target_bytes: int) -> partitions.RollPlan | None:
        high_watermark = self.high_watermark
        self.high_watermark = self.next_offset
        try:
            return real(self, target_bytes=target_bytes)
        finally:
            self.high_watermark = high_watermark

    return patch.object(partitions.Partition, "plan_roll", autospec=True, side_effect=plan_roll)


def _take_what_is_there() -> AbstractContextManager[Any]:
    """A WAL object that is missing is passed over, and so are the offsets that it held."""
    real_opened = partitions.Partition.opened

    async def read_what_is_there(
        store: Any, of: Any, *, start: int, end: int, rng: Any, reads_ahead: int
    ) -> AsyncIterator[WalObject]:
        for number in range(start, end):
            try:
                async for wal in stream_read.read_stream(store, of, start=number, end=number + 1, rng=rng):
                    yield wal
            except stream.WalObjectMissing:
                continue

    def opened(
        self: partitions.Partition, manifest: Any, entry: Any, rolled: Any, recovered: Sequence[Any], *, now_ms: int
    ) -> None:
        following = manifest.next_offset
        for run, _ in recovered:
            if run.base_offset > following:
                manifest = msgspec.structs.replace(manifest, next_offset=run.base_offset)
            following = max(following, run.next_offset)
        real_opened(self, manifest, entry, rolled, recovered, now_ms=now_ms)

    stack = ExitStack()
    stack.enter_context(patch("bmq_broker.ownership.recovery.read_stream", new=read_what_is_there))
    stack.enter_context(patch.object(partitions.Partition, "opened", autospec=True, side_effect=opened))
    return stack


def _append_above_newest() -> AbstractContextManager[Any]:
    """A flat log's entry goes above whatever is the newest, instead of exactly one above the entry it was built
    from.
    """

    async def append(self: flatlog.FlatLog, base: flatlog.Entry, *, epoch: int, payload: bytes) -> flatlog.Entry:
        newest = await self.newest(base.number)
        return await self._create(newest or base, epoch=epoch, payload=payload, claim=False)

    return patch.object(flatlog.FlatLog, "append", autospec=True, side_effect=append)


def _claim_without_listing() -> AbstractContextManager[Any]:
    """A claim counts although a newer entry stands above it."""

    async def still_newest(self: flatlog.FlatLog, entry: flatlog.Entry) -> bool:
        return True

    return patch.object(flatlog.FlatLog, "_still_newest", autospec=True, side_effect=still_newest)


def _collect_unnamed() -> AbstractContextManager[Any]:
    """A segment is garbage because no manifest names it: also one that is just being rolled."""

    async def collect(self: upkeep.Upkeep, partition: partitions.Partition) -> None:
        named = {entry.key for entry in await self._segments.entries(partition.tp, partition.manifest)}
        keys = [meta.key async for meta in self._store.list(segment_prefix(partition.tp))]
        self._garbage.give_up([key for key in keys if key not in named])

    return patch.object(upkeep.Upkeep, "_collect", autospec=True, side_effect=collect)


def _taken_together_unchecked() -> AbstractContextManager[Any]:
    """What comes together is taken together, also what was there before."""
    return patch.object(broker.Broker, "_is_next", new=staticmethod(lambda partition, header: True))


PLANTED: Final[Mapping[str, Plant]] = {
    "acknowledge-before-durable": _acknowledge_before_durable,
    "taken-together-unchecked": _taken_together_unchecked,
    "acknowledge-duplicate-in-flight": _acknowledge_duplicate_in_flight,
    "gap-is-taken": _gap_is_taken,
    "refused-from-memory": _refused_from_memory,
    "complete-out-of-order": _complete_out_of_order,
    "skip-seal-check": _skip_seal_check,
    "unknown-is-failure": _unknown_is_failure,
    "offsets-twice-after-recovery": _offsets_twice_after_recovery,
    "snapshot-live-producers": _snapshot_live_producers,
    "roll-above-high-watermark": _roll_above_high_watermark,
    "take-what-is-there": _take_what_is_there,
    "append-above-newest": _append_above_newest,
    "collect-unnamed": _collect_unnamed,
    "claim-without-listing": _claim_without_listing,
    **PLANTED_ADMINISTRATION,
    **PLANTED_CHOOSING,
    **PLANTED_FALLING,
    **PLANTED_GARBAGE,
    **PLANTED_GIVING_UP,
    **PLANTED_IN_CLUSTERS,
}


@contextlib.contextmanager
def plant(name: str | None) -> Iterator[None]:
    """The bug is in the code until the block ends. None: no bug."""
    if name is None:
        yield
        return
    with PLANTED[name]():
        yield
