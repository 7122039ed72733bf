"""The snapshot of a coordinator's state (bmqG): the effect of every record of its log below an offset. The state itself
is opaque here.
"""

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import Corrupt
from bmq.storage.binary import checked, crc_of, encode_crc
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.values import Nonce, Offset, TopicId, TopicPartition

SNAPSHOT_MAGIC: Final = b"bmqG"
FORMAT_VERSION: Final = 1

# topic id, partition, offset, length of the state
_HEADER: Final = struct.Struct(">16siqQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSnapshot:
    """`state` holds the effect of every record of the partition below `offset`."""

    nonce: Nonce
    tp: TopicPartition
    offset: Offset
    state: Buffer


def encode_snapshot(snapshot: CoordinatorSnapshot) -> list[Buffer]:
    """The object's parts; the state is not copied."""
    tp = snapshot.tp
    head = encode_envelope(magic=SNAPSHOT_MAGIC, version=FORMAT_VERSION, nonce=snapshot.nonce) + _HEADER.pack(
        tp.topic_id.bytes, tp.partition, snapshot.offset, memoryview(snapshot.state).nbytes
    )
    return [head, snapshot.state, encode_crc(crc_of([head, snapshot.state]))]


def decode_snapshot(data: Buffer) -> CoordinatorSnapshot:
    """A whole object. Raises Corrupt, FormatTooNew."""
    what = "coordinator snapshot"
    _, nonce = decode_envelope(data, magic=SNAPSHOT_MAGIC, version_max=FORMAT_VERSION, what=what)
    body = checked(data, what=what)
    start = ENVELOPE_SIZE_BYTES + _HEADER.size
    if len(body) < start:
        raise Corrupt(f"{what}: {len(body)} bytes are too few for its header")
    topic_id, partition, offset, length = _HEADER.unpack_from(body, ENVELOPE_SIZE_BYTES)
    if len(body) != start + length or partition < 0 or offset < 0:
        raise Corrupt(f"{what}: {len(body) - start} bytes of state instead of {length}")
    tp = TopicPartition(TopicId(UUID(bytes=topic_id)), partition)
    return CoordinatorSnapshot(nonce=nonce, tp=tp, offset=Offset(offset), state=body[start:])
