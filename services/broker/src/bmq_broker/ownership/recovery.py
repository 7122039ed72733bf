"""What an heir reads before it may append: the WAL ranges of earlier owners, once per stream for all partitions that it
inherits. A pass of a running broker, after a take-over or a move, reads as one that recovers does.

The streams are read before the manifests. Whatever the old owner rolled and deleted meanwhile is then explained by the
manifest that is read afterwards; what is not explained stops the partition (Partition.opened), it is never skipped.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import FormatTooNew, PartitionStopped
from bmq.metadata.image import stream_of
from bmq.metadata.records import Range
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import together
from bmq.storage.numbered import wal_key
from bmq.storage.stream import Kept, WalObjectDamaged, WalObjectMissing, kept_of, read_number, read_stream
from bmq.storage.wal import WalEntry, WalObject
from bmq.values import Offset, StreamId, TopicPartition
from bmq.wire.batches import BatchHeader, split
from bmq_broker.ownership.inheritance import Inheritance, Left
from bmq_broker.ownership.salvaging import Salvaged, salvage
from bmq_broker.partitions.tail import Run

log = structlog.get_logger()

RESTORE = "; restore the object from a backup, and it is read again"
STREAMS_AT_ONCE = 2
READS_AHEAD = 8
"""Objects of each stream that are in memory. What a move stops for is mostly this reading."""
COPY_BELOW = 2
"""A run smaller than this fraction of its object is copied, so that it does not keep the whole object in memory."""


_Taken = defaultdict[tuple[TopicPartition, int], list[tuple[Run, Sequence[BatchHeader]]]]
"""Runs of one stream, by partition and leader epoch."""


async def read_ranges(
    store: ObjectStore,
    ranges: Mapping[TopicPartition, Sequence[Range]],
    *,
    clock: ClockGuard,
    rng: Rng,
    is_sealed: Callable[[StreamId], bool],
    read: Callable[[int], None] = lambda _: None,
) -> dict[TopicPartition, Inheritance]:
    """Per partition that the streams hold something of (or that cannot be recovered): what they hold. The others need
    nothing but their manifest.

    `is_sealed`: whether the image says that a stream has ended. `read` is called with the bytes of each object that was
    read.
    """
    wanted: dict[StreamId, dict[tuple[TopicPartition, int], Range]] = defaultdict(dict)
    for tp, named in ranges.items():
        for part in named:
            wanted[stream_of(part)][tp, part.leader_epoch] = part
    found: dict[TopicPartition, Inheritance] = defaultdict(Inheritance)
    places = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def read_stream_of(stream: StreamId) -> None:
        try:
            async with places:
                await _read_stream(
                    store, stream, wanted[stream], found, clock=clock, rng=rng, is_sealed=is_sealed, read=read
                )
        except FormatTooNew as error:
            log.error("stream cannot be read", stream=stream.prefix, error=str(error))
            for tp, _ in wanted[stream]:
                found[tp].stopped = _stopped(tp, stream, str(error))  # which names the remedy

    await together(read_stream_of(stream) for stream in sorted(wanted))
    for inheritance in found.values():
        if inheritance.stopped is not None:
            inheritance.runs.clear()
        inheritance.runs.sort(key=lambda pair: pair[0].base_offset)
    return dict(found)


async def _read_stream(
    store: ObjectStore,
    stream: StreamId,
    wanted: Mapping[tuple[TopicPartition, int], Range],
    found: dict[TopicPartition, Inheritance],
    *,
    clock: ClockGuard,
    rng: Rng,
    is_sealed: Callable[[StreamId], bool],
    read: Callable[[int], None],
) -> None:
    """Reads what is wanted of one stream: of a sealed one, what its owner had yet to delete. A living owner that moved
    partitions away keeps all from `start` on: nothing may be missing there. Where its objects begin could not be told
    from a listing, which is never the picture of one moment.

    What is missing or damaged stops those who need it and nobody else: it may have been kept for a partition that is
    gone since, which this broker's image has yet to show.
    """
    unread = dict(wanted)
    taken: _Taken = defaultdict(list)
    following = 0
    missing = -1
    kept_from = 0
    while unread:  # as often as an old owner deletes what is to be read next: at most once per object, or per partition
        first = max(kept_from, min(part.start for part in unread.values()))
        if is_sealed(stream) and (first == 0 or missing >= 0):
            kept = await kept_of(store, stream, rng=rng)
            await _look_below(store, stream, kept, unread, found, rng=rng, read=read)
            for key in [key for key, part in unread.items() if part.start <= missing < min(part.end, kept.first)]:
                taken.pop(key, None)  # it lies below the missing one, as what was just looked at
            kept_from = kept.first
            first = max(first, kept_from)
        if first <= missing:
            _stop(stream, missing, unread, found)
            unread = {key: part for key, part in unread.items() if part.start > missing}
            continue
        end = max(part.end for part in unread.values())
        try:
            async with aclosing(
                read_stream(store, stream, start=max(first, following), end=end, rng=rng, reads_ahead=READS_AHEAD)
            ) as objects:
                async for wal in objects:
                    read(len(wal.data))
                    _take(wal, unread, found, taken, now_ms=clock.now_ms())
                    following = wal.header.number + 1
        except WalObjectMissing as error:
            missing = error.number
        except WalObjectDamaged as error:
            following = error.number + 1
            read(len(error.data))
            salvaged = await asyncio.get_running_loop().run_in_executor(None, salvage, error.data)
            if salvaged is not None:
                _take(salvaged.wal, unread, found, taken, now_ms=clock.now_ms())
            _stop_damaged(stream, error, salvaged, unread, found)
        else:
            break
    for (tp, _), runs in taken.items():
        found[tp].runs += runs


async def _look_below(
    store: ObjectStore,
    stream: StreamId,
    kept: Kept,
    wanted: Mapping[tuple[TopicPartition, int], Range],
    found: dict[TopicPartition, Inheritance],
    *,
    rng: Rng,
    read: Callable[[int], None],
) -> None:
    """What the objects below the missing one hold. As a rule some four, which their owner was deleting with it."""
    for number in kept.below:
        try:
            wal = await read_number(store, stream, number, rng=rng)
        except WalObjectMissing:
            continue  # deleted meanwhile, by its owner
        except WalObjectDamaged as error:
            log.error(
                "WAL object below a missing one is damaged: nobody needs it, unless that one was lost", error=str(error)
            )
            continue
        read(len(wal.data))
        for entry in _wanted(wal, wanted):
            found[entry.tp].leave(Left(Offset(entry.last_offset + 1), wal_key(stream, kept.first - 1)))


def _stop(
    stream: StreamId,
    missing: int,
    unread: Mapping[tuple[TopicPartition, int], Range],
    found: dict[TopicPartition, Inheritance],
) -> None:
    """Those whose ranges hold the object. What ends below it has been read, and what starts above it does not need
    it.
    """
    for (tp, _), part in unread.items():
        if part.start <= missing < part.end:
            error = f"object {missing} of {stream.prefix} is missing"
            log.error("partition cannot be recovered", partition=str(tp), error=error)
            found[tp].stopped = _stopped(tp, stream, f"{error}{RESTORE}")


def _stop_damaged(
    stream: StreamId,
    error: WalObjectDamaged,
    salvaged: Salvaged | None,
    unread: Mapping[tuple[TopicPartition, int], Range],
    found: dict[TopicPartition, Inheritance],
) -> None:
    """Those whose runs are damaged; where that cannot be told, all whose ranges hold the object, for any of them may
    have had a run in it.
    """
    damaged = None if salvaged is None else {(entry.tp, entry.leader_epoch) for entry in salvaged.damaged}
    doubt = (
        ""
        if salvaged is not None
        else ": whose records are damaged cannot be told, so all that may have some there wait"
    )
    stopped = [(tp, part) for (tp, epoch), part in unread.items() if damaged is None or (tp, epoch) in damaged]
    for tp, part in stopped:
        if part.start <= error.number < part.end:
            found[tp].stopped = _stopped(tp, stream, f"{error}{doubt}{RESTORE}")
    log.error(
        "WAL object is damaged",
        error=str(error),
        partitions=len(stopped),
        whose="known" if salvaged is not None else "unknown",
    )


def _stopped(tp: TopicPartition, stream: StreamId, why: str) -> PartitionStopped:
    return PartitionStopped(f"partition {tp}: stream {stream.prefix}: {why}")


def _take(
    wal: WalObject,
    wanted: Mapping[tuple[TopicPartition, int], Range],
    found: dict[TopicPartition, Inheritance],
    taken: _Taken,
    *,
    now_ms: int,
) -> None:
    for entry in _wanted(wal, wanted):
        inheritance = found[entry.tp]
        inheritance.manifest_version = max(inheritance.manifest_version, entry.manifest_version)
        taken[entry.tp, entry.leader_epoch].append(_run(wal, entry, now_ms=now_ms))


def _wanted(wal: WalObject, wanted: Mapping[tuple[TopicPartition, int], Range]) -> Iterator[WalEntry]:
    """The entries of an object's directory that lie in one of the ranges."""
    for entry in wal.entries:
        part = wanted.get((entry.tp, entry.leader_epoch))
        if part is not None and part.start <= wal.header.number < part.end:
            yield entry


def _run(wal: WalObject, entry: WalEntry, *, now_ms: int) -> tuple[Run, Sequence[BatchHeader]]:
    data = wal.run(entry)
    if entry.length * COPY_BELOW < len(wal.data):
        data = memoryview(bytes(data))
    headers = split(data)
    run = Run(
        slot=None,
        leader_epoch=entry.leader_epoch,
        base_offset=entry.base_offset,
        next_offset=Offset(entry.last_offset + 1),
        batches=[data[header.position : header.position + header.size_bytes] for header in headers],
        size_bytes=entry.length,
        max_timestamp_ms=entry.max_timestamp_ms,
        since_ms=now_ms,
    )
    return run, headers
