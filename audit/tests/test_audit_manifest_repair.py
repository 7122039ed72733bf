"""Which segments that nothing names a repaired manifest takes: those that bring back the most, and never one that loses
what is whole.
"""

from itertools import combinations

import pytest
from audit_world import EARLIER, ORDERS, World, flipped, full_world, manifest_of, tp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_audit_repair import FIRST, entries, newest, repaired, segments

from bmq.storage.keys import manifest_prefix
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import Manifest
from bmq.storage.numbered import numbered_key
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_audit.findings import Kind, Level, ManifestRepair
from bmq_audit.manifest_repair import Named, Spare, repaired_manifest

THIRD = tp(ORDERS, 2)


def world_after_retention() -> tuple[World, list[SegmentEntry]]:
    """(a world in which retention took what is below 24 of the first partition, what it names)"""
    world = full_world()
    before = entries(world, FIRST)
    kept = [entry for entry in before if entry.last_offset >= 24]
    world.manifest(FIRST, manifest_of(*kept))
    for key in [
        *(entry.key for entry in before if entry not in kept),
        *(key for key in world.objects if "/manifest-page/" in key),
    ]:
        del world.objects[key]
    assert world.faults() == []
    return world, kept


def without_manifest(world: World, part: TopicPartition, how: str) -> None:
    for key in [key for key in world.objects if key.startswith(manifest_prefix(part))]:
        if how == "deleted":
            del world.objects[key]
        else:
            world.objects[key] = world.objects[key][:-1]


@pytest.mark.parametrize("wal", ["there", "gone"])
@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_log_that_began_above_0_begins_there_again_when_every_version_of_its_manifest_is_gone(
    how: str, wal: str
) -> None:
    world, named = world_after_retention()
    for key in [key for key in world.objects if key.startswith("wal/") and wal == "gone"]:
        del world.objects[key]
    without_manifest(world, FIRST, how)
    report, done = repaired(world)
    (repair,) = [each for each in report.repairs if isinstance(each, ManifestRepair) and each.topic == "orders-0"]
    assert repair.loses == ()
    assert "begins at the first offset that is left, 24" in repair.unknown
    assert done.failed == []
    assert entries(world, FIRST) == named
    assert (newest(world, FIRST).log_start, newest(world, FIRST).next_offset) == (24, 60)
    repaired(world)
    assert segments(world, FIRST) == [entry.key for entry in named], "a second repair deletes none of them"


def test_a_log_of_which_the_manifest_and_what_is_below_the_wal_are_gone_begins_with_the_wal() -> None:
    world, named = world_after_retention()
    for entry in named[:-1]:
        del world.objects[entry.key]
    world.wal(EARLIER, 0, [(FIRST, 45, 3)])
    without_manifest(world, FIRST, "deleted")
    _, done = repaired(world)
    assert done.failed == []
    assert newest(world, FIRST).log_start == 45
    assert [fault for fault in world.faults() if fault.topic == "orders-0" and fault.kind is not Kind.LOST] == []


def test_a_repair_that_wrote_its_version_above_missing_ones_says_that_it_did() -> None:
    world = full_world()
    named = entries(world, FIRST)
    for number in (2, 3):
        del world.objects[numbered_key(manifest_prefix(FIRST), number)]
    _, done = repaired(world)
    assert (done.failed, done.partitions) == ([], ["orders-0"])
    assert entries(world, FIRST) == named
    assert {fault.repair for fault in world.faults()} == {""}, "what is left is of no consequence"


def test_a_merged_segment_stands_in_for_those_of_which_only_some_are_lost() -> None:
    world = full_world()
    before = entries(world, FIRST)
    merged = world.segment(FIRST, 24, 8)
    del world.objects[before[3].key]
    report, _ = repaired(world)
    assert [each.loses for each in report.repairs if isinstance(each, ManifestRepair)] == [()]
    assert entries(world, FIRST) == [before[0], before[1], merged, before[4]]
    assert world.faults() == []


def test_a_merged_segment_that_reaches_beyond_the_end_of_an_older_version_stands_in_for_all_of_it() -> None:
    world = full_world()
    first = entries(world, THIRD)
    second = world.segment(THIRD, 6, 1)
    world.manifest(THIRD, manifest_of(*first, second))
    merged = world.segment(THIRD, 0, 5)
    del world.objects[numbered_key(manifest_prefix(THIRD), 2)]
    del world.objects[second.key]
    for key in [key for key in world.objects if key.startswith("shared/")]:
        world.objects[key] = flipped(world.objects[key], world.objects[key].index(b"bmqI") + 20, 1)
    repaired(world)
    assert entries(world, THIRD) == [merged]
    assert newest(world, THIRD).next_offset == 15


def test_what_is_whole_above_a_hole_between_the_manifest_and_nothing_is_named_and_only_the_hole_is_given_up() -> None:
    world = full_world()
    first = entries(world, THIRD)
    for key in [key for key in world.objects if key.startswith("wal/")]:
        del world.objects[key]
    above = world.segment(THIRD, 12, 2)
    report, _ = repaired(world)
    assert {each.topic: each.loses for each in report.repairs if isinstance(each, ManifestRepair)} == {
        "orders-2": ("offsets 6 to 11",)
    }
    assert [entry for entry in entries(world, THIRD) if entry.record_count] == [*first, above]
    assert newest(world, THIRD).next_offset == 18


def test_a_segment_beyond_the_end_that_cannot_be_taken_is_a_fault_all_the_same() -> None:
    world = full_world()
    above = world.segment(THIRD, 12, 2)
    world.objects[above.key] = world.objects[above.key][:-3]
    (fault,) = [fault for fault in world.audit().report.findings[Level.FAULT] if fault.topic == "orders-2"]
    assert (fault.kind, fault.key, fault.repair) == (Kind.GAP, above.key, "")


def entry_of(base: int, end: int, key: str) -> SegmentEntry:
    return SegmentEntry(
        store_id=0, key=key, position=0, length=1, leader_epoch=1, base_offset=base, last_offset=end - 1,
        record_count=end - base, min_timestamp_ms=0, max_timestamp_ms=0,
        index_position=0, index_length=0, snapshot_position=0, snapshot_length=0, aborted_first_offset=-1,
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=6),
)
def test_of_all_ways_to_choose_spares_one_is_taken_that_brings_back_the_most(
    lengths: list[int], lost: set[int], spares: list[tuple[int, int]]
) -> None:
    named = [entry_of(sum(lengths[:n]), sum(lengths[: n + 1]), f"named {n}") for n in range(len(lengths))]
    end = sum(lengths)
    gone = {entry for n, entry in enumerate(named) if n in lost}
    given_spares = [
        Spare(entry_of(base, base + count, f"spare {n}"), ())
        for n, (base, count) in enumerate(spares)
        if base + count <= end
    ]
    manifest = Manifest(entries=tuple(named), next_offset=end, last_stable_offset=end)
    done = repaired_manifest(
        Named(manifest=manifest, pages=()),
        lost=gone,
        spares=given_spares,
        forward_to=end,
        snapshot=None,
        producers_usable=True,
    )
    whole = {
        offset for entry in named if entry not in gone for offset in range(entry.base_offset, entry.last_offset + 1)
    }
    kept = [offset for entry in done.entries for offset in range(entry.base_offset, entry.last_offset + 1)]
    assert len(kept) == len(set(kept)), "no offset twice"
    assert whole <= set(kept), "nothing whole is lost"
    assert len(kept) == max(len(offsets) for offsets in possible(named, gone, given_spares))


def possible(named: list[SegmentEntry], gone: set[SegmentEntry], spares: list[Spare]) -> list[set[int]]:
    """Which offsets there are with each choice of spares that overlap neither each other nor a part of what is
    whole.
    """
    found = []
    whole = [set(range(entry.base_offset, entry.last_offset + 1)) for entry in named if entry not in gone]
    made = [set(range(spare.entry.base_offset, spare.entry.last_offset + 1)) for spare in spares]
    for count in range(len(made) + 1):
        for chosen in combinations(made, count):
            offsets: set[int] = set().union(*chosen)
            apart = len(offsets) == sum(map(len, chosen))
            if apart and all(entry.isdisjoint(each) or entry <= each for entry in whole for each in chosen):
                found.append(offsets.union(*whole))
    return found


def test_a_segment_whose_offsets_were_given_a_second_time_is_not_deleted() -> None:
    world = full_world()
    before = world.segment(THIRD, 6, 2, epoch=1)
    again = world.segment(THIRD, 6, 3, epoch=2)
    manifest = manifest_of(*entries(world, THIRD), again, leader_epochs=(EpochStart(1, 0), EpochStart(2, 6)))
    world.manifest(THIRD, manifest, epoch=2, claim=True)
    assert world.faults() == []
    _, done = repaired(world)
    assert done.deleted_objects == 0
    assert before.key in world.objects
