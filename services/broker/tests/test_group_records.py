"""The records of `__consumer_offsets`: what Kafka 4.3.1 itself writes, and that no bytes lead to anything but a record
or a typed error.
"""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq.values import TopicId
from bmq_broker.coordinators.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Value,
    decode_group,
    decode_key,
    decode_offset,
    decode_value,
    encode_key,
    encode_value,
)

TOPIC_ID = TopicId(UUID("01234567-89ab-cdef-8edc-ba9876543210"))
OFFSET = OffsetValue(1234567890123, 5, "note ü", 1750000000000, -1, TOPIC_ID)
MEMBERS = (
    MemberValue("c-1", "i-1", "c", "/10.0.0.1", 60_000, 45_000, b"\0\1\2", b"\t\x08"),
    MemberValue("c-2", None, "c", "/10.0.0.2", 300_000, 10_000, b"", b""),
)
GROUP = GroupValue("consumer", 3, "range", "c-1", 1750000000001, MEMBERS)

# Printed by Kafka 4.3.1's own classes (MessageUtil.toVersionPrefixedByteBuffer).
WRITTEN_BY_KAFKA: list[tuple[str, Key | Value]] = [
    ("00010003672d3100066f726465727300000007", OffsetKey("g-1", "orders", 7)),
    ("000200076772c3bc707065", GroupKey("grüppe")),
    ("00030000011f71fb04cb0000000500076e6f746520c3bc000001977420dc00", OFFSET._replace(topic_id=None)),
    ("00040000011f71fb04cb00000005086e6f746520c3bc000001977420dc000100100123456789abcdef8edcba9876543210", OFFSET),
    ("0001000000000000002a000000000000000003e800000000000007d0", OffsetValue(42, commit_ms=1000, expire_ms=2000)),
    (
        "00030008636f6e73756d657200000003000572616e67650003632d31000001977420dc01000000020003632d310003692d3100016300092f31302e302e302e31"
        "0000ea600000afc8000000030001020000000209080003632d32ffff00016300092f31302e302e302e32000493e0000027100000000000000000",
        GROUP,
    ),
    ("00030007636f6e6e65637400000004ffffffff000000000000000700000000", GroupValue("connect", 4, None, None, 7, ())),
]
OLDER_OR_OTHER: list[tuple[str, Value]] = [
    ("00000000011f71fb04cb00076e6f746520c3bc000001977420dc00", OFFSET._replace(leader_epoch=-1, topic_id=None)),
    ("00040000011f71fb04cb00000005086e6f746520c3bc000001977420dc0000", OFFSET._replace(topic_id=None)),
    (
        "00000008636f6e73756d657200000003000572616e67650003632d31000000020003632d3100016300092f31302e302e302e310000afc800000003000102"
        "0000000209080003632d3200016300092f31302e302e302e32000027100000000000000000",
        GROUP._replace(
            state_ms=-1,
            members=(
                MEMBERS[0]._replace(instance_id=None, rebalance_timeout_ms=45_000),
                MEMBERS[1]._replace(rebalance_timeout_ms=10_000),
            ),
        ),
    ),
    (
        "00010008636f6e73756d657200000003000572616e67650003632d31000000020003632d3100016300092f31302e302e302e310000ea600000afc80000000300"
        "01020000000209080003632d3200016300092f31302e302e302e32000493e0000027100000000000000000",
        GROUP._replace(state_ms=-1, members=(MEMBERS[0]._replace(instance_id=None), MEMBERS[1])),
    ),
    (
        "000409636f6e73756d6572000000030672616e676504632d31000001977420dc010304632d3104692d3102630a2f31302e302e302e310000ea600000afc80400"
        "01020309080004632d320002630a2f31302e302e302e32000493e00000271001010000",
        GROUP,
    ),
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int64s = st.integers(-(2**63), 2**63 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
offset_values = st.one_of(
    st.builds(OffsetValue, int64s, int32s, texts, int64s, st.just(-1), st.none() | st.uuids(version=4).map(TopicId)),
    st.builds(
        OffsetValue,
        int64s,
        st.just(-1),
        texts,
        int64s,
        st.integers(0, 2**63 - 1),
        st.none() | st.uuids(version=4).map(TopicId),
    ),
)


@st.composite
def group_values(draw: st.DrawFn) -> GroupValue:
    ids = draw(st.lists(texts, unique=True, max_size=4))
    instances = draw(st.lists(texts, unique=True, min_size=len(ids), max_size=len(ids)))
    members = tuple(
        MemberValue(
            member_id,
            instance if draw(st.booleans()) else None,
            draw(texts),
            draw(texts),
            draw(st.integers(0, 2**31 - 1)),
            draw(int32s),
            draw(st.binary(max_size=20)),
            draw(st.binary(max_size=20)),
        )
        for member_id, instance in zip(ids, instances, strict=True)
    )
    leader = draw(st.sampled_from(ids)) if ids else draw(st.none() | texts)
    return GroupValue(draw(texts), draw(int32s), draw(st.none() | texts), leader, draw(int64s), members)


keys = st.builds(OffsetKey, texts, texts, int32s) | st.builds(GroupKey, texts)


def decode(data: bytes, like: Key | Value) -> Key | Value | None:
    match like:
        case OffsetKey() | GroupKey():
            return decode_key(data)
        case OffsetValue():
            return decode_offset(data)
        case GroupValue():
            return decode_group(data)


def encode(item: Key | Value) -> bytes:
    return encode_key(item) if isinstance(item, OffsetKey | GroupKey) else encode_value(item)


@pytest.mark.parametrize(("written", "item"), WRITTEN_BY_KAFKA)
def test_records_are_the_bytes_that_kafka_writes(written: str, item: Key | Value) -> None:
    assert encode(item).hex() == written
    assert decode(bytes.fromhex(written), item) == item


@pytest.mark.parametrize(("written", "item"), OLDER_OR_OTHER)
def test_versions_that_bmq_does_not_write_are_read(written: str, item: Value) -> None:
    assert decode(bytes.fromhex(written), item) == item


@settings(max_examples=200, deadline=None)
@given(keys)
def test_a_key_reads_back(key: Key) -> None:
    assert decode_key(encode_key(key)) == key


@settings(max_examples=200, deadline=None)
@given(st.one_of(offset_values, group_values()))
def test_a_value_reads_back(value: Value) -> None:
    assert decode(encode_value(value), value) == value


@settings(max_examples=200, deadline=None)
@given(st.one_of(keys, offset_values, group_values()), st.data())
def test_a_truncated_record_is_corrupt(item: Key | Value, data: st.DataObject) -> None:
    whole = encode(item)
    with pytest.raises(Corrupt):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))], item)
    with pytest.raises(Corrupt):
        decode(whole + b"\0", item)


@settings(max_examples=300, deadline=None)
@given(st.one_of(keys, offset_values, group_values()), st.data())
def test_a_changed_record_is_another_record_or_a_typed_error(item: Key | Value, data: st.DataObject) -> None:
    changed = bytearray(encode(item))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FormatError):
        decode(bytes(changed), item)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_typed_error(raw: bytes) -> None:
    for read in (decode_key, decode_offset, decode_group):
        with contextlib.suppress(FormatError):
            read(raw)


def test_a_key_of_a_newer_protocol_is_not_known_and_not_corrupt() -> None:
    assert decode_key(bytes.fromhex("00030005") + b"group") is None


def test_a_value_that_is_too_new_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="committed offset: value version 5"):
        decode_value(OffsetKey("g", "t", 0), b"\0\5" + bytes(40))
    with pytest.raises(FormatTooNew, match="group's metadata: value version 9"):
        decode_value(GroupKey("g"), b"\0\x09" + bytes(40))


def test_an_array_length_allocates_nothing() -> None:
    empty = encode_value(GROUP._replace(members=(), leader=None))
    with pytest.raises(Corrupt, match="an array of 2147483647"):
        decode_group(empty[:-4] + bytes.fromhex("7fffffff"))


def test_a_group_whose_members_contradict_each_other_is_corrupt() -> None:
    twice = GROUP._replace(members=(MEMBERS[0], MEMBERS[0]))
    stranger = GROUP._replace(leader="nobody")
    for value in (twice, stranger):
        with pytest.raises(Corrupt):
            decode_group(encode_value(value))
