"""The coordinator's state inside a `bmqG` object: the records that would lead to it (docs/formats/consumer-offsets.md).
Pure.

A msgpack array `[format version, keys, values]`: two arrays of equal length of records as they stand in the log, none
of them a tombstone. The object around it carries the checksum.
"""

from typing import Final

import msgspec

from bmq.errors import Corrupt, FormatTooNew
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.records import (
    GroupKey,
    OffsetKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

FORMAT_VERSION: Final = 1


def encode_state(state: DurableState) -> bytes:
    """May run in a thread where nothing else changes `state` (hand it a copy)."""
    keys, values = [], []
    for group_id, group in state.groups.items():
        keys.append(encode_key(GroupKey(group_id)))
        values.append(encode_value(group))
    for group_id, topic, partition, offset in state.all_offsets():
        keys.append(encode_key(OffsetKey(group_id, topic, partition)))
        values.append(encode_value(offset))
    return msgspec.msgpack.encode([FORMAT_VERSION, keys, values])


def decode_state(data: bytes) -> DurableState:
    """Raises Corrupt, FormatTooNew."""
    try:
        version, *rest = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
        number = msgspec.msgpack.decode(version, type=int)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(f"a snapshot of consumer groups: {error}") from error
    if number > FORMAT_VERSION:
        raise FormatTooNew(
            f"a snapshot of consumer groups: format version {number}; this bmq reads up to version "
            f"{FORMAT_VERSION}: upgrade it"
        )
    try:
        keys, values = (msgspec.msgpack.decode(part, type=list[bytes]) for part in rest)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(f"a snapshot of consumer groups: {error}") from error
    if len(keys) != len(values) or number < 1:
        raise Corrupt(f"a snapshot of consumer groups: version {number}, {len(keys)} keys, {len(values)} values")
    state = DurableState()
    for raw_key, raw_value in zip(keys, values, strict=True):
        key = decode_key(raw_key)
        if key is None:
            raise Corrupt("a snapshot of consumer groups: a key of an unknown kind")
        state.replay(key, decode_value(key, raw_value))
    return state
