"""The WAL's two kinds of objects: what is written is read back, and nothing else is ever read."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq.storage import wal
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Nonce, Offset, TopicId, TopicPartition

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
NONCES = st.binary(min_size=16, max_size=16).map(Nonce)
CLUSTER_IDS = st.text(max_size=16).filter(
    lambda text: len(text.encode("utf-8", "replace")) <= 64 and text.isprintable()
)
TPS = st.builds(TopicPartition, st.uuids().map(TopicId), INT32)


@st.composite
def headers(draw: st.DrawFn) -> wal.WalHeader:
    number = draw(INT64)
    return wal.WalHeader(
        cluster_id=draw(CLUSTER_IDS),
        node_id=NodeId(draw(INT32)),
        broker_epoch=BrokerEpoch(draw(INT64)),
        number=number,
        nonce=draw(NONCES),
        durable_below=draw(st.integers(0, number)),
        key_id=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def runs(draw: st.DrawFn) -> wal.WalRun:
    base = draw(st.integers(0, 2**62))
    return wal.WalRun(
        tp=draw(TPS),
        leader_epoch=LeaderEpoch(draw(INT32)),
        manifest_version=ManifestVersion(draw(INT64)),
        base_offset=Offset(base),
        last_offset=Offset(base + draw(INT32)),
        max_timestamp_ms=draw(st.integers(-1, 2**62)),
        batches=draw(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4)),
    )


SEALS = st.builds(
    wal.Seal,
    cluster_id=CLUSTER_IDS,
    node_id=INT32.map(NodeId),
    broker_epoch=INT64.map(BrokerEpoch),
    number=INT64,
    nonce=NONCES,
)


def joined(header: wal.WalHeader, wal_runs: list[wal.WalRun]) -> bytes:
    return b"".join(bytes(part) for part in wal.encode_wal(header, wal_runs))


@settings(max_examples=150, deadline=None)
@given(headers(), st.lists(runs(), max_size=8))
def test_a_data_object_reads_back_as_it_was_written(header: wal.WalHeader, wal_runs: list[wal.WalRun]) -> None:
    data = joined(header, wal_runs)
    found = wal.decode_any(data)
    assert isinstance(found, wal.WalObject)
    assert found.header == header
    assert wal.decode_head(data[: wal.WAL_HEADER_SIZE_BYTES]) == header
    assert [entry[:6] for entry in found.entries] == [run[:6] for run in wal_runs]
    assert [bytes(found.run(entry)) for entry in found.entries] == [b"".join(run.batches) for run in wal_runs]


@settings(max_examples=100, deadline=None)
@given(SEALS)
def test_a_seal_reads_back_as_it_was_written(seal: wal.Seal) -> None:
    (data,) = wal.encode_seal(seal)
    assert wal.decode_any(data) == seal
    assert wal.decode_head(bytes(data)[: wal.WAL_HEADER_SIZE_BYTES]) == seal


@settings(max_examples=150, deadline=None)
@given(headers(), st.lists(runs(), max_size=3), st.data())
def test_a_truncated_or_longer_data_object_is_refused(
    header: wal.WalHeader, wal_runs: list[wal.WalRun], data: st.DataObject
) -> None:
    whole = joined(header, wal_runs)
    with pytest.raises(Corrupt):
        wal.decode_any(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(Corrupt):
        wal.decode_any(whole + data.draw(st.binary(min_size=1, max_size=9)))
    with pytest.raises(Corrupt):
        wal.decode_head(whole[: data.draw(st.integers(0, wal.WAL_HEADER_SIZE_BYTES - 1))])


@settings(max_examples=200, deadline=None)
@given(headers(), st.lists(runs(), max_size=3), st.data())
def test_a_data_object_with_a_changed_byte_is_refused(
    header: wal.WalHeader, wal_runs: list[wal.WalRun], data: st.DataObject
) -> None:
    changed = bytearray(joined(header, wal_runs))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        wal.decode_any(bytes(changed))
    if at < wal.WAL_HEADER_SIZE_BYTES:
        with pytest.raises(FormatError):
            wal.decode_head(bytes(changed[: wal.WAL_HEADER_SIZE_BYTES]))


@settings(max_examples=100, deadline=None)
@given(SEALS, st.data())
def test_a_seal_that_is_truncated_longer_or_changed_is_refused(seal: wal.Seal, data: st.DataObject) -> None:
    whole = bytes(wal.encode_seal(seal)[0])
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    for wrong in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"\0", bytes(changed)):
        with pytest.raises(FormatError):
            wal.decode_any(wrong)


HEADER = wal.WalHeader(
    cluster_id="c",
    node_id=NodeId(1),
    broker_epoch=BrokerEpoch(2),
    number=3,
    nonce=Nonce(bytes(range(16))),
    durable_below=2,
)


def test_newer_versions_and_unknown_flags_are_refused_by_name() -> None:
    data = joined(HEADER, [])
    seal = bytes(
        wal.encode_seal(
            wal.Seal(cluster_id="c", node_id=NodeId(1), broker_epoch=BrokerEpoch(2), number=3, nonce=HEADER.nonce)
        )[0]
    )
    for whole, name in ((data, "WAL object"), (seal, "WAL seal")):
        with pytest.raises(FormatTooNew, match=f"{name}: format version 2 .* up to version 1"):
            wal.decode_any(whole[:4] + struct.pack(">H", 2) + whole[6:])
        with pytest.raises(FormatTooNew, match=name):
            wal.decode_any(whole[:6] + struct.pack(">H", 1) + whole[8:])


def test_batches_are_handed_over_without_a_copy() -> None:
    batches = [bytearray(b"one"), memoryview(b"two")]
    run = wal.WalRun(
        TopicPartition(TopicId(UUID(int=1)), 0),
        LeaderEpoch(1),
        ManifestVersion(0),
        Offset(0),
        Offset(1),
        max_timestamp_ms=5,
        batches=batches,
    )
    parts = wal.encode_wal(HEADER, [run])
    assert parts[1] is batches[0]
    assert parts[2] is batches[1]


def test_a_cluster_id_of_more_than_64_bytes_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        wal.encode_wal(wal.WalHeader(**{**_fields(HEADER), "cluster_id": "é" * 33}), [])


def test_the_bytes_of_version_1_never_change() -> None:
    run = wal.WalRun(
        TopicPartition(TopicId(UUID(int=7)), 5),
        LeaderEpoch(6),
        ManifestVersion(8),
        Offset(9),
        Offset(10),
        11,
        [b"batch"],
    )
    expected = [
        "626d7157 0001 0000 000102030405060708090a0b0c0d0e0f",  # envelope
        "00000000 01 63" + "00" * 63,  # key id, cluster id
        "00000001 0000000000000002 0000000000000003 0000000000000002",  # node id, broker epoch, number, durable_below
        "00000001 00000000000000d2 e748c50e",  # directory entries, size of the object, CRC32C of the header
        # topic id, partition, leader epoch, manifest version
        "00000000000000000000000000000007 00000005 00000006 0000000000000008",
        # offsets, max timestamp, position, length
        "0000000000000009 000000000000000a 000000000000000b 000000c9 00000005",
        "6261746368 b9feb239",  # batches, CRC32C of everything before
    ]
    assert joined(HEADER, [run]) == bytes.fromhex("".join(expected))


def _fields(header: wal.WalHeader) -> dict[str, object]:
    return {name: getattr(header, name) for name in header.__dataclass_fields__}
