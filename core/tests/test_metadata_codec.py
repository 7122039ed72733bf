"""The stored forms of metadata: every value comes back, and no damage is taken for one."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq.metadata.codec import decode_records, decode_snapshot, encode_records, encode_snapshot, snapshot_key
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    ConfigsChanged,
    FeatureLevel,
    FencingBegun,
    LaneDeclared,
    LaneDeleted,
    LaneTurned,
    LeaderAlive,
    LeaderElected,
    NodeCordoned,
    NodeListeners,
    NodeRegistered,
    NodeUnregistered,
    PartitionChange,
    PartitionMoveBegun,
    PartitionsAdded,
    ProducerIdsAllocated,
    Range,
    RangesCovered,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCollected,
    TopicCreated,
    TopicDeleted,
    Whose,
)
from bmq.storage.binary import crc_of, encode_crc
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES
from bmq.values import LANE_TURN_IDS, Nonce

ENTRY_NONCE = Nonce(b"e" * 16)
NONCE = Nonce(b"n" * 16)
TOPIC = UUID(int=5)
LANES = UUID(int=8)
LAST_TURN_ID = LANE_TURN_IDS + 4
EVERYTHING: list[AnyRecord] = [
    ClusterCreated(cluster_id="abc", copy="c0"),
    LeaderElected(controller_epoch=2, node_id=1, host="c", port=7),
    LeaderAlive(heard=(1, 3)),
    NodeRegistered(node_id=1, broker_epoch=1, boot=UUID(int=1), roles=("broker", "proxy"), host="h", port=9, rack="a"),
    StreamSealed(node_id=1, broker_epoch=1, end=9),
    NodeRegistered(
        node_id=1,
        broker_epoch=2,
        boot=UUID(int=2),
        roles=("broker",),
        host="h",
        port=9,
        internal_host="i",
        internal_port=8,
    ),
    NodeRegistered(node_id=2, broker_epoch=1, boot=UUID(int=3), roles=("broker",), host="", port=0),
    NodeRegistered(
        node_id=3,
        broker_epoch=1,
        boot=UUID(int=4),
        roles=("proxy",),
        host="h",
        port=9,
        listeners={"external": ("x", 7)},
    ),
    NodeListeners(node_id=3, broker_epoch=1, listeners={"external": ("y", 8), "lan": ("z", 9)}),
    NodeCordoned(node_id=2, cordoned=True),
    NodeCordoned(node_id=4, cordoned=True),
    NodeCordoned(node_id=4, cordoned=False),
    FencingBegun(node_id=2, broker_epoch=1),
    StreamSealed(node_id=3, broker_epoch=1, end=2),
    StreamDropped(node_id=3, broker_epoch=1),
    TopicCreated(topic_id=TOPIC, name="t", partitions=3, leader_epoch=4, configs={"retention.ms": "5"}, created_ms=77),
    PartitionChange(
        topic_id=TOPIC, partition=1, node_id=1, broker_epoch=2, leader_epoch=6, ranges=(Range(1, 1, 5, 9),)
    ),
    PartitionMoveBegun(topic_id=TOPIC, partition=1, to_node_id=2),
    RangesCovered(topic_id=TOPIC, partition=1, ranges=(), manifest_version=17),
    TopicCreated(topic_id=UUID(int=6), name="gone", partitions=1, leader_epoch=0),
    TopicDeleted(topic_id=UUID(int=6), name="gone", last_leader_epoch=3),
    ConfigsChanged(kind="broker", name="", changes={"num.partitions": "2"}),
    ProducerIdsAllocated(next_producer_id=1000),
    FeatureLevel(name="group.version", level=1),
    NodeRegistered(
        node_id=5, broker_epoch=1, boot=UUID(int=9), roles=("proxy",), host="h", port=9, pool="p", lane="dev"
    ),
    LaneDeclared(
        name="dev",
        number=1,
        created_ms=7,
        ttl_s=60,
        own_brokers=True,
        reads_base=("a*", "b"),
        reads_base_bytes_per_s=2048,
        falls_back=True,
        parent="gone",
    ),
    LaneDeclared(name="gone", number=2, created_ms=8),
    LaneDeleted(name="gone", number=2),
    TopicCreated(topic_id=LANES, name="dev:t", partitions=1, leader_epoch=5),
    PartitionsAdded(topic_id=LANES, partitions=2),
    LaneTurned(
        topic_id=LANES,
        partition=1,
        generation=1,
        whose=Whose.BASE,
        begin=7,
        producer_id=LANE_TURN_IDS + 3,
        base_topic_id=TOPIC,
    ),
    LaneTurned(topic_id=LANES, partition=0, generation=1, whose=Whose.BASE, begin=0, producer_id=LAST_TURN_ID),
    LaneTurned(topic_id=LANES, partition=0, generation=2, whose=Whose.CLOSING, begin=0, producer_id=LAST_TURN_ID),
    LaneTurned(topic_id=LANES, partition=0, generation=3, whose=Whose.LANE, begin=9),
    NodeRegistered(node_id=6, broker_epoch=1, boot=UUID(int=10), roles=("broker",), host="", port=0),
    NodeUnregistered(node_id=6, broker_epoch=1),
    StreamSealed(node_id=6, broker_epoch=1, end=0),
    StreamDropped(node_id=6, broker_epoch=1),
    StreamCollected(node_id=6, broker_epoch=1),
    TopicCreated(topic_id=UUID(int=9), name="collected", partitions=1, leader_epoch=0),
    TopicDeleted(topic_id=UUID(int=9), name="collected", last_leader_epoch=0),
    TopicCollected(topic_id=UUID(int=9)),
]


def snapshot(image: Image) -> bytes:
    return b"".join(encode_snapshot(image, entry_nonce=ENTRY_NONCE, nonce=NONCE))


def test_records_come_back_as_they_were() -> None:
    assert decode_records(encode_records(EVERYTHING), what="entry 1") == EVERYTHING


def test_every_kind_of_record_is_tried_here_and_is_on_the_page_of_the_format() -> None:
    kinds = get_args(AnyRecord)
    assert {type(record) for record in EVERYTHING} == set(kinds)
    page = (Path(__file__).parents[2] / "docs" / "formats" / "metadata.md").read_text()
    assert [kind for kind in kinds if f"\n| `{kind.__struct_config__.tag}` |" not in page] == []


def test_a_snapshot_holds_the_whole_image() -> None:
    image = apply(Image(), 41, EVERYTHING)
    assert decode_snapshot(snapshot(image), what="snapshot") == (image, ENTRY_NONCE)
    assert decode_snapshot(snapshot(Image()), what="snapshot") == (Image(), ENTRY_NONCE)


def test_entries_and_snapshots_of_an_older_bmq_are_read() -> None:
    old = [["leader", 2, 1], ["node", 1, 1, UUID(int=1).bytes, ["broker"], "h", 9, "a"]]
    assert decode_records(msgspec.msgpack.encode([1, old]), what="entry 1") == [
        LeaderElected(controller_epoch=2, node_id=1),
        NodeRegistered(node_id=1, broker_epoch=1, boot=UUID(int=1), roles=("broker",), host="h", port=9, rack="a"),
    ]
    kinds = (
        RangesCovered,
        LeaderAlive,
        NodeListeners,
        NodeCordoned,
        FencingBegun,
        PartitionMoveBegun,
        LaneDeclared,
        LaneDeleted,
    )
    image = apply(Image(), 41, [record for record in EVERYTHING if not isinstance(record, kinds)])
    fields = msgspec.msgpack.decode(snapshot(image)[ENVELOPE_SIZE_BYTES:-4])
    before = fields[:17]
    before[5] = [node[:7] for node in before[5]]
    parts = [snapshot(image)[:ENVELOPE_SIZE_BYTES], msgspec.msgpack.encode(before)]
    data = b"".join([*parts, encode_crc(crc_of(parts))])
    nodes = {
        node_id: replace(node, internal_host="", internal_port=0, pool="", lane="", listeners={})
        for node_id, node in image.nodes.items()
    }
    assert decode_snapshot(data, what="snapshot")[0] == replace(
        image,
        nodes=nodes,
        controller_host="",
        controller_port=0,
        copy="",
        turns={},
        next_turn_id=LANE_TURN_IDS,
        turn_ids={},
    )


def test_a_record_with_an_unknown_tag_is_refused_by_name() -> None:
    payload = msgspec.msgpack.encode([1, [["leader", 1, 1], ["teleport", 4]]])
    with pytest.raises(FormatTooNew, match="teleport"):
        decode_records(payload, what="entry 1")


def test_a_payload_of_a_newer_version_is_refused_even_where_it_looks_alike() -> None:
    for records in ([], [["leader", 1, 1]], [["leader", {}]]):
        with pytest.raises(FormatTooNew, match="version 2"):
            decode_records(msgspec.msgpack.encode([2, records]), what="entry 1")


def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    data = bytearray(snapshot(Image()))
    data[5] = 2
    with pytest.raises(FormatTooNew, match="version 2"):
        decode_snapshot(bytes(data), what="snapshot")


def test_fields_that_a_newer_writer_added_are_passed_over() -> None:
    payload = msgspec.msgpack.encode([1, [["leader", 7, 1, "host", 9, "new field"]]])
    assert decode_records(payload, what="entry 1") == [
        LeaderElected(controller_epoch=7, node_id=1, host="host", port=9)
    ]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_never_records(data: bytes) -> None:
    try:
        decode_records(data, what="entry 1")
    except FormatError:
        return
    assert data[0] == 0x92, "only a pair of version and list is a payload"


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_payload_gives_a_typed_error_or_records(data: st.DataObject) -> None:
    payload = bytearray(encode_records(EVERYTHING))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FormatError):
        decode_records(bytes(payload), what="entry 1")
    with pytest.raises(FormatError):
        decode_records(bytes(encode_records(EVERYTHING)[:at]), what="entry 1")


@settings(max_examples=200)
@given(st.data())
def test_a_snapshot_with_any_byte_changed_or_cut_is_refused(data: st.DataObject) -> None:
    whole = snapshot(apply(Image(), 41, EVERYTHING))
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FormatError):
        decode_snapshot(bytes(damaged), what="snapshot")
    with pytest.raises(Corrupt):
        decode_snapshot(whole[:at], what="snapshot")


def test_snapshot_keys_order_as_their_positions() -> None:
    assert snapshot_key(7) == "meta/snapshot/00000000000000000007"
    assert snapshot_key(99) < snapshot_key(100)


def test_twenty_thousand_partitions_load_in_less_than_a_tenth_of_five_seconds() -> None:
    records: list[AnyRecord] = [
        NodeRegistered(node_id=1, broker_epoch=1, boot=UUID(int=1), roles=("broker",), host="h", port=9)
    ]
    for topic in range(20):
        topic_id = UUID(int=topic + 1)
        records.append(TopicCreated(topic_id=topic_id, name=str(topic), partitions=1000, leader_epoch=0))
        records += [
            PartitionChange(topic_id=topic_id, partition=p, node_id=1, broker_epoch=1, leader_epoch=1)
            for p in range(1000)
        ]
    image = apply(Image(), 1, records)
    data = snapshot(image)
    took_s = []
    for _ in range(3):  # a look of the garbage collector or a neighbour is no property of the format
        began_s = time.thread_time()
        assert decode_snapshot(data, what="snapshot")[0] == image
        took_s.append(time.thread_time() - began_s)
    assert min(took_s) < 0.5
