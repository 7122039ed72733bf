"""Segment objects (bmqS): runs of one or several partitions' batches, each with its index and its producer snapshot.

Owns the object's bytes (docs/formats/segment.md) and SegmentEntry, by which a manifest names a run. Batches and
producer snapshots are opaque.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import Corrupt
from bmq.storage.binary import (
    CRC_SIZE_BYTES,
    bytes_view,
    checked,
    decode_cluster_id,
    encode_cluster_id,
    encode_crc,
    section,
)
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.storage.segment_index import AbortedTxn, SegmentBatch, SegmentIndex, decode_index, encode_index
from bmq.values import LeaderEpoch, Nonce, Offset, TopicId, TopicPartition

SEGMENT_MAGIC: Final = b"bmqS"
FORMAT_VERSION: Final = 1
RUN_SIZE_BYTES_MAX: Final = 2**32 - 1

# key id, cluster id and its length
_HEADER: Final = struct.Struct(">IB64s")
# topic id, partition, leader epoch, base offset, last offset, position, bytes of batches, of index, of producer
# snapshot
_DIRECTORY_ENTRY: Final = struct.Struct(">16siiqqQIIQ")
# position of the directory, its entries, its CRC32C
_FOOTER: Final = struct.Struct(">QII")

SEGMENT_HEADER_SIZE_BYTES: Final = ENVELOPE_SIZE_BYTES + _HEADER.size + CRC_SIZE_BYTES
SEGMENT_FOOTER_SIZE_BYTES: Final = ENVELOPE_SIZE_BYTES + _FOOTER.size + CRC_SIZE_BYTES
"""The object's last bytes: enough for `decode_footer`."""


class SegmentEntry(msgspec.Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A run as a manifest names it. Fields are stored in this order; a new one takes a new manifest version.

    Positions are bytes of the object `key`; `length` is that of the batches; `index_length` and `snapshot_length`
    include the checksums. `leader_epoch` is that of the owner who wrote the run. `min_timestamp_ms` is the least
    timestamp of a batch's first record. `aborted_first_offset` is the smallest first offset of the transactions in the
    run's aborted-transaction index, -1 where there is none.
    """

    store_id: int = 0
    key: str = ""
    position: int
    length: int
    leader_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    index_position: int
    index_length: int
    snapshot_position: int
    snapshot_length: int
    aborted_first_offset: int = -1


class SegmentRun(NamedTuple):
    """What goes into a segment of one partition: at least one batch, offsets ascending."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    batches: Sequence[SegmentBatch]
    aborted: Sequence[AbortedTxn] = ()
    producer_snapshot: Buffer = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSegment:
    """An object to be created; `entries` are in the order of the runs, their key still empty."""

    parts: list[Buffer]
    entries: tuple[SegmentEntry, ...]
    size_bytes: int

    def entries_at(self, key: str, *, store_id: int = 0) -> tuple[SegmentEntry, ...]:
        """The entries once the object has a key."""
        return tuple(msgspec.structs.replace(entry, key=key, store_id=store_id) for entry in self.entries)


class DirectoryEntry(NamedTuple):
    """A line of a segment's directory. Index and producer snapshot follow the batches without a gap."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    base_offset: Offset
    last_offset: Offset
    position: int
    length: int
    index_length: int
    snapshot_length: int


class SegmentFooter(NamedTuple):
    """Where an object's directory is."""

    nonce: Nonce
    directory_position: int
    directory_length: int
    directory_crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRun:
    """A run of a whole object that was read back."""

    entry: DirectoryEntry
    index: SegmentIndex
    batches: memoryview
    producer_snapshot: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObject:
    """A whole object that was read back."""

    nonce: Nonce
    cluster_id: str
    key_id: int
    runs: tuple[DecodedRun, ...]


def encode_segment(nonce: Nonce, cluster_id: str, runs: Sequence[SegmentRun], *, key_id: int = 0) -> EncodedSegment:
    """The object's parts, batches not copied. Takes time with the number of batches: run it in a thread.

    Raises ValueError for a cluster id above 64 bytes or a run of 4 GiB and more.
    """
    parts: list[Buffer] = [_encode_header(nonce, cluster_id, key_id)]
    position = SEGMENT_HEADER_SIZE_BYTES
    entries = []
    directory = bytearray()
    for run in runs:
        length = _length_of(run)
        index = encode_index(nonce, run.tp, run.leader_epoch, run.batches, run.aborted)
        parts.extend(batch.data for batch in run.batches)
        parts += [index, run.producer_snapshot, encode_crc(crc32c(run.producer_snapshot))]
        entry = _entry_of(run, position, length=length, index_length=len(index))
        entries.append(entry)
        directory += _DIRECTORY_ENTRY.pack(
            run.tp.topic_id.bytes,
            run.tp.partition,
            run.leader_epoch,
            entry.base_offset,
            entry.last_offset,
            position,
            entry.length,
            entry.index_length,
            entry.snapshot_length,
        )
        position = entry.snapshot_position + entry.snapshot_length
    footer = encode_envelope(magic=SEGMENT_MAGIC, version=FORMAT_VERSION, nonce=nonce) + _FOOTER.pack(
        position, len(runs), crc32c(directory)
    )
    parts += [directory, footer, encode_crc(crc32c(footer))]
    return EncodedSegment(
        parts=parts, entries=tuple(entries), size_bytes=position + len(directory) + SEGMENT_FOOTER_SIZE_BYTES
    )


def decode_header(first_bytes: Buffer) -> tuple[Nonce, str, int]:
    """(nonce, cluster id, key id) from the object's first SEGMENT_HEADER_SIZE_BYTES or more. Raises Corrupt,
    FormatTooNew.
    """
    what = "segment"
    view = bytes_view(first_bytes)[:SEGMENT_HEADER_SIZE_BYTES]
    _, nonce = decode_envelope(view, magic=SEGMENT_MAGIC, version_max=FORMAT_VERSION, what=what)
    if len(view) < SEGMENT_HEADER_SIZE_BYTES:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for its header")
    key_id, length, cluster_id = _HEADER.unpack_from(checked(view, what=f"{what} header"), ENVELOPE_SIZE_BYTES)
    return nonce, decode_cluster_id(length, cluster_id, what=what), key_id


def decode_footer(last_bytes: Buffer) -> SegmentFooter:
    """From the object's last SEGMENT_FOOTER_SIZE_BYTES or more. Raises Corrupt, FormatTooNew."""
    what = "segment footer"
    view = bytes_view(last_bytes)[-SEGMENT_FOOTER_SIZE_BYTES:]
    _, nonce = decode_envelope(view, magic=SEGMENT_MAGIC, version_max=FORMAT_VERSION, what=what)
    if len(view) != SEGMENT_FOOTER_SIZE_BYTES:
        raise Corrupt(f"{what}: {len(view)} bytes instead of {SEGMENT_FOOTER_SIZE_BYTES}")
    position, entry_count, crc = _FOOTER.unpack_from(checked(view, what=what), ENVELOPE_SIZE_BYTES)
    return SegmentFooter(nonce, position, entry_count * _DIRECTORY_ENTRY.size, crc)


def decode_directory(footer: SegmentFooter, directory: Buffer) -> tuple[DirectoryEntry, ...]:
    """Which runs an object holds, from the bytes that its footer points to. Raises Corrupt."""
    view = bytes_view(directory)
    if len(view) != footer.directory_length or crc32c(view) != footer.directory_crc:
        raise Corrupt(f"segment directory: {len(view)} bytes are not the {footer.directory_length} that were written")
    entries = []
    position = SEGMENT_HEADER_SIZE_BYTES
    for topic_id, partition, *rest in _DIRECTORY_ENTRY.iter_unpack(view):
        entry = DirectoryEntry(TopicPartition(TopicId(UUID(bytes=topic_id)), partition), *rest)
        if entry.position != position or partition < 0 or not 0 <= entry.base_offset <= entry.last_offset:
            raise Corrupt(f"segment directory: the entry of {entry.tp} at {entry.base_offset} does not fit")
        position += entry.length + entry.index_length + entry.snapshot_length
        entries.append(entry)
    if position != footer.directory_position:
        raise Corrupt(f"segment directory: it covers {position} of {footer.directory_position} bytes")
    return tuple(entries)


def decode_producer_snapshot(stored: Buffer) -> memoryview:
    """The snapshot out of an entry's `snapshot_length` bytes at `snapshot_position`. Raises Corrupt."""
    return checked(stored, what="producer snapshot")


def decode_segment(data: Buffer) -> SegmentObject:
    """A whole object, every byte checked: for tools and tests; readers use ranges. Raises Corrupt, FormatTooNew."""
    view = bytes_view(data)
    nonce, cluster_id, key_id = decode_header(view)
    if len(view) < SEGMENT_HEADER_SIZE_BYTES + SEGMENT_FOOTER_SIZE_BYTES:
        raise Corrupt(f"segment: {len(view)} bytes are too few")
    footer = decode_footer(view)
    if footer.nonce != nonce or footer.directory_position + footer.directory_length + SEGMENT_FOOTER_SIZE_BYTES != len(
        view
    ):
        raise Corrupt(f"segment: its footer is not that of an object of {len(view)} bytes")
    directory = section(view, footer.directory_position, footer.directory_length, what="segment directory")
    runs = tuple(_decode_run(view, nonce, entry) for entry in decode_directory(footer, directory))
    return SegmentObject(nonce=nonce, cluster_id=cluster_id, key_id=key_id, runs=runs)


def _encode_header(nonce: Nonce, cluster_id: str, key_id: int) -> bytes:
    raw = encode_cluster_id(cluster_id)
    header = encode_envelope(magic=SEGMENT_MAGIC, version=FORMAT_VERSION, nonce=nonce) + _HEADER.pack(
        key_id, len(raw), raw
    )
    return header + encode_crc(crc32c(header))


def _length_of(run: SegmentRun) -> int:
    length = sum(memoryview(batch.data).nbytes for batch in run.batches)
    if length > RUN_SIZE_BYTES_MAX:
        raise ValueError(f"a run of {length} bytes of {run.tp}; at most {RUN_SIZE_BYTES_MAX} are possible")
    return length


def _entry_of(run: SegmentRun, position: int, *, length: int, index_length: int) -> SegmentEntry:
    return SegmentEntry(
        position=position,
        length=length,
        leader_epoch=run.leader_epoch,
        base_offset=run.batches[0].base_offset,
        last_offset=run.batches[-1].last_offset,
        record_count=sum(batch.record_count for batch in run.batches),
        min_timestamp_ms=min(batch.base_timestamp_ms for batch in run.batches),
        max_timestamp_ms=max(batch.max_timestamp_ms for batch in run.batches),
        index_position=position + length,
        index_length=index_length,
        snapshot_position=position + length + index_length,
        snapshot_length=memoryview(run.producer_snapshot).nbytes + CRC_SIZE_BYTES,
        aborted_first_offset=min((txn.first_offset for txn in run.aborted), default=-1),
    )


def _decode_run(view: memoryview, nonce: Nonce, entry: DirectoryEntry) -> DecodedRun:
    batches = view[entry.position : entry.position + entry.length]
    index_end = entry.position + entry.length + entry.index_length
    index = decode_index(view[entry.position + entry.length : index_end])
    found = (index.nonce, index.tp, index.leader_epoch, index.base_offset, index.last_offset, index.length)
    if found != (nonce, *entry[:4], entry.length):
        raise Corrupt(f"segment: the index of {entry.tp} at {entry.base_offset} is another run's")
    index.check_batches(batches)
    snapshot = decode_producer_snapshot(view[index_end : index_end + entry.snapshot_length])
    return DecodedRun(entry=entry, index=index, batches=batches, producer_snapshot=snapshot)
