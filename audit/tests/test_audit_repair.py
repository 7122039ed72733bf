"""What a repair promises it does, and it gives up nothing that can be read."""

import msgspec
import pytest
from audit_world import CLUSTER, EARLIER, OFFSETS, ORDERS, World, copied, flipped, full_world, manifest_of, tp
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_store import run

from bmq.storage.flatlog import decode_entry
from bmq.storage.keys import manifest_prefix, parse_numbered_key, segment_prefix
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import ENTRIES_MAX, Manifest, page_ref
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.numbered import numbered_key, wal_key
from bmq.storage.segment import SegmentEntry
from bmq.storage.snapshot import decode_snapshot
from bmq.values import TopicPartition
from bmq_audit.findings import Delete, Kind, Level, ManifestRepair, Report
from bmq_audit.liveness import is_stopped, sign_of_life
from bmq_audit.repair import Repaired, Repairer

FIRST = tp(ORDERS, 0)
BELOW_PARTITIONS = sorted(key for key in full_world().objects if key.startswith("topics/"))


def repaired(world: World) -> tuple[Report, Repaired]:
    """(what was found before, what was done)"""
    report = world.audit().report
    return report, run(
        Repairer(world.store, rng=world.rng, cluster_id=CLUSTER, no_producers=b"producers", no_groups=b"state").run(
            report.repairs
        )
    )


def newest(world: World, part: TopicPartition) -> Manifest:
    key = max(key for key in world.objects if key.startswith(manifest_prefix(part)))
    return decode_manifest(decode_entry(world.objects[key], what=key).payload)


def entries(world: World, part: TopicPartition) -> list[SegmentEntry]:
    manifest = newest(world, part)
    named = [entry for page in manifest.pages for entry in check_page(page, part, world.objects[page.key])]
    return [*named, *manifest.entries]


def segments(world: World, part: TopicPartition) -> list[str]:
    return sorted(key for key in world.objects if parse_numbered_key(segment_prefix(part), key) is not None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(BELOW_PARTITIONS), st.integers(-1, 2**32)), min_size=1, max_size=5))
def test_after_a_repair_only_those_faults_are_left_for_which_none_was_promised(damage: list[tuple[str, int]]) -> None:
    world = copied(full_world())
    for key, position in damage:
        if position < 0:
            world.objects.pop(key, None)
        elif key in world.objects:
            data = world.objects[key]
            world.objects[key] = flipped(data, position % len(data), 1 << position % 8)
    kept = {part: {entry for entry in entries(world, part) if entry.key in world.objects} for part in _readable(world)}
    before, done = repaired(world)
    assert done.failed == []
    promised = {fault.key for fault in before.findings[Level.FAULT] if fault.repair}
    others = {fault.key for fault in before.findings[Level.FAULT] if not fault.repair}
    after = {fault.key for fault in world.audit().report.findings[Level.FAULT]}
    assert after <= others, (after, promised)
    lost = {fault.key for fault in before.findings[Level.FAULT]}
    for part, named in kept.items():
        assert {entry for entry in named if entry.key not in lost} <= set(entries(world, part))


def _readable(world: World) -> list[TopicPartition]:
    found = []
    for part in (FIRST, tp(OFFSETS, 0)):
        try:
            entries(world, part)
        except Exception:  # noqa: BLE001, S112 - what is damaged there is the test's own doing
            continue
        found.append(part)
    return found


def world_with_an_orphan() -> tuple[World, SegmentEntry]:
    """A segment of the third partition that its owner of epoch 1 made, and was fenced before it could name it."""
    world = full_world()
    return world, world.segment(tp(ORDERS, 2), 0, 2, epoch=1)


def test_a_lost_segment_is_filled_without_records_and_all_others_stay() -> None:
    world = full_world()
    lost = entries(world, FIRST)[3]
    del world.objects[lost.key]
    named = entries(world, FIRST)
    report, _ = repaired(world)
    (repair,) = report.repairs
    assert isinstance(repair, ManifestRepair)
    assert repair.loses == ("offsets 36 to 47 (12 records)",)
    after = entries(world, FIRST)
    (filling,) = set(after) - set(named)
    assert [entry for entry in after if entry != filling] == [entry for entry in named if entry != lost]
    assert (filling.base_offset, filling.last_offset, filling.record_count) == (36, 47, 0)
    assert (newest(world, FIRST).kind, newest(world, FIRST).next_offset) == ("dense", 60)
    assert world.faults() == []


def test_of_a_log_whose_beginning_is_lost_the_log_start_rises_and_there_is_no_gap() -> None:
    world = full_world()
    del world.objects[entries(world, FIRST)[0].key]
    repaired(world)
    manifest = newest(world, FIRST)
    assert (manifest.kind, manifest.log_start) == ("dense", 12)
    assert world.faults() == []


def test_a_log_that_is_lost_whole_goes_on_where_it_ended() -> None:
    world = full_world()
    for key in segments(world, FIRST):
        del world.objects[key]
    repaired(world)
    manifest = newest(world, FIRST)
    assert (manifest.kind, manifest.log_start, manifest.next_offset, manifest.parts) == ("dense", 60, 60, ())
    assert world.faults() == []


def test_a_lost_page_is_written_anew_from_the_segments_it_named() -> None:
    world = full_world()
    named = entries(world, FIRST)
    del world.objects[newest(world, FIRST).pages[0].key]
    report, _ = repaired(world)
    assert [repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)] == [()]
    assert entries(world, FIRST) == named
    assert newest(world, FIRST).kind == "dense"
    assert world.faults() == []


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_lost_manifest_versions_are_made_up_for_by_the_segments_that_are_there(lost: int) -> None:
    world = full_world()
    named = entries(world, FIRST)
    for number in range(4 - lost, 4):
        del world.objects[numbered_key(manifest_prefix(FIRST), number)]
    report, _ = repaired(world)
    assert [repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)] == [()]
    assert entries(world, FIRST) == named
    assert newest(world, FIRST).next_offset == 60
    assert newest(world, FIRST).leader_epochs == (EpochStart(1, 0),)


def test_of_a_segment_that_a_damaged_manifest_alone_named_a_repair_says_that_it_cannot_know() -> None:
    world = full_world()
    damaged = max(key for key in world.objects if key.startswith(manifest_prefix(FIRST)))
    del world.objects[entries(world, FIRST)[-1].key]
    world.objects[damaged] = world.objects[damaged][:-1]
    [repair] = [repair for repair in world.audit().report.repairs if isinstance(repair, ManifestRepair)]
    assert "cannot be read" in repair.unknown


def test_a_repair_that_sees_every_version_leaves_nothing_unknown() -> None:
    world = full_world()
    del world.objects[segments(world, FIRST)[0]]
    assert [repair.unknown for repair in world.audit().report.repairs if isinstance(repair, ManifestRepair)] == [""]


def test_a_merged_segment_stands_in_for_those_that_it_replaced() -> None:
    world = full_world()
    old = entries(world, FIRST)[3:]
    merged = world.segment(FIRST, 36, 8)
    for entry in old:
        del world.objects[entry.key]
    report, _ = repaired(world)
    assert [repair.loses for repair in report.repairs if isinstance(repair, ManifestRepair)] == [()]
    assert entries(world, FIRST)[3:] == [merged]
    assert world.faults() == []


def test_many_segments_are_named_anew_on_pages() -> None:
    world = full_world()
    part = tp(ORDERS, 1)
    for key in [key for key in world.objects if key.startswith("wal/")]:
        del world.objects[key]
    made = [world.segment(part, base, 1, size=1) for base in range(0, 3 * (ENTRIES_MAX + 300), 3)]
    world.manifest(part, manifest_of(made[0]))
    repaired(world)
    assert entries(world, part) == made
    assert len(newest(world, part).pages) == 1


def test_where_the_wal_is_cut_the_partition_goes_on_behind_the_gap() -> None:
    world = full_world()
    world.objects[wal_key(EARLIER, 0)] = world.objects[wal_key(EARLIER, 1)]
    second = tp(ORDERS, 1)
    world.manifest(second, manifest_of(world.segment(second, 0, 1)))
    # Below what was durable: readers go on above it, and what only it held is lost.
    key = wal_key(EARLIER, 1)
    del world.objects[key]
    del world.objects[wal_key(EARLIER, 0)]
    report, _ = repaired(world)
    repairs = {repair.topic: repair for repair in report.repairs if isinstance(repair, ManifestRepair)}
    assert repairs["orders-1"].loses == ("offsets 3 to 5",)
    assert newest(world, second).next_offset == 6
    assert world.faults() == []


def test_a_hole_above_records_in_the_wal_is_not_passed_because_they_would_go_with_it() -> None:
    world = full_world()
    for number in (1, 2):
        del world.objects[wal_key(EARLIER, number)]
    second = tp(ORDERS, 1)
    world.wal(EARLIER, 1, [(second, 0, 2)])
    world.wal(EARLIER, 2, [(FIRST, 60, 2), (tp(ORDERS, 2), 6, 1)])
    report, _ = repaired(world)
    (gap,) = [fault for fault in report.findings[Level.FAULT] if fault.topic == "orders-1"]
    assert "offsets 6 to 8 are neither in segments nor in the WAL" in gap.means
    assert gap.repair == ""
    assert report.repairs == []


def test_a_stream_that_nobody_can_read_is_not_repaired_around() -> None:
    world = full_world()
    world.objects[wal_key(EARLIER, 2)] = world.objects[wal_key(EARLIER, 2)][:-7]
    report, done = repaired(world)
    assert report.count(Level.FAULT) > 0
    assert report.repairs == []
    assert done.partitions == []


def test_what_a_newer_bmq_wrote_is_left_alone() -> None:
    world = full_world()
    key = entries(world, FIRST)[4].key
    data = bytearray(world.objects[key])
    at = data.rindex(b"bmqI")
    data[at + 5] = 9
    world.objects[key] = bytes(data)
    report, _ = repaired(world)
    assert report.count(Level.FAULT) > 0
    assert report.repairs == []


@pytest.mark.parametrize("section", [b"bmqI", b"bmqS"])
def test_what_a_newer_bmq_wrote_into_a_shared_segment_is_left_alone(section: bytes) -> None:
    world = full_world()
    key = next(key for key in world.objects if key.startswith("shared/"))
    data = bytearray(world.objects[key])
    data[(data.index(section) if section == b"bmqI" else data.rindex(section)) + 5] = 9
    world.objects[key] = bytes(data)
    report, _ = repaired(world)
    assert {fault.kind for fault in report.findings[Level.FAULT]} == {Kind.UNREADABLE}
    assert report.repairs == []


def test_a_shared_segment_that_nothing_names_and_a_newer_bmq_wrote_is_not_deleted() -> None:
    world = full_world()
    third = tp(ORDERS, 2)
    world.manifest(third, manifest_of(newest(world, third).entries[0]), epoch=2, claim=True)
    (copy,) = world.shared([(third, 0, 2)], epoch=1, stream=EARLIER)
    data = bytearray(world.objects[copy.key])
    data[data.index(b"bmqI") + 5] = 9
    world.objects[copy.key] = bytes(data)
    assert world.audit().report.repairs == []


def test_garbage_goes_and_what_may_yet_be_named_stays() -> None:
    world = full_world()
    world.manifest(
        FIRST, manifest_of(*(world.segment(FIRST, base, 4, epoch=2) for base in range(0, 60, 12))), epoch=2, claim=True
    )
    fresh = world.segment(FIRST, 60, 2, epoch=2)
    orphans = [key for key in segments(world, FIRST) if key.startswith(f"{segment_prefix(FIRST)}0000000001/")]
    report, done = repaired(world)
    assert {repair.key for repair in report.repairs if isinstance(repair, Delete)} == set(orphans)
    assert done.deleted_objects == len(orphans)
    assert fresh.key in world.objects
    assert world.audit().report.count(Level.GARBAGE) == 0


def test_a_segment_that_takes_the_place_of_a_lost_run_of_a_shared_one_is_not_deleted_by_the_same_repair() -> None:
    world, orphan = world_with_an_orphan()
    shared = next(key for key in world.objects if key.startswith("shared/"))
    world.manifest(tp(ORDERS, 2), manifest_of(newest(world, tp(ORDERS, 2)).entries[0]), epoch=2, claim=True)
    assert [repair.key for repair in world.audit().report.repairs if isinstance(repair, Delete)] == [orphan.key], (
        "it is garbage while nothing is lost"
    )
    del world.objects[shared]
    report, done = repaired(world)
    assert [type(repair) for repair in report.repairs] == [ManifestRepair]
    assert report.count(Level.GARBAGE) == 0
    assert done.failed == []
    assert entries(world, tp(ORDERS, 2)) == [orphan]
    assert orphan.key in world.objects
    assert world.faults() == []


def test_a_shared_segment_that_nothing_names_stays_while_one_that_its_partitions_name_is_lost() -> None:
    world = full_world()
    third = tp(ORDERS, 2)
    shared = next(key for key in world.objects if key.startswith("shared/"))
    world.manifest(third, manifest_of(newest(world, third).entries[0]), epoch=2, claim=True)
    (copy,) = world.shared([(third, 0, 2)], epoch=1, stream=EARLIER)
    assert [repair.key for repair in world.audit().report.repairs if isinstance(repair, Delete)] == [copy.key]
    del world.objects[shared]
    assert [type(repair) for repair in world.audit().report.repairs] == [ManifestRepair]


def test_a_shared_segment_that_nothing_names_stays_while_something_is_wrong_with_a_partition_in_it() -> None:
    world = full_world()
    third = tp(ORDERS, 2)
    own = world.segment(third, 0, 2, epoch=2)
    world.manifest(third, manifest_of(own), epoch=2, claim=True)
    (copy,) = world.shared([(third, 0, 2)], epoch=1, stream=EARLIER)
    assert copy.key in [repair.key for repair in world.audit().report.repairs if isinstance(repair, Delete)]
    del world.objects[own.key]
    assert [type(repair) for repair in world.audit().report.repairs] == [ManifestRepair]


def test_a_quick_repair_deletes_no_segment_because_it_has_not_read_those_that_it_may_have_to_stand_in_for() -> None:
    world, orphan = world_with_an_orphan()
    third = tp(ORDERS, 2)
    own = world.segment(third, 0, 2, epoch=2)
    world.manifest(third, manifest_of(own), epoch=2, claim=True)
    world.objects[own.key] = flipped(world.objects[own.key], world.objects[own.key].index(b"bmqI") + 20, 1)
    quick = world.audit(quick=True).report
    assert quick.repairs == []
    assert {(finding.key, finding.repair) for finding in quick.findings[Level.GARBAGE]} >= {(orphan.key, "")}
    repaired(world)
    assert entries(world, third) == [orphan]
    assert world.faults() == []


def test_what_a_repaired_manifest_names_is_not_deleted_whatever_was_planned() -> None:
    world = full_world()
    del world.objects[entries(world, FIRST)[3].key]
    (repair,) = world.audit().report.repairs
    assert isinstance(repair, ManifestRepair)
    named = [repair.entries[0].key, repair.manifest.pages[0].key]
    repairs = [repair, *(Delete(key=key) for key in [*named, segment_prefix(FIRST)])]
    done = run(
        Repairer(world.store, rng=world.rng, cluster_id=CLUSTER, no_producers=b"producers", no_groups=b"state").run(
            repairs
        )
    )
    assert [what for what, _ in done.failed] == [*named, segment_prefix(FIRST)]
    assert done.deleted_objects == 0
    assert world.faults() == []


def test_without_its_metadata_nothing_of_a_store_is_repaired_or_deleted() -> None:
    world = full_world()
    del world.objects[entries(world, FIRST)[1].key]
    world.segment(tp(ORDERS, 2), 0, 1, epoch=0)
    del world.objects[numbered_key("meta/log/", 6)]
    report, done = repaired(world)
    assert report.repairs == []
    assert report.count(Level.GARBAGE) == 0
    assert done == Repaired()


def test_a_manifest_that_was_written_meanwhile_is_not_repaired() -> None:
    world = full_world()
    del world.objects[entries(world, FIRST)[1].key]
    report = world.audit().report
    world.versions[FIRST] = (3, world.versions[FIRST][1])
    key = world.manifest(FIRST, newest(world, FIRST), epoch=2, claim=True)
    done = run(
        Repairer(world.store, rng=world.rng, cluster_id=CLUSTER, no_producers=b"producers", no_groups=b"state").run(
            report.repairs
        )
    )
    assert [what for what, _ in done.failed] == ["orders-0"]
    assert max(key for key in world.objects if key.startswith(manifest_prefix(FIRST))) == key


def test_a_lost_coordinator_snapshot_is_no_longer_named() -> None:
    world = full_world()
    part = tp(OFFSETS, 0)
    named = newest(world, part).coordinator_snapshot
    assert named is not None
    del world.objects[named.key]
    repaired(world)
    assert newest(world, part).coordinator_snapshot is None
    assert world.faults() == []


@pytest.mark.parametrize("snapshot", ["none", "below", "lost"])
def test_a_coordinator_whose_log_starts_above_its_snapshot_is_a_fault_and_goes_on_from_there_after_a_repair(
    snapshot: str,
) -> None:
    world = full_world()
    part = tp(OFFSETS, 0)
    manifest = newest(world, part)
    named = manifest.coordinator_snapshot
    assert named is not None
    raised = manifest.raise_log_start(named.offset + 1)
    world.manifest(part, msgspec.structs.replace(raised, coordinator_snapshot=None) if snapshot == "none" else raised)
    if snapshot == "lost":
        del world.objects[named.key]
    report, done = repaired(world)
    found = [finding for finding in report.findings[Level.FAULT] if finding.topic == "__consumer_offsets-0"]
    assert [finding.kind for finding in found] == [Kind.LOST if snapshot == "lost" else Kind.GAP]
    assert "does not load" in found[0].means
    assert done.failed == []
    after = newest(world, part)
    assert after.coordinator_snapshot is not None
    assert (after.coordinator_snapshot.offset, after.log_start) == (named.offset + 1, named.offset + 1)
    assert decode_snapshot(world.objects[after.coordinator_snapshot.key]).state == b"state"
    assert world.faults() == []


def test_a_run_of_a_shared_segment_that_is_lost_becomes_a_gap_of_its_partition() -> None:
    world = full_world()
    key = next(key for key in world.objects if key.startswith("shared/"))
    del world.objects[key]
    report, _ = repaired(world)
    assert [repair.topic for repair in report.repairs if isinstance(repair, ManifestRepair)] == ["orders-2"]
    assert entries(world, tp(ORDERS, 2)) == []
    assert world.faults() == []


def test_producers_of_a_log_without_segments_are_forgotten_when_their_snapshot_is_lost() -> None:
    world = full_world()
    manifest = newest(world, FIRST).raise_log_start(60)
    assert manifest.producer_snapshot is not None
    world.manifest(FIRST, manifest)
    del world.objects[manifest.producer_snapshot.key]
    repaired(world)
    assert newest(world, FIRST).producer_snapshot is None
    assert world.faults() == []


def test_a_cluster_that_writes_is_seen_and_one_that_is_stopped_is_known() -> None:
    world = full_world()

    async def with_a_writer() -> str | None:
        import asyncio

        async def write() -> None:
            await asyncio.sleep(4)
            world.commit(epoch=2)

        writing = asyncio.get_running_loop().create_task(write())
        found = await sign_of_life(world.store, image, wait_s=9.0)
        await writing
        return found

    image = world.image
    assert not is_stopped(image)
    assert run(sign_of_life(world.store, image, wait_s=9.0)) is None
    assert run(with_a_writer()) == "metadata entry 8 was written"
    assert run(sign_of_life(world.store, image, wait_s=0.0)) == "metadata entry 8 was written"


def test_pages_stay_where_nothing_in_them_is_lost() -> None:
    world = full_world()
    before = newest(world, FIRST)
    del world.objects[before.entries[1].key]
    repaired(world)
    assert newest(world, FIRST).pages == before.pages
    assert page_ref(before.pages[0].key, entries(world, FIRST)[:3]) == before.pages[0]
    assert msgspec.structs.asdict(newest(world, FIRST))["next_offset"] == 60
