"""The records of `__consumer_offsets`, byte for byte as Kafka's tools read them (docs/formats/consumer-offsets.md).

A key starts with its version, which also says what it is a key of: 0 and 1 a committed offset, 2 a classic group. A
value starts with its own version. A missing value is a tombstone. Everything is big-endian.

Written: offset keys 1, offset values 4 (with the topic's id), 3 (where no id is known) or 1 (with a client's own
expiry), group keys 2, group values 3. Read: every version that Kafka has.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import Corrupt, FormatTooNew, InvalidRequest
from bmq.values import TopicId
from bmq_broker.coordinators.groups.fields import (
    FieldReader,
    bytes32,
    compact_string,
    nullable_size_bytes,
    nullable_string,
    string,
)

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_OFFSET_V1: Final = struct.Struct(">hq")
_OFFSET_V3: Final = struct.Struct(">hqi")
_LONG: Final = struct.Struct(">q")
_TOPIC_ID_TAG: Final = 0
_EXPIRE_MS_TAG: Final = 10_000
"""A tag of bmq's own: far above what Kafka may come to use."""
_NIL: Final = UUID(int=0)
_GROUP_FIXED_BYTES: Final = 18
_MEMBER_FIXED_BYTES: Final = 16
"""What a generation and a member in it have beside their texts and runs of bytes."""


class OffsetKey(NamedTuple):
    """Names the offset that a group committed for a partition."""

    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Names a classic group."""

    group_id: str


Key = OffsetKey | GroupKey


class OffsetValue(NamedTuple):
    """A committed offset. -1 and None: not known. `expire_ms` is there only where the client named a retention of its
    own.

    A value with `expire_ms` holds no leader epoch. With a topic id it is Kafka's version 4 with a tagged field of bmq's
    own, which Kafka's readers pass over; without one it is Kafka's version 1, as all were that earlier versions of bmq
    wrote.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1
    topic_id: TopicId | None = None


class MemberValue(NamedTuple):
    """A member of a stored generation. Times in ms."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A stored generation of a classic group; `state_ms` is when it took its state, -1 where the record is too old to
    say.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberValue, ...]


Value = OffsetValue | GroupValue


def encode(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    """Both, None being a tombstone. Raises InvalidRequest where a text or a number does not fit."""
    try:
        return encode_key(key), None if value is None else encode_value(value)
    except (struct.error, UnicodeError, OverflowError) as error:
        what = type(key if value is None else value).__name__
        raise InvalidRequest(
            f"a record of {what} cannot be stored ({error}): use a text or a number that fits"
        ) from error


def encode_key(key: Key) -> bytes:
    """The key's bytes. Strings must fit 32,767 bytes."""
    match key:
        case OffsetKey():
            return b"".join((_SHORT.pack(1), string(key.group_id), string(key.topic), _INT.pack(key.partition)))
        case GroupKey():
            return _SHORT.pack(2) + string(key.group_id)


def encode_value(value: Value) -> bytes:
    """The value's bytes, in the version that its fields ask for."""
    match value:
        case OffsetValue():
            return _encode_offset(value)
        case GroupValue():
            return _encode_group(value)


def group_size_bytes(value: GroupValue) -> int:
    """What `encode_value` makes of it, without making it."""
    texts = (
        nullable_size_bytes(value.protocol_type)
        + nullable_size_bytes(value.protocol)
        + nullable_size_bytes(value.leader)
    )
    return _GROUP_FIXED_BYTES + texts + sum(map(member_size_bytes, value.members))


def member_size_bytes(member: MemberValue) -> int:
    """The part of it that is one member's."""
    texts = sum(map(nullable_size_bytes, (member.member_id, member.instance_id, member.client_id, member.client_host)))
    return _MEMBER_FIXED_BYTES + texts + len(member.subscription) + len(member.assignment)


def decode_key(data: Buffer) -> Key | None:
    """None: a kind of key that this bmq does not know (a newer protocol's): skip the record. Raises Corrupt."""
    reader = FieldReader(data, "a key of __consumer_offsets")
    match reader.int16():
        case 0 | 1:
            key: Key = OffsetKey(reader.string(), reader.string(), reader.int32())
        case 2:
            key = GroupKey(reader.string())
        case version if version > 2:
            return None
        case version:
            raise Corrupt(f"a key of __consumer_offsets has version {version}")
    reader.end()
    return key


def decode_offset(data: Buffer) -> OffsetValue:
    """Raises Corrupt, FormatTooNew."""
    reader = FieldReader(data, "a committed offset")
    version = _version(reader, newest=4)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    topic_id = None
    if version >= 4:
        tags = reader.tags()
        raw = tags.get(_TOPIC_ID_TAG)
        if raw is not None:
            topic_id = _topic_id(raw)
        expires = tags.get(_EXPIRE_MS_TAG)
        if expires is not None:
            if len(expires) != _LONG.size:
                raise Corrupt(f"an offset's expiry of {len(expires)} bytes")
            (expire_ms,) = _LONG.unpack(expires)
    reader.end()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


def decode_group(data: Buffer) -> GroupValue:
    """Raises Corrupt, FormatTooNew."""
    reader = FieldReader(data, "a group's metadata")
    version = _version(reader, newest=4)
    reader.flexible = version >= 4
    protocol_type = reader.text()
    generation = reader.int32()
    protocol = reader.nullable_text()
    leader = reader.nullable_text()
    state_ms = reader.int64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.count(size_bytes_min=12)))
    if version >= 4:
        reader.tags()
    reader.end()
    _check_members(members, leader)
    return GroupValue(protocol_type, generation, protocol, leader, state_ms, members)


def decode_value(key: Key, data: Buffer) -> Value:
    """The value that belongs to a key of this kind. Raises Corrupt, FormatTooNew."""
    match key:
        case OffsetKey():
            return decode_offset(data)
        case GroupKey():
            return decode_group(data)


def _encode_offset(value: OffsetValue) -> bytes:
    if value.expire_ms != -1:
        assert value.leader_epoch == -1
    if value.expire_ms != -1 and value.topic_id is None:
        return b"".join(
            (
                _OFFSET_V1.pack(1, value.offset),
                string(value.metadata),
                _LONG.pack(value.commit_ms),
                _LONG.pack(value.expire_ms),
            )
        )
    if value.topic_id is None:
        return b"".join(
            (_OFFSET_V3.pack(3, value.offset, value.leader_epoch), string(value.metadata), _LONG.pack(value.commit_ms))
        )
    return b"".join(
        (
            _OFFSET_V3.pack(4, value.offset, value.leader_epoch),
            compact_string(value.metadata),
            _LONG.pack(value.commit_ms),
            b"\x01\x00\x10" if value.expire_ms == -1 else b"\x02\x00\x10",
            value.topic_id.bytes,
            b"" if value.expire_ms == -1 else b"\x90\x4e\x08" + _LONG.pack(value.expire_ms),
        )
    )


def _encode_group(value: GroupValue) -> bytes:
    parts = [
        _SHORT.pack(3),
        string(value.protocol_type),
        _INT.pack(value.generation),
        nullable_string(value.protocol),
        nullable_string(value.leader),
        _LONG.pack(value.state_ms),
        _INT.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            string(member.member_id),
            nullable_string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            bytes32(member.subscription),
            bytes32(member.assignment),
        )
    return b"".join(parts)


def _decode_member(reader: FieldReader, version: int) -> MemberValue:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id = reader.text()
    client_host = reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.blob()
    assignment = reader.blob()
    if version >= 4:
        reader.tags()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _check_members(members: tuple[MemberValue, ...], leader: str | None) -> None:
    ids = {member.member_id for member in members}
    instances = [member.instance_id for member in members if member.instance_id is not None]
    if len(ids) != len(members) or len(set(instances)) != len(instances):
        raise Corrupt("a group's metadata: a member or an instance id stands there twice")
    if members and leader not in ids:
        raise Corrupt(f"a group's metadata: its leader {leader!r} is not a member")


def _version(reader: FieldReader, *, newest: int) -> int:
    version = reader.int16()
    if version > newest:
        raise FormatTooNew(f"{reader.what}: value version {version}; this bmq reads up to version {newest}: upgrade it")
    if version < 0:
        raise Corrupt(f"{reader.what}: value version {version}")
    return version


def _topic_id(raw: bytes) -> TopicId | None:
    if len(raw) != 16:
        raise Corrupt(f"a committed offset: a topic id of {len(raw)} bytes")
    topic_id = UUID(bytes=raw)
    return None if topic_id == _NIL else TopicId(topic_id)
