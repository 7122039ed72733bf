"""Bugs to plant around what is carried forward, shared and collected: see bmq_sim.planted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from bmq_broker.partitions import partition as partitions
from bmq_broker.partitions import tail as tails
from bmq_broker.segments import garbage, shared_garbage
from bmq_broker.wal import commit
from bmq_controller import strays


def _collect_shared_of_one() -> AbstractContextManager[Any]:
    """A partition that lets go of its run deletes the shared segment, although others name theirs."""

    def give_up(self: garbage.Garbage, keys: Iterable[str]) -> None:
        self._put(keys)

    return patch.object(garbage.Garbage, "give_up", autospec=True, side_effect=give_up)


def _collect_shared_by_first() -> AbstractContextManager[Any]:
    """A shared segment goes when the first partition of its directory names it no more."""
    real = shared_garbage.SharedGarbage._directory

    async def directory(self: shared_garbage.SharedGarbage, meta: Any) -> tuple[Any, ...] | None:
        found = await real(self, meta)
        return found and found[:1]

    return patch.object(shared_garbage.SharedGarbage, "_directory", autospec=True, side_effect=directory)


def _forget_originals_when_copy_is_sent() -> AbstractContextManager[Any]:
    """What is carried forward is let go of in the old WAL objects before the copy is durable."""
    real = commit.GroupCommit.carry

    def carry(self: commit.GroupCommit, partition: partitions.Partition) -> int:
        before = [run for run in partition.tail.runs if run.next_offset <= partition.high_watermark]
        carried_bytes = real(self, partition)
        if carried_bytes:
            self.unpin([run.slot for run in before if run.slot is not None])
            for run in before:
                run.slot = None
        return carried_bytes

    return patch.object(commit.GroupCommit, "carry", autospec=True, side_effect=carry)


def _cover_ranges_when_copy_is_sent() -> AbstractContextManager[Any]:
    """What was inherited counts as covered before its copy in the own stream is durable."""
    real = partitions.Partition.covers_recovered

    def covers_recovered(self: partitions.Partition) -> bool:
        return self.carrying or real(self)

    return patch.object(partitions.Partition, "covers_recovered", autospec=True, side_effect=covers_recovered)


def _take_all_up_to_a_parts_end() -> AbstractContextManager[Any]:
    """A copy of a part of a tail counts for all of the tail that is below its end."""
    real = tails.Tail.carried

    def carried(self: tails.Tail, base_offset: int, next_offset: int, slot: tails.Slot) -> list[tails.Slot]:
        return real(self, 0, next_offset, slot)

    return patch.object(tails.Tail, "carried", autospec=True, side_effect=carried)


def _cover_ranges_by_a_part() -> AbstractContextManager[Any]:
    """What was inherited counts as covered when a copy of the first part of it is durable."""
    real = partitions.Partition.covers_recovered

    def covers_recovered(self: partitions.Partition) -> bool:
        first = next(iter(self.tail.runs), None)
        return real(self) or (first is not None and first.slot is not None)

    return patch.object(partitions.Partition, "covers_recovered", autospec=True, side_effect=covers_recovered)


def _take_copies_twice() -> AbstractContextManager[Any]:
    """An heir takes originals and copies, as if both were records of their own."""

    def take_over(self: partitions.Partition, run: Any, headers: Sequence[Any], taken: Any, *, now_ms: int) -> None:
        if run.next_offset <= self.manifest.next_offset:
            return
        for batch, header in zip(run.batches, headers, strict=True):
            self.tail.add(run, batch, base_offset=header.base_offset, size_bytes=header.size_bytes)
            self.live.replay(header, base_offset=header.base_offset, seen_ms=now_ms)
        self.tail.durable(len(run.batches))
        self.next_offset = max(self.next_offset, run.next_offset)

    return patch.object(partitions.Partition, "_take_over", autospec=True, side_effect=take_over)


def _leave_strays() -> AbstractContextManager[Any]:
    """What lands in a stream after it was collected stays for ever."""

    async def sweep_streams(self: strays.Strays) -> int:
        return 0

    return patch.object(strays.Strays, "sweep_streams", autospec=True, side_effect=sweep_streams)


PLANTED_GARBAGE: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    "collect-shared-of-one": _collect_shared_of_one,
    "collect-shared-by-first": _collect_shared_by_first,
    "forget-originals-when-copy-is-sent": _forget_originals_when_copy_is_sent,
    "cover-ranges-when-copy-is-sent": _cover_ranges_when_copy_is_sent,
    "take-all-up-to-a-parts-end": _take_all_up_to_a_parts_end,
    "cover-ranges-by-a-part": _cover_ranges_by_a_part,
    "take-copies-twice": _take_copies_twice,
    "leave-strays": _leave_strays,
}
