"""One WAL object, byte by byte: its checksums, its directory, every batch. Pure; runs in a thread."""

from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from bmq.errors import Corrupt, CorruptBatch, FormatError, UnsupportedMessageFormat
from bmq.storage.numbered import wal_key
from bmq.storage.wal import Seal, WalEntry, WalObject, decode_any, decode_wal_directory
from bmq.values import StreamId, TopicPartition
from bmq.wire.batch_headers import CRC_START, split
from bmq_audit.unopenable import TOLD_MAX, why_unopenable

PROBLEMS_MAX = 8
"""Told of one object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedWal:
    """What an object holds; `problems` say what is wrong with it. `entries` of one that cannot be read are what its
    directory promises.
    """

    number: int
    seal: bool = False
    durable_below: int = 0
    entries: tuple[WalEntry, ...] = ()
    batches: int = 0
    records: int = 0
    problems: tuple[str, ...] = ()
    unopenable: tuple[tuple[TopicPartition, str], ...] = ()
    """Batches that are whole and that no reader can open."""
    unreadable: bool = False
    """A newer bmq wrote it, or the store does not give it: nobody knows that it is damaged."""
    size_bytes: int = 0


def examine_wal(data: bytes, *, stream: StreamId, number: int, cluster_id: str) -> ExaminedWal:
    """Looks at every byte of what stands at a number of a stream."""
    try:
        found = decode_any(data)
    except FormatError as error:
        unreadable = not isinstance(error, Corrupt)
        return ExaminedWal(
            number=number, entries=_promised(data), problems=(str(error),), unreadable=unreadable, size_bytes=len(data)
        )
    head = found if isinstance(found, Seal) else found.header
    problems = []
    if head.stream != stream or head.number != number:
        problems.append(f"it is object {wal_key(head.stream, head.number)}")
    if cluster_id and head.cluster_id != cluster_id:
        problems.append(f"it is of cluster {head.cluster_id!r}, this is {cluster_id!r}")
    if isinstance(found, Seal):
        return ExaminedWal(number=number, seal=True, problems=tuple(problems), size_bytes=len(data))
    batches = records = 0
    unopenable: list[tuple[TopicPartition, str]] = []
    for entry in found.entries:
        try:
            run_batches, run_records = _examine_run(found, entry)
            batches += run_batches
            records += run_records
            unopenable += _unopenable(found, entry)
        except (Corrupt, CorruptBatch, UnsupportedMessageFormat) as error:
            problems.append(f"{entry.tp} at {entry.base_offset}: {error}")
    return ExaminedWal(
        number=number,
        durable_below=found.header.durable_below,
        entries=found.entries,
        batches=batches,
        records=records,
        problems=tuple(problems[:PROBLEMS_MAX]),
        unopenable=tuple(unopenable[:TOLD_MAX]),
        size_bytes=len(data),
    )


def _promised(data: bytes) -> tuple[WalEntry, ...]:
    """What the directory of a damaged object says it held, as far as that can be read."""
    try:
        return decode_wal_directory(data)
    except FormatError:
        return ()


def _unopenable(wal: WalObject, entry: WalEntry) -> Iterator[tuple[TopicPartition, str]]:
    data = wal.run(entry)
    for header in split(data):
        if (why := why_unopenable(data, header)) is not None:
            yield entry.tp, why


def _examine_run(wal: WalObject, entry: WalEntry) -> tuple[int, int]:
    """(batches, records). Raises Corrupt, CorruptBatch, UnsupportedMessageFormat."""
    data = wal.run(entry)
    headers = split(data)
    expected: int = entry.base_offset
    for header in headers:
        if header.crc != crc32c(data[header.position + CRC_START : header.end]):
            raise Corrupt(f"the batch of offset {header.base_offset} does not have its CRC")
        if header.base_offset < expected:
            raise Corrupt(f"a batch of offset {header.base_offset} where {expected} is due")
        if header.leader_epoch > entry.leader_epoch:  # below it: carried forward from an earlier owner's object
            raise Corrupt(
                f"the batch of offset {header.base_offset} has leader epoch {header.leader_epoch}, its run "
                f"{entry.leader_epoch}"
            )
        expected = header.next_offset
    if not headers or headers[0].base_offset != entry.base_offset or headers[-1].last_offset != entry.last_offset:
        raise Corrupt(
            f"its batches are not those of offsets {entry.base_offset} to {entry.last_offset} that the directory "
            "promises"
        )
    if max(header.max_timestamp_ms for header in headers) != entry.max_timestamp_ms:
        raise Corrupt("its largest timestamp is not the one that the directory promises")
    return len(headers), sum(header.record_count for header in headers)
