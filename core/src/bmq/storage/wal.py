"""The objects of a WAL stream: data objects (bmqW) that hold batches of many partitions, and the seal (bmqX) that ends
a stream.

Owns their bytes (docs/formats/wal.md). Which numbers are created, sealed or deleted, and when, is storage/stream.py's.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import Corrupt
from bmq.storage.binary import (
    CRC_SIZE_BYTES,
    bytes_view,
    checked,
    crc_of,
    decode_cluster_id,
    encode_cluster_id,
    encode_crc,
)
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.values import (
    BrokerEpoch,
    LeaderEpoch,
    ManifestVersion,
    NodeId,
    Nonce,
    Offset,
    StreamId,
    TopicId,
    TopicPartition,
)

WAL_MAGIC: Final = b"bmqW"
SEAL_MAGIC: Final = b"bmqX"
FORMAT_VERSION: Final = 1

# key id, cluster id and its length, node id, broker epoch, number, durable_below, directory entries, size of the whole
# object
_HEADER: Final = struct.Struct(">IB64siqQQIQ")
_SEAL: Final = struct.Struct(">B64siqQ")
# topic id, partition, leader epoch, manifest version, base offset, last offset, max timestamp, position, length
_ENTRY: Final = struct.Struct(">16siiQqqqII")

WAL_HEADER_SIZE_BYTES: Final = ENVELOPE_SIZE_BYTES + _HEADER.size + CRC_SIZE_BYTES
"""A ranged read of this many bytes is enough for `decode_head` and `decode_wal_header`."""
SEAL_SIZE_BYTES: Final = ENVELOPE_SIZE_BYTES + _SEAL.size + CRC_SIZE_BYTES
WAL_ENTRY_SIZE_BYTES: Final = _ENTRY.size
WAL_OBJECT_SIZE_BYTES_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WalHeader:
    """Whose object it is, which number it has in its stream, and below which number all were durable when it was first
    sent.
    """

    cluster_id: str
    node_id: NodeId
    broker_epoch: BrokerEpoch
    number: int
    nonce: Nonce
    durable_below: int
    key_id: int = 0

    @property
    def stream(self) -> StreamId:
        """The stream that the object says it belongs to."""
        return StreamId(self.node_id, self.broker_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Ends its stream at `number`: what lies there and above counts for nothing. `nonce` is the sealer's own."""

    cluster_id: str
    node_id: NodeId
    broker_epoch: BrokerEpoch
    number: int
    nonce: Nonce

    @property
    def stream(self) -> StreamId:
        """The stream that it seals."""
        return StreamId(self.node_id, self.broker_epoch)


class WalRun(NamedTuple):
    """Consecutive batches of one partition under one leader epoch, to be written. At least one batch, none of them
    empty.
    """

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    manifest_version: ManifestVersion
    base_offset: Offset
    last_offset: Offset
    max_timestamp_ms: int
    batches: Sequence[Buffer]


class WalEntry(NamedTuple):
    """A line of the directory: `length` bytes of batches from byte `position` of the object.

    `manifest_version` is the newest that the owner knew when it wrote this: an heir lists from there.
    """

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    manifest_version: ManifestVersion
    base_offset: Offset
    last_offset: Offset
    max_timestamp_ms: int
    position: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WalObject:
    """A decoded object. `data` is the buffer that it was decoded from, not a copy."""

    header: WalHeader
    entries: tuple[WalEntry, ...]
    data: memoryview

    def run(self, entry: WalEntry) -> memoryview:
        """The entry's batches, back to back."""
        return self.data[entry.position : entry.position + entry.length]


def encode_wal(header: WalHeader, runs: Sequence[WalRun]) -> list[Buffer]:
    """The object's parts: header and directory, the runs' batches (not copied), checksum.

    Raises ValueError for a cluster id above 64 bytes or an object of 4 GiB and more.
    """
    position = WAL_HEADER_SIZE_BYTES + len(runs) * _ENTRY.size
    head = bytearray(position)
    parts: list[Buffer] = [head]
    at = WAL_HEADER_SIZE_BYTES
    for tp, leader_epoch, manifest_version, base_offset, last_offset, max_timestamp_ms, batches in runs:
        length = 0
        for batch in batches:
            length += memoryview(batch).nbytes
        assert length > 0, f"{tp}: a run of no bytes from {base_offset} on"
        assert 0 <= base_offset <= last_offset, f"{tp}: a run from {base_offset} to {last_offset}"
        if position + length > WAL_OBJECT_SIZE_BYTES_MAX - CRC_SIZE_BYTES:
            raise ValueError(f"a WAL object of more than {WAL_OBJECT_SIZE_BYTES_MAX} bytes")
        topic_id, partition = tp
        _ENTRY.pack_into(
            head,
            at,
            topic_id.bytes,
            partition,
            leader_epoch,
            manifest_version,
            base_offset,
            last_offset,
            max_timestamp_ms,
            position,
            length,
        )
        parts.extend(batches)
        at += _ENTRY.size
        position += length
    _pack_header(head, header, entry_count=len(runs), size_bytes=position + CRC_SIZE_BYTES)
    parts.append(encode_crc(crc_of(parts)))
    return parts


def decode_wal_header(first_bytes: Buffer) -> WalHeader:
    """The header from the first WAL_HEADER_SIZE_BYTES or more of an object. Raises Corrupt, FormatTooNew."""
    return _decode_header(bytes_view(first_bytes))[0]


def directory_end(first_bytes: Buffer) -> int:
    """How many of a data object's first bytes its header and directory are, from the first WAL_HEADER_SIZE_BYTES.
    Raises Corrupt, FormatTooNew.
    """
    return WAL_HEADER_SIZE_BYTES + _decode_header(bytes_view(first_bytes))[1] * _ENTRY.size


def decode_wal_directory(first_bytes: Buffer) -> tuple[WalEntry, ...]:
    """The directory from the first `directory_end` bytes of a data object: for figures only, since the checksum covers
    the whole object.

    Raises Corrupt, FormatTooNew.
    """
    view = bytes_view(first_bytes)
    header, entry_count, _ = _decode_header(view)
    what = _name(header.node_id, header.broker_epoch, header.number)
    if len(view) < WAL_HEADER_SIZE_BYTES + entry_count * _ENTRY.size:
        raise Corrupt(f"{what}: {entry_count} directory entries do not fit into {len(view)} bytes")
    return _decode_directory(view, entry_count, what=what)


def decode_wal(data: Buffer) -> WalObject:
    """A whole data object, every byte checked. Raises Corrupt, FormatTooNew."""
    return _decode_wal(bytes_view(data), is_checked=True)


def decode_wal_unchecked(data: Buffer) -> WalObject:
    """As `decode_wal`, but for the whole object's checksum: for those who find out which part of it is to blame."""
    return _decode_wal(bytes_view(data), is_checked=False)


def _decode_wal(view: memoryview, *, is_checked: bool) -> WalObject:
    header, entry_count, size_bytes = _decode_header(view)
    what = _name(header.node_id, header.broker_epoch, header.number)
    if len(view) != size_bytes:
        raise Corrupt(f"{what}: {len(view)} bytes instead of {size_bytes}")
    body = checked(view, what=what) if is_checked else view[:-CRC_SIZE_BYTES]
    first = WAL_HEADER_SIZE_BYTES + entry_count * _ENTRY.size
    if first > len(body):
        raise Corrupt(f"{what}: {entry_count} directory entries do not fit into it")
    entries = _decode_directory(body, entry_count, what=what)
    position = first
    for entry in entries:
        if entry.position != position or entry.length == 0 or not 0 <= entry.base_offset <= entry.last_offset:
            raise Corrupt(f"{what}: the directory's entry of {entry.tp} at {entry.base_offset} does not fit")
        position += entry.length
    if position != len(body):
        raise Corrupt(f"{what}: the directory covers {position} of {len(body)} bytes")
    return WalObject(header=header, entries=entries, data=view)


def encode_seal(seal: Seal) -> list[Buffer]:
    """The whole object, in one part."""
    cluster_id = encode_cluster_id(seal.cluster_id)
    body = encode_envelope(magic=SEAL_MAGIC, version=FORMAT_VERSION, nonce=seal.nonce) + _SEAL.pack(
        len(cluster_id), cluster_id, seal.node_id, seal.broker_epoch, seal.number
    )
    return [body + encode_crc(crc32c(body))]


def decode_seal(data: Buffer) -> Seal:
    """A whole seal. Raises Corrupt, FormatTooNew."""
    view = bytes_view(data)
    _, nonce = decode_envelope(view, magic=SEAL_MAGIC, version_max=FORMAT_VERSION, what="WAL seal")
    if len(view) != SEAL_SIZE_BYTES:
        raise Corrupt(f"WAL seal: {len(view)} bytes instead of {SEAL_SIZE_BYTES}")
    body = checked(view, what="WAL seal")
    length, cluster_id, node_id, broker_epoch, number = _SEAL.unpack_from(body, ENVELOPE_SIZE_BYTES)
    return Seal(
        cluster_id=decode_cluster_id(length, cluster_id, what="WAL seal"),
        node_id=node_id,
        broker_epoch=broker_epoch,
        number=number,
        nonce=nonce,
    )


def decode_any(data: Buffer) -> WalObject | Seal:
    """Whatever stands whole at a number of a stream. Raises Corrupt, FormatTooNew."""
    return decode_seal(data) if _is_seal(data) else decode_wal(data)


def decode_head(first_bytes: Buffer) -> WalHeader | Seal:
    """Whatever stands at a number of a stream, from its first WAL_HEADER_SIZE_BYTES (a seal is shorter). Raises
    Corrupt, FormatTooNew.
    """
    return decode_seal(first_bytes) if _is_seal(first_bytes) else decode_wal_header(first_bytes)


def _is_seal(data: Buffer) -> bool:
    return bytes(memoryview(data)[:4]) == SEAL_MAGIC


def _pack_header(head: bytearray, header: WalHeader, *, entry_count: int, size_bytes: int) -> None:
    cluster_id = encode_cluster_id(header.cluster_id)
    head[:ENVELOPE_SIZE_BYTES] = encode_envelope(magic=WAL_MAGIC, version=FORMAT_VERSION, nonce=header.nonce)
    _HEADER.pack_into(
        head,
        ENVELOPE_SIZE_BYTES,
        header.key_id,
        len(cluster_id),
        cluster_id,
        header.node_id,
        header.broker_epoch,
        header.number,
        header.durable_below,
        entry_count,
        size_bytes,
    )
    end = WAL_HEADER_SIZE_BYTES - CRC_SIZE_BYTES
    head[end:WAL_HEADER_SIZE_BYTES] = encode_crc(crc32c(memoryview(head)[:end]))


def _decode_header(view: memoryview) -> tuple[WalHeader, int, int]:
    """(header, directory entries, size of the whole object)."""
    what = "WAL object"
    _, nonce = decode_envelope(view, magic=WAL_MAGIC, version_max=FORMAT_VERSION, what=what)
    body = checked(view[:WAL_HEADER_SIZE_BYTES], what=f"{what} header")
    if len(body) != WAL_HEADER_SIZE_BYTES - CRC_SIZE_BYTES:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for its header")
    key_id, length, cluster_id, node_id, broker_epoch, number, durable_below, entry_count, size_bytes = (
        _HEADER.unpack_from(body, ENVELOPE_SIZE_BYTES)
    )
    if durable_below > number:
        raise Corrupt(f"{_name(node_id, broker_epoch, number)}: durable below {durable_below}, above its own number")
    header = WalHeader(
        cluster_id=decode_cluster_id(length, cluster_id, what=what),
        node_id=node_id,
        broker_epoch=broker_epoch,
        number=number,
        nonce=nonce,
        durable_below=durable_below,
        key_id=key_id,
    )
    return header, entry_count, size_bytes


def _decode_directory(body: memoryview, entry_count: int, *, what: str) -> tuple[WalEntry, ...]:
    topics: dict[bytes, TopicId] = {}
    entries = []
    directory = body[WAL_HEADER_SIZE_BYTES : WAL_HEADER_SIZE_BYTES + entry_count * _ENTRY.size]
    for raw_topic, partition, *rest in _ENTRY.iter_unpack(directory):
        topic_id = topics.get(raw_topic)
        if topic_id is None:
            topic_id = topics[raw_topic] = TopicId(UUID(bytes=raw_topic))
        if partition < 0:
            raise Corrupt(f"{what}: partition {partition} in its directory")
        entries.append(WalEntry(TopicPartition(topic_id, partition), *rest))
    return tuple(entries)


def _name(node_id: int, broker_epoch: int, number: int) -> str:
    return f"WAL object {node_id}/{broker_epoch}/{number}"
