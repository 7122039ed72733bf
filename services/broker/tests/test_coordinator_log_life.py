"""What groups committed outlives every way in which a log's beginning goes; where some of it is missing, the
coordinator says so.
"""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from broker_under_test import Cluster, partition_log, small

from bmq.errors import Corrupt, PolicyViolation
from bmq.metadata.records import ConfigsChanged
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller
from bmq.storage.keys import segment_prefix
from bmq.storage.segment import SEGMENT_HEADER_SIZE_BYTES
from bmq.storage.snapshot import decode_snapshot, encode_snapshot
from bmq.values import Offset, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_controller.machine.decision import Decision
from bmq_sim.loop import on_virtual_time

HOUR_S = 3_600
CALLER = Caller(client_id="app", client_host="/h", api_version=8)
FEW = GroupSettings(snapshot_record_interval=5, offsets_retention_ms=1 << 50)


async def commit(cluster: Cluster, offset: int) -> int:
    part = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
    request = Message(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[Message(name="orders", partitions=[part])],
    )
    reply = await cluster.broker.owner.group_call(0, 8, request, CALLER)
    return int(reply["topics"][0]["partitions"][0]["error_code"])


async def fetched(cluster: Cluster) -> tuple[int, int]:
    """(error, offset)"""
    topics = [Message(name="orders", partition_indexes=[0])]
    request = Message(
        groups=[Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)], require_stable=False
    )
    [group] = (await cluster.broker.owner.group_call(0, 9, request, CALLER))["groups"]
    return int(group["error_code"]), -1 if not group["topics"] else group["topics"][0]["partitions"][0][
        "committed_offset"
    ]


async def started(*, groups: GroupSettings | None = None, **settings: int) -> tuple[Cluster, TopicPartition]:
    cluster = Cluster(settings=small(**settings), groups=groups)
    await cluster.start()
    await cluster.topic("orders")
    [tp] = await cluster.topic(CONSUMER_OFFSETS)
    return cluster, tp


async def forced(cluster: Cluster, tp: TopicPartition, **configs: str) -> None:
    """Stored as an older version did, past every check."""
    changes: dict[str, str | None] = {name.replace("_", "."): value for name, value in configs.items()}
    records = (ConfigsChanged(kind="topic", name=str(tp.topic_id), changes=changes),)
    await cluster.controller.leader.operate("forced", lambda image: Decision(None, records))


@on_virtual_time
async def test_offsets_stay_whatever_policy_was_once_stored_for_their_topic() -> None:
    cluster, tp = await started()
    await forced(
        cluster, tp, cleanup_policy="delete", segment_ms="3600000", retention_ms="3600000", retention_bytes="1"
    )
    assert await commit(cluster, 42) == 0
    await cluster.roll(tp)
    await asyncio.sleep(2 * HOUR_S)
    assert (await cluster.broker._ownership.open(tp)).log_start == 0
    await cluster.stop()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 42)
    await cluster.stop()


@on_virtual_time
async def test_below_a_snapshot_the_log_goes_after_a_while_and_above_it_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_broker.segments.retention.DAY_MS", 600_000)
    cluster, tp = await started(groups=FEW)
    for offset in range(7):
        assert await commit(cluster, offset) == 0
        if offset == 2:
            await cluster.roll(tp)
    await asyncio.sleep(1)
    partition = await cluster.broker._ownership.open(tp)
    named = partition.manifest.coordinator_snapshot
    assert named is not None
    assert 0 < named.offset < partition.high_watermark
    await cluster.roll(tp)
    assert await commit(cluster, 7) == 0
    await cluster.roll(tp)
    await asyncio.sleep(HOUR_S)
    partition = await cluster.broker._ownership.open(tp)
    named = partition.manifest.coordinator_snapshot
    assert named is not None
    assert 0 < partition.log_start <= named.offset
    await cluster.stop()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 7)
    await cluster.stop()


@on_virtual_time
async def test_what_overwrites_the_same_offsets_again_and_again_keeps_little_of_the_log_below_its_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_broker.segments.retention.BELOW_SNAPSHOT_BYTES_MAX", 2_000, raising=False)
    cluster, tp = await started(groups=FEW, merge_count=1_000)
    for offset in range(60):
        assert await commit(cluster, offset) == 0
        await cluster.roll(tp)
    await asyncio.sleep(300)
    manifest = (await cluster.broker._ownership.open(tp)).manifest
    assert manifest.coordinator_snapshot is not None
    below = [entry.length for entry in manifest.entries if entry.last_offset < manifest.coordinator_snapshot.offset]
    assert 2_000 - max(below) < sum(below) <= 2_000
    await cluster.stop()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 59)
    await cluster.stop()


@on_virtual_time
async def test_pages_below_a_snapshot_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_broker.segments.retention.DAY_MS", 600_000)
    cluster, tp = await started(
        groups=GroupSettings(snapshot_record_interval=6, offsets_retention_ms=1 << 50), manifest_entries_max=2
    )
    for offset in range(8):
        assert await commit(cluster, offset) == 0
        await cluster.roll(tp)
    await asyncio.sleep(1)
    partition = await cluster.broker._ownership.open(tp)
    manifest = partition.manifest
    assert manifest.coordinator_snapshot is not None
    assert (
        manifest.pages
        and manifest.pages[0].last_offset < manifest.coordinator_snapshot.offset <= manifest.entries[0].last_offset
    )
    await asyncio.sleep(HOUR_S)
    assert 0 < partition.log_start <= manifest.coordinator_snapshot.offset
    await cluster.stop()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 7)
    await cluster.stop()


@on_virtual_time
async def test_offsets_committed_under_a_clock_that_was_behind_do_not_expire_when_it_is_set_right() -> None:
    cluster, _ = await started(
        groups=GroupSettings(offsets_retention_ms=HOUR_S * 1_000, offsets_check_interval_ms=60_000)
    )
    guard = cluster.broker._clock_guard
    cluster.clock.skew_ms = -1_000 * 24 * HOUR_S * 1_000
    await guard.check()
    assert await commit(cluster, 42) == 0
    cluster.clock.skew_ms = 0
    await guard.check()
    assert guard.trusted
    await asyncio.sleep(HOUR_S / 2)
    assert await fetched(cluster) == (0, 42)
    await asyncio.sleep(HOUR_S)
    assert await fetched(cluster) == (0, -1), "an hour after the commit it does"
    await cluster.stop()


@on_virtual_time
async def test_nobody_deletes_records_that_a_coordinator_loads_from() -> None:
    cluster, tp = await started(groups=FEW)
    assert await commit(cluster, 42) == 0
    with pytest.raises(PolicyViolation, match="a coordinator loads"):
        await cluster.broker.owner.delete_records(tp, Offset(-1))
    for offset in range(6):
        assert await commit(cluster, offset) == 0
    await asyncio.sleep(1)
    named = (await cluster.broker._ownership.open(tp)).manifest.coordinator_snapshot
    assert named is not None
    assert await cluster.broker.owner.delete_records(tp, Offset(named.offset)) == named.offset
    await cluster.stop()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 5)
    await cluster.stop()


@pytest.mark.parametrize("how", ["at the beginning", "in the middle"])
@on_virtual_time
async def test_a_coordinator_whose_log_has_a_hole_does_not_load_and_says_what_is_missing(how: str) -> None:
    cluster, tp = await started()
    for offset in (41, 42, 43):
        assert await commit(cluster, offset) == 0
        await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    manifest = partition.manifest
    if how == "at the beginning":
        holed = msgspec.structs.replace(
            manifest, log_start=manifest.entries[1].base_offset, entries=manifest.entries[1:]
        )
    else:
        holed = msgspec.structs.replace(manifest, entries=(manifest.entries[0], *manifest.entries[2:]))
    partition.manifest = holed
    log = partition_log(cluster, tp)
    with pytest.raises(Corrupt, match="bmq store check --repair") as refused:
        async for _ in log.read_from(Offset(0)):
            pass
    first, last = (0, 0) if how == "at the beginning" else (1, 1)
    assert f"offsets {first} to {last} are in no snapshot" in str(refused.value)
    partition.manifest = manifest
    await cluster.stop()


@on_virtual_time
async def test_groups_of_a_coordinator_that_cannot_load_are_told_to_wait_and_not_that_nothing_was_committed() -> None:
    cluster, tp = await started()
    assert await commit(cluster, 42) == 0
    await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    cluster.broker._coordinators.partition_closed(partition)
    whole = partition.manifest
    partition.manifest = msgspec.structs.replace(whole, log_start=1, entries=())
    error, offset = await fetched(cluster)
    assert error in (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
    assert offset == -1
    partition.manifest = whole
    assert await fetched(cluster) == (0, 42)
    await cluster.stop()


@pytest.mark.parametrize("behind_base_offset", [True, False])
@on_virtual_time
async def test_a_damaged_segment_of_a_coordinator_is_not_loaded_and_no_offset_told_that_nobody_committed(
    behind_base_offset: bool,
) -> None:
    """One bit, in the committed offset, or in a batch's base offset, which no CRC of a batch covers."""
    cluster, tp = await started()
    assert await commit(cluster, 1_000_007) == 0
    await cluster.roll(tp)
    await cluster.stop()
    [key] = cluster.store.keys(segment_prefix(tp))
    whole = bytes(cluster.store.objects[key].data)
    at = whole.index((1000007).to_bytes(8, "big")) + 7 if behind_base_offset else SEGMENT_HEADER_SIZE_BYTES + 7
    damaged = bytearray(whole)
    damaged[at] ^= 0x40
    cluster.store.apply_delete("a bad disk", key)
    cluster.store.apply_create("a bad disk", key, bytes(damaged))
    await cluster.start("again")
    error, offset = await fetched(cluster)
    assert error in (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
    assert offset == -1
    cluster.store.apply_delete("an operator", key)
    cluster.store.apply_create("an operator", key, whole)
    await asyncio.sleep(120)
    assert await fetched(cluster) == (0, 1_000_007)
    await cluster.stop()


@on_virtual_time
async def test_what_is_committed_after_the_end_of_the_log_below_a_snapshot_was_lost_stays() -> None:
    cluster, tp = await started(groups=FEW)
    for offset in range(12):
        assert await commit(cluster, offset) == 0
    await asyncio.sleep(1)
    partition = await cluster.broker._ownership.open(tp)
    named = partition.manifest.coordinator_snapshot
    assert named is not None
    await cluster.kill()
    store = cluster.store.for_node("somebody else")
    for key in [meta.key async for meta in store.list("wal/")][-6:]:
        await store.delete(key)
    await cluster.start("again")
    error, before = await fetched(cluster)
    assert (error, before >= 0) == (0, True), "what the snapshot holds is there"
    again = cluster.broker.partitions[tp].manifest.coordinator_snapshot
    assert again is not None
    assert again.offset < named.offset
    for number, offset in enumerate((1_000, 1_001)):
        assert await commit(cluster, offset) == 0
        await cluster.kill()
        await cluster.start(f"later {number}")
        assert await fetched(cluster) == (0, offset)
    for offset in range(2_000, 2_020):
        assert await commit(cluster, offset) == 0
    await asyncio.sleep(1)
    await cluster.stop()
    await cluster.start("last")
    assert await fetched(cluster) == (0, 2_019)
    await cluster.stop()


@pytest.mark.parametrize("how", ["another partition's", "of another offset"])
@on_virtual_time
async def test_a_snapshot_that_is_not_the_one_that_is_named_is_not_loaded_and_no_group_is_told_its_offsets(
    how: str,
) -> None:
    cluster = Cluster(settings=small(), groups=FEW)
    await cluster.start()
    await cluster.topic("orders")
    (tp, other) = await cluster.topic(CONSUMER_OFFSETS, partitions=2)
    for offset in range(6):
        assert await commit(cluster, offset) == 0
    await asyncio.sleep(1)
    partition = await cluster.broker._ownership.open(tp)
    named = partition.manifest.coordinator_snapshot
    assert named is not None
    stored = cluster.store.objects[named.key]
    snapshot = decode_snapshot(stored.data)
    changed = (
        replace(snapshot, tp=other)
        if how == "another partition's"
        else replace(snapshot, offset=Offset(snapshot.offset - 1))
    )
    cluster.store.objects[named.key] = replace(stored, data=b"".join(bytes(part) for part in encode_snapshot(changed)))
    await cluster.kill()
    await cluster.start("again")
    error, offset = await fetched(cluster)
    assert error in (
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    )
    assert offset == -1
    assert await commit(cluster, 7) != 0
    cluster.store.objects[named.key] = stored
    assert await fetched(cluster) == (0, 5)
    await cluster.stop()
