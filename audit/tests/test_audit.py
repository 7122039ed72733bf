"""The audit finds what is wrong with a store, names it, and finds nothing where all is well."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from audit_world import EARLIER, OFFSETS, ORDERS, STREAM, World, flipped, full_world, manifest_of, tp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bmq.metadata.records import RangesCovered, TopicCollected, TopicDeleted
from bmq.ports import ObjectMeta
from bmq.storage.keys import manifest_prefix, segment_prefix, topic_prefix
from bmq.storage.numbered import numbered_key, wal_key
from bmq.values import BrokerEpoch, NodeId, StreamId
from bmq.wire.batches import Record, build_batch, read_header
from bmq.wire.compression import Codec
from bmq_audit.findings import Delete, Kind, Level
from bmq_audit.metadata import NoMetadata
from bmq_audit.unopenable import why_unopenable

WORLD = full_world()
KEYS = sorted(WORLD.objects)


def damaged(key: str, data: bytes | None) -> World:
    """The full world with other bytes under a key, or none."""
    world = World()
    world.store.objects = {**WORLD.objects}
    world.image = WORLD.image
    if data is None:
        del world.store.objects[key]
    else:
        world.store.objects[key] = data
    return world


def found(world: World, level: Level) -> dict[str, Kind]:
    return {finding.key: finding.kind for finding in world.audit().report.findings[level]}


def test_a_whole_store_has_no_faults() -> None:
    report = full_world().audit().report
    assert report.findings[Level.FAULT] == []
    assert report.findings[Level.GARBAGE] == []
    assert report.checked.objects == len(KEYS)
    assert report.checked.partitions == 4
    assert report.checked.wal_objects == 6


def test_a_quick_look_at_a_whole_store_reads_no_segment() -> None:
    world = full_world()
    report = world.audit(quick=True).report
    segments = sum(len(data) for key, data in world.objects.items() if "/segment/" in key or key.startswith("shared/"))
    assert report.findings[Level.FAULT] == []
    assert report.checked.read_bytes <= sum(map(len, world.objects.values())) - segments + 10_000


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KEYS), st.integers(0, 2**32), st.integers(1, 255))
def test_a_flipped_byte_anywhere_is_found_and_its_object_named(key: str, position: int, mask: int) -> None:
    data = WORLD.objects[key]
    report = damaged(key, flipped(data, position % len(data), mask)).audit().report
    faults = {finding.key for finding in report.findings[Level.FAULT]}
    of_no_consequence = {finding.key for finding in report.findings[Level.NOTE] if finding.kind is Kind.KEPT}
    assert key in faults | of_no_consequence


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(KEYS), st.integers(0, 2**32))
@example(wal_key(STREAM, 1), 0)
def test_a_truncated_object_is_found_and_named(key: str, length: int) -> None:
    data = WORLD.objects[key]
    report = damaged(key, data[: length % len(data)]).audit().report
    named = {finding.key for level in (Level.FAULT, Level.NOTE) for finding in report.findings[level]}
    assert key in named


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_object_is_found_unless_bmq_may_have_deleted_it(key: str) -> None:
    report = damaged(key, None).audit().report
    deletable = {
        wal_key(EARLIER, 1),  # the oldest of a stream may have been deleted, where manifests cover it
        wal_key(STREAM, 3),  # above what was durable: it may never have been made
        *(numbered_key("meta/log/", n) for n in range(2, 5)),  # a snapshot covers these
        numbered_key("meta/log/", 7),  # nothing tells that there was a newer one
        *(key for key in KEYS if key.startswith("meta/snapshot/")),  # what is left leads to the same
    }
    if key in deletable and report.count(Level.FAULT) == 0:
        return
    assert report.count(Level.FAULT) > 0, key


def test_a_missing_segment_is_named_with_what_it_held() -> None:
    key = next(key for key in KEYS if f"{segment_prefix(tp(ORDERS, 0))}" in key)
    (fault,) = damaged(key, None).faults()
    assert (fault.kind, fault.key, fault.topic) == (Kind.LOST, key, "orders-0")
    assert "Offsets 0 to 11 (12 records) cannot be read" in fault.means
    (fault,) = damaged(key, None).faults(quick=True)
    assert (fault.kind, fault.key) == (Kind.LOST, key)


def test_a_wal_object_that_was_cut_out_is_named_and_so_is_the_gap() -> None:
    faults = damaged(wal_key(EARLIER, 2), None).faults()
    assert {fault.key for fault in faults} >= {wal_key(EARLIER, 2)}
    gaps = {fault.topic: fault.means for fault in faults if fault.kind is Kind.GAP}
    assert "offsets 60 to 65 are neither in segments nor in the WAL" in gaps["orders-0"]


def test_a_lost_seal_is_named() -> None:
    (fault,) = damaged(wal_key(EARLIER, 3), None).faults()
    assert (fault.kind, fault.key) == (Kind.LOST, wal_key(EARLIER, 3))


def test_a_lost_newest_manifest_version_is_told_by_segments_that_nothing_names() -> None:
    world = World()
    world.store.objects = {**WORLD.objects}
    del world.objects[numbered_key(manifest_prefix(tp(OFFSETS, 0)), 1)]
    (fault,) = [fault for fault in world.faults() if fault.kind is Kind.GAP]
    assert "offsets 0 to 11 are in segments that no version names" in fault.means


def test_a_foreign_object_is_named() -> None:
    world = full_world()
    world.put("backup/notes.txt", [b"hello"])
    world.put(f"{topic_prefix(ORDERS)}0000000000/stray", [b"hello"])
    assert found(world, Level.FAULT) == {
        "backup/notes.txt": Kind.FOREIGN,
        f"{topic_prefix(ORDERS)}0000000000/stray": Kind.FOREIGN,
    }


def test_another_clusters_wal_is_foreign() -> None:
    world = full_world()
    other = StreamId(NodeId(9), BrokerEpoch(4))
    world.wal(other, 0, [(tp(ORDERS, 0), 0, 1)])
    assert found(world, Level.FAULT) == {other.prefix: Kind.FOREIGN}


def test_metadata_that_lost_its_newest_entries_is_told_by_what_is_newer() -> None:
    world = full_world()
    world.manifest(
        tp(ORDERS, 0),
        manifest_of(*(world.segment(tp(ORDERS, 0), base, 4, epoch=7) for base in range(0, 60, 12))),
        epoch=7,
        claim=True,
    )
    report = world.audit().report
    (fault,) = report.findings[Level.FAULT]
    assert fault.kind is Kind.DISAGREES
    assert "the newest metadata entries are missing" in fault.means
    assert report.repairs == [], "nothing is garbage by metadata that is not the newest"


def test_a_damaged_newest_object_of_a_killed_brokers_wal_may_go() -> None:
    world = damaged(wal_key(STREAM, 3), WORLD.objects[wal_key(STREAM, 3)][:-20])
    report = world.audit().report
    (fault,) = report.findings[Level.FAULT]
    assert (fault.key, fault.repair != "") == (wal_key(STREAM, 3), True)
    (delete,) = report.repairs
    assert isinstance(delete, Delete)
    assert (delete.key, delete.loses) == (wal_key(STREAM, 3), "orders-1 offsets 12 to 14")


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_wal_object_that_others_follow_stays(number: int) -> None:
    report = damaged(wal_key(STREAM, number), WORLD.objects[wal_key(STREAM, number)][:-20]).audit().report
    assert report.count(Level.FAULT) > 0
    assert report.repairs == []


def test_what_a_fenced_writer_left_is_garbage_and_what_the_owner_just_wrote_is_not() -> None:
    world = full_world()
    part = tp(ORDERS, 0)
    world.manifest(
        part, manifest_of(*(world.segment(part, base, 4, epoch=2) for base in range(0, 60, 12))), epoch=2, claim=True
    )
    orphan = world.segment(part, 48, 3, epoch=1)
    fresh = world.segment(part, 60, 2, epoch=2)
    report = world.audit().report
    garbage = {finding.key for finding in report.findings[Level.GARBAGE]}
    assert orphan.key in garbage
    assert fresh.key not in garbage
    assert report.count(Level.FAULT) == 0
    assert [finding.kind for finding in report.findings[Level.NOTE] if finding.topic] == [Kind.UNNAMED]


def test_a_segment_of_several_partitions_is_garbage_once_all_of_them_have_moved_on() -> None:
    world = full_world()
    third = tp(ORDERS, 2)
    report = world.audit().report
    shared = next(key for key in world.objects if key.startswith("shared/"))
    assert shared not in {finding.key for level in Level for finding in report.findings[level]}
    world.manifest(third, manifest_of(world.segment(third, 0, 2, epoch=2)), epoch=2, claim=True)
    assert found(world, Level.NOTE)[shared] is Kind.UNNAMED, (
        "the other partition's owner of that epoch may yet name its run"
    )
    world.manifest(tp(OFFSETS, 0), manifest_of(world.segment(tp(OFFSETS, 0), 0, 4, epoch=2)), epoch=2, claim=True)
    assert found(world, Level.GARBAGE)[shared] is Kind.UNREACHABLE


def test_objects_of_a_deleted_topic_are_due_and_later_of_an_unknown_one() -> None:
    world = full_world()
    world.commit(
        *(
            RangesCovered(topic_id=ORDERS, partition=p, ranges=world.image.topics[ORDERS].partitions[p].ranges)
            for p in range(3)
        ),
        TopicDeleted(topic_id=ORDERS, name="orders", last_leader_epoch=2),
        epoch=2,
    )
    assert found(world, Level.NOTE)[topic_prefix(ORDERS)] is Kind.DUE
    assert found(world, Level.FAULT) == {}
    world.commit(TopicCollected(topic_id=ORDERS), epoch=2)
    assert found(world, Level.FAULT) == {topic_prefix(ORDERS): Kind.FOREIGN}
    assert world.audit().report.repairs == [], "what the metadata does not know is never deleted"


def test_a_topic_that_is_deleted_while_the_audit_runs_is_no_fault() -> None:
    world = full_world()
    prefix = topic_prefix(ORDERS)

    class DeletedMeanwhile:
        """The store once the WAL was looked at: the topic is deleted, and half of its objects are gone."""

        def __init__(self) -> None:
            self.done = False

        def __getattr__(self, name: str) -> object:
            return getattr(world.store, name)

        def list(self, listed: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
            if listed == "topics/" and not self.done:
                self.done = True
                ranges = [meta.ranges for meta in world.image.topics[ORDERS].partitions]
                world.commit(
                    *(RangesCovered(topic_id=ORDERS, partition=p, ranges=named) for p, named in enumerate(ranges)),
                    TopicDeleted(topic_id=ORDERS, name="orders", last_leader_epoch=2),
                    epoch=2,
                )
                for key in [key for key in world.objects if key.startswith(prefix)][::2]:
                    del world.objects[key]
            return world.store.list(listed, after=after)

    report = world.audit(store=DeletedMeanwhile()).report
    assert report.moved_on
    assert report.findings[Level.FAULT] == []
    assert report.repairs == []


def test_a_manifest_that_says_otherwise_than_its_segment_is_named() -> None:
    world = full_world()
    part = tp(ORDERS, 1)
    entry = world.segment(part, 0, 2)
    world.manifest(part, manifest_of(msgspec.structs.replace(entry, record_count=5)))
    (fault,) = world.faults()
    assert (fault.kind, fault.key) == (Kind.DISAGREES, entry.key)
    assert "record count 5 instead of 6" in fault.means


def test_a_store_without_metadata_is_none_of_bmqs() -> None:
    world = World()
    world.put("backup/notes.txt", [b"hello"])
    with pytest.raises(NoMetadata):
        world.audit()


def test_metadata_that_cannot_be_read_is_named_and_the_rest_is_looked_at_all_the_same() -> None:
    key = numbered_key("meta/log/", 6)
    faults = damaged(key, None).faults()
    assert faults[0].kind is Kind.LOST
    assert faults[0].key == key


def test_a_snapshot_that_cannot_be_read_is_repaired_by_deleting_it() -> None:
    key = "meta/snapshot/00000000000000000005"
    report = damaged(key, b"bmq?").audit().report
    assert [fault.key for fault in report.findings[Level.FAULT]] == [key]
    assert [repair.key for repair in report.repairs if hasattr(repair, "key")] == [key]


def test_a_batch_with_gaps_or_without_records_is_none_that_cannot_be_opened() -> None:
    """Such are left where others of its records went to lanes."""
    record = Record(2, 1_000, b"k", b"v")
    for codec in Codec:
        for records in ([record], []):
            batch = build_batch(records, codec=codec, first_offset=0, next_offset=4)
            assert why_unopenable(batch, read_header(batch)) is None


@pytest.mark.parametrize(("spoilt", "kept_in"), [(30, "segment"), (3, "shared"), (69, "wal")])
def test_a_batch_that_no_reader_can_open_is_named_with_its_offsets_and_is_no_damage(spoilt: int, kept_in: str) -> None:
    world = full_world(spoilt={spoilt})
    faults = world.faults()
    assert faults, "nothing was found"
    assert {finding.kind for finding in faults} == {Kind.UNOPENABLE}
    assert all(f"offsets {spoilt} to {spoilt + 2} cannot be opened" in finding.means for finding in faults)
    assert any(f"/{kept_in}" in finding.key or finding.key.startswith(kept_in) for finding in faults)
    assert all(finding.topic and not finding.repair for finding in faults)
