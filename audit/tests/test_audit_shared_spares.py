"""What a lost or damaged manifest version or page named in segments of several partitions is found there again:
`--repair` gives none of it up.
"""

import pytest
from audit_world import EARLIER, ORDERS, STREAM, World, full_world, manifest_of, tp
from test_audit_repair import entries, newest, repaired

from bmq.storage.manifest import page_ref
from bmq.storage.numbered import wal_key
from bmq.storage.segment import SegmentEntry
from bmq_audit.findings import Delete, Kind, Level, ManifestRepair

SECOND, THIRD = tp(ORDERS, 1), tp(ORDERS, 2)


def rolled_together() -> tuple[World, str, SegmentEntry]:
    """(the world, the third partition's newest manifest version, what it names last): a run of a segment that the
    second partition names, too.

    The WAL that held it is gone, as it should be.
    """
    world = full_world()
    more, other = world.shared([(THIRD, 6, 2), (SECOND, 0, 2)], epoch=1, stream=EARLIER)
    key = world.manifest(THIRD, manifest_of(*entries(world, THIRD), more))
    world.manifest(SECOND, manifest_of(other))
    del world.objects[wal_key(EARLIER, 1)]
    del world.objects[wal_key(EARLIER, 2)]
    world.wal(EARLIER, 2, [(tp(ORDERS, 0), 60, 2), (SECOND, 6, 1)])
    assert world.faults() == []
    return world, key, more


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_repair_names_again_what_a_lost_newest_version_named_of_a_shared_segment(how: str) -> None:
    world, key, more = rolled_together()
    if how == "lost":
        del world.objects[key]
    else:
        world.objects[key] = world.objects[key][:-1]
    report, done = repaired(world)
    gaps = [fault for fault in report.findings[Level.FAULT] if fault.kind is Kind.GAP]
    assert ["offsets 6 to 11 are in segments that no version names" in fault.means for fault in gaps] == [True]
    assert [repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)] == [()]
    assert done.failed == []
    assert entries(world, THIRD)[-1] == more
    assert newest(world, THIRD).next_offset == 12
    assert world.faults() == []


def test_a_repair_names_again_what_a_lost_page_named_of_a_shared_segment() -> None:
    world, _, more = rolled_together()
    named = entries(world, THIRD)
    last = world.segment(THIRD, 12, 1)
    page = world.page(THIRD, named)
    world.manifest(THIRD, manifest_of(last, pages=(page_ref(page, named),), log_start=0))
    assert world.faults() == []
    del world.objects[page]
    report, _ = repaired(world)
    assert [repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)] == [()]
    assert entries(world, THIRD) == [*named, last]
    assert more in entries(world, THIRD)
    assert world.faults() == []


def test_a_shared_segment_with_a_run_beyond_a_partitions_end_is_no_garbage_whatever_epochs_say() -> None:
    world = full_world()
    for part in (SECOND, THIRD):
        world.manifest(
            part,
            manifest_of(*(entries(world, part) if part == THIRD else [world.segment(part, 0, 4)])),
            epoch=2,
            claim=True,
        )
    (alone,) = world.shared([(THIRD, 9, 1)], epoch=1, stream=EARLIER)
    report = world.audit().report
    assert [fault.kind for fault in report.findings[Level.FAULT] if fault.topic == "orders-2"] == [Kind.GAP]
    assert alone.key not in {repair.key for repair in report.repairs if isinstance(repair, Delete)}
    assert alone.key not in {finding.key for finding in report.findings[Level.GARBAGE]}


def test_a_partition_of_which_nothing_is_left_but_runs_of_shared_segments_is_named_anew() -> None:
    world = full_world()
    parts = [tp(ORDERS, number) for number in (1, 2)]
    for key in [key for key in world.objects if key.startswith("wal/")]:
        del world.objects[key]
    made, _ = world.shared([(SECOND, 0, 3), (THIRD, 6, 1)], epoch=1, stream=EARLIER)
    assert [fault.topic for fault in world.faults() if fault.kind is Kind.GAP] == ["orders-1", "orders-2"]
    report, done = repaired(world)
    assert done.failed == []
    assert {repair.topic: repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)} == {
        "orders-1": (),
        "orders-2": (),
    }
    assert entries(world, SECOND) == [made]
    assert [newest(world, part).next_offset for part in parts] == [9, 9]


def test_what_an_owner_just_rolled_into_a_shared_segment_and_has_in_its_wal_is_no_fault() -> None:
    world = full_world()
    world.shared([(SECOND, 0, 2), (THIRD, 6, 1)], epoch=1, stream=STREAM)
    assert world.faults() == []


def test_a_segment_that_cannot_be_read_and_that_nothing_names_keeps_a_repair_from_giving_up_what_it_may_hold() -> None:
    world = full_world()
    third = world.segment(THIRD, 6, 2, epoch=2)
    world.manifest(THIRD, manifest_of(*entries(world, THIRD), third), epoch=2, claim=True)
    copy = world.segment(THIRD, 6, 2, epoch=1)
    data = bytearray(world.objects[copy.key])
    data[data.index(b"bmqI") + 5] = 9
    world.objects[copy.key] = bytes(data)
    del world.objects[third.key]
    report, _ = repaired(world)
    assert report.repairs == []
    assert {fault.kind for fault in report.findings[Level.FAULT]} == {Kind.LOST, Kind.UNREADABLE}


def test_a_shared_segment_of_a_newer_manifest_of_another_partition_is_no_fault_of_a_copy() -> None:
    world = full_world()
    _, other = world.shared([(THIRD, 9, 2), (SECOND, 0, 4)], epoch=1, stream=STREAM)
    world.manifest(SECOND, manifest_of(other))
    assert world.faults() == []
