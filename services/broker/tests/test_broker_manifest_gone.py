"""Somebody deleted manifest versions: no broker gives their offsets a second time unseen, and none deletes what they
named.
"""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import Cluster, repaired
from test_broker_shared_segments import LONG_S, cluster_with_a_shared_segment, roll_together
from test_broker_shared_segments import settings as shared_settings
from test_coordinator_log_life import FEW, commit, started
from tests.waiting import until_async

from bmq.errors import PartitionStopped
from bmq.storage.flatlog import decode_entry
from bmq.storage.keys import SHARED_PREFIX, coordinator_snapshot_prefix, manifest_prefix, segment_key, segment_prefix
from bmq.storage.manifest_format import decode_manifest
from bmq.storage.numbered import number_of, numbered_key
from bmq.values import LeaderEpoch, Nonce, Offset, TopicPartition
from bmq_broker.metrics import PARTITIONS
from bmq_broker.ownership.reports import Reports
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore

FAST = BrokerSettings(retention_interval_ms=60_000, collect_again_ms=300_000)


async def rolled(*, log_start: int = 0) -> tuple[Cluster, TopicPartition]:
    """A stopped cluster with six records in as many segments, below `log_start` deleted ones; nothing of it is in the
    WAL any more.
    """
    cluster = Cluster(settings=FAST)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(6):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    if log_start:
        await cluster.broker.owner.delete_records(tp, Offset(log_start))
        await asyncio.sleep(700)
    await cluster.stop()
    await cluster.start("again")
    await asyncio.sleep(1)
    await cluster.stop()
    return cluster, tp


def tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As brokers did before they told which versions there are, or one that is killed before it does."""
    monkeypatch.setattr(Reports, "manifests", lambda self, *, count_max: ())


@pytest.mark.parametrize("log_start", [0, 2])
@on_virtual_time
async def test_a_partition_whose_manifest_is_gone_does_not_open_as_an_empty_log_and_opens_after_a_repair(
    log_start: int,
) -> None:
    cluster, tp = await rolled(log_start=log_start)
    before = cluster.store.keys(segment_prefix(tp))
    for key in cluster.store.keys(manifest_prefix(tp)):
        cluster.store.apply_delete("somebody", key)
    await cluster.start("third")
    with pytest.raises(PartitionStopped, match="bmq store check --repair"):
        await cluster.broker._ownership.open(tp)
    await asyncio.sleep(2_000)
    await cluster.stop()
    assert cluster.store.keys(segment_prefix(tp)) == before
    assert (await repaired(cluster)).failed == []
    await cluster.start("fourth")
    assert (await cluster.append(tp, b"6")).base_offset == 6
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(log_start, 7)]
    assert cluster.store.keys(segment_prefix(tp)) == before
    await cluster.stop()


@pytest.mark.parametrize(
    ("told", "because"),
    [(True, "manifest version 6 was there and is gone"), (False, "begins at offset 4, and the log ends at 4")],
)
@on_virtual_time
async def test_a_partition_that_lost_its_newest_versions_does_not_open_and_opens_after_a_repair(
    told: bool, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:
        tells_nothing(monkeypatch)
    cluster, tp = await rolled()
    before = cluster.store.keys(segment_prefix(tp))
    for key in cluster.store.keys(manifest_prefix(tp))[4:]:
        cluster.store.apply_delete("somebody", key)
    await cluster.start("third")
    with pytest.raises(PartitionStopped, match=because):
        await cluster.append(tp, b"a second 4")
    assert cluster.broker._ownership.stopped_count == 1
    await asyncio.sleep(2_000)
    await cluster.stop()
    assert cluster.store.keys(segment_prefix(tp)) == before
    assert (await repaired(cluster)).failed == []
    await cluster.start("fourth")
    assert (await cluster.append(tp, b"6")).base_offset == 6
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(7)]
    await cluster.stop()


@on_virtual_time
async def test_a_partition_that_lost_its_newest_versions_opens_by_itself_once_they_are_restored() -> None:
    cluster, tp = await rolled()
    lost = {key: cluster.store.objects[key].data for key in cluster.store.keys(manifest_prefix(tp))[4:]}
    for key in lost:
        cluster.store.apply_delete("somebody", key)
    await cluster.start("third")
    with pytest.raises(PartitionStopped):
        await cluster.append(tp, b"a second 4")
    for key, data in lost.items():
        cluster.store.apply_create("an operator", key, data)
    await asyncio.sleep(120)
    assert (await cluster.append(tp, b"6")).base_offset == 6
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(7)]
    await cluster.stop()


@on_virtual_time
async def test_what_lost_versions_named_stays_though_its_offsets_were_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tells_nothing(monkeypatch)
    cluster, tp = await rolled()
    before = cluster.store.keys(segment_prefix(tp))
    for key in cluster.store.keys(manifest_prefix(tp))[4:]:
        cluster.store.apply_delete("somebody", key)
    hidden = {key: cluster.store.objects[key].data for key in before[4:]}
    for key in hidden:
        cluster.store.apply_delete("a bad disk", key)
    await cluster.start("third")
    for value in (b"a second 4", b"a second 5", b"6"):
        await cluster.append(tp, value)
        await cluster.roll(tp)
    await cluster.kill()
    for key, data in hidden.items():
        cluster.store.apply_create("an operator", key, data)
    await cluster.start("fourth")
    await cluster.append(tp, b"7")
    await cluster.roll(tp)
    await asyncio.sleep(2_000)
    assert set(before[4:]) <= set(cluster.store.keys(segment_prefix(tp)))
    assert (await cluster.append(tp, b"8")).base_offset == 8
    await cluster.stop()


async def met_by_upkeep(monkeypatch: pytest.MonkeyPatch, *segments: int) -> tuple[Cluster, TopicPartition]:
    """The versions that named offsets 4 and 5 are lost with their segments, 4 was given a second time; then these
    segments come back.
    """
    tells_nothing(monkeypatch)
    cluster, tp = await rolled()
    own = cluster.store.keys(segment_prefix(tp))
    hidden = {key: cluster.store.objects[key].data for key in own[4:]}
    for key in (*cluster.store.keys(manifest_prefix(tp))[4:], *hidden):
        cluster.store.apply_delete("somebody", key)
    await cluster.start("third")
    await cluster.append(tp, b"a second 4")
    await cluster.kill()
    await cluster.start("fourth")
    partition = await cluster.broker._ownership.open(tp)
    await cluster.broker._manifests.commit(partition, lambda manifest: manifest)
    for number in segments:
        cluster.store.apply_create("an operator", own[number], hidden[own[number]])
    cluster.broker._upkeep._collect_again_s.clear()
    await asyncio.sleep(400)
    return cluster, tp


@on_virtual_time
async def test_of_several_segments_of_lost_versions_the_one_whose_offsets_were_not_given_again_stops_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, tp = await met_by_upkeep(monkeypatch, 4, 5)
    with pytest.raises(PartitionStopped, match="begins at offset 5, and the log ends at 5"):
        await cluster.append(tp, b"a second 5")
    await cluster.stop()


@on_virtual_time
async def test_a_partition_whose_versions_are_missing_takes_no_records_after_a_failed_roll_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, tp = await met_by_upkeep(monkeypatch, 5)
    partition = cluster.broker.partitions[tp]
    before = partition.tail_start
    prefix = manifest_prefix(tp)
    garbage = numbered_key(prefix, max(number_of(prefix, key) or 0 for key in cluster.store.keys(prefix)) + 1)
    cluster.store.apply_create("somebody", garbage, b"no manifest")
    cluster.broker._roller.start(partition, "test")
    await asyncio.sleep(5)
    assert cluster.broker._roller.stopped_count == 1
    cluster.store.apply_delete("an operator", garbage)
    await asyncio.sleep(30)
    assert cluster.broker._roller.stopped_count == 0
    assert partition.tail_start > before
    with pytest.raises(PartitionStopped, match="begins at offset 5, and the log ends at 5"):
        await cluster.append(tp, b"a second 5")
    await cluster.stop()


@pytest.mark.parametrize("rolled_together", [False, True])
@on_virtual_time
async def test_a_merged_segment_stays_whose_version_was_lost_when_what_it_was_made_from_was_gone(
    rolled_together: bool,
) -> None:
    store = SimStore()
    merging = replace(
        shared_settings(),
        retention_interval_ms=60_000,
        collect_again_ms=300_000,
        merge_count=4,
        merge_below_bytes=10_000,
    )
    cluster = Cluster(store, settings=merging)
    await cluster.start()
    tps = await cluster.topic("orders", partitions=2)
    tp = tps[0]
    for _ in range(4):
        for each in tps:
            await cluster.append(each, b"quiet")
        if rolled_together:
            await roll_together(cluster.broker, tps)
        else:
            await cluster.roll(tp)
    assert len(store.keys(SHARED_PREFIX)) == (4 if rolled_together else 0)
    await cluster.append(tp, b"4" * 20_000)
    await cluster.roll(tp)
    await asyncio.sleep(3_000)  # merged, and what was merged is collected
    before = store.keys(segment_prefix(tp))
    assert len(before) == 2
    assert store.keys(SHARED_PREFIX) == []
    await cluster.stop()
    await cluster.start("again")
    await asyncio.sleep(5)
    await cluster.stop()
    store.apply_delete("somebody", max(store.keys(manifest_prefix(tp))))
    # the old entries come to stand on a page, where no merge meets them
    cluster.settings = replace(merging, manifest_entries_max=4)
    await cluster.start("third")
    for number in range(5, 12):
        assert (await cluster.append(tp, b"x" * 20_000)).base_offset == number
        await cluster.roll(tp)
    await asyncio.sleep(4_000)
    await cluster.stop()
    assert set(before) <= set(store.keys(segment_prefix(tp)))


@on_virtual_time
async def test_a_coordinators_snapshot_stays_whose_version_was_lost_when_the_one_before_was_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tells_nothing(monkeypatch)
    cluster, tp = await started(groups=FEW, retention_interval_ms=60_000, collect_again_ms=300_000)

    async def snapshots() -> int:
        if (count := len(cluster.store.keys(coordinator_snapshot_prefix(tp)))) < 2:
            assert await commit(cluster, 1) == 0
        return count

    await until_async(snapshots, "two snapshots", 3_600, holds=lambda count: count >= 2, every_s=1)
    await asyncio.sleep(2_000)  # the earlier one is collected
    await cluster.kill()
    [snapshot] = cluster.store.keys(coordinator_snapshot_prefix(tp))
    newest = max(cluster.store.keys(manifest_prefix(tp)))
    for key in sorted(cluster.store.keys(manifest_prefix(tp)), reverse=True):
        manifest = decode_manifest(decode_entry(cluster.store.objects[key].data, what="").payload)
        assert manifest.coordinator_snapshot is not None
        if manifest.coordinator_snapshot.key != snapshot:
            break
        cluster.store.apply_delete("somebody", key)
    assert newest not in cluster.store.objects
    await cluster.start("third")
    partition = await cluster.broker._ownership.open(tp)
    await cluster.broker._manifests.commit(partition, lambda manifest: manifest)
    await asyncio.sleep(4_000)
    assert snapshot in cluster.store.keys(coordinator_snapshot_prefix(tp))
    await cluster.stop()


@on_virtual_time
async def test_a_first_segment_whose_owner_was_killed_before_it_named_it_keeps_no_partition_from_opening() -> None:
    cluster = Cluster(settings=FAST)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"0")
    await cluster.append(tp, b"1")
    await cluster.kill()
    unnamed = segment_key(tp, LeaderEpoch(1), Offset(0), Nonce(bytes(16)))
    cluster.store.apply_create("node", unnamed, b"not named")
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(0, b"0"), (1, b"1")]
    await cluster.append(tp, b"2")
    await cluster.roll(tp)
    await asyncio.sleep(700)
    assert unnamed not in cluster.store.objects
    await cluster.stop()


@pytest.mark.parametrize("opened", [True, False])
@on_virtual_time
async def test_a_shared_segment_with_what_lost_versions_named_stays(
    opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tells_nothing(monkeypatch)
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store, partitions=2)
    for tp in tps:
        await cluster.append(tp, b"c")
    await roll_together(cluster.broker, tps)
    shared = store.keys(SHARED_PREFIX)
    await cluster.stop()
    await cluster.start("again")
    await asyncio.sleep(1)
    await cluster.stop()
    for tp in tps:
        store.apply_delete("somebody", max(store.keys(manifest_prefix(tp))))
    await cluster.start("third")
    for tp in tps if opened else []:
        await cluster.broker._manifests.commit(await cluster.broker._ownership.open(tp), lambda manifest: manifest)
    await asyncio.sleep(LONG_S)
    assert store.keys(SHARED_PREFIX) == shared
    for tp in tps[:1] if opened else []:  # one that may name it is enough to keep it, and the others are not asked
        with pytest.raises(PartitionStopped, match="begins at offset 2, and the log ends at 2"):
            await cluster.append(tp, b"a second c")
    assert PARTITIONS.labels("stopped")._value.get() == 1
    await cluster.stop()
    assert (await repaired(cluster)).failed == []
    await cluster.start("fourth")
    for tp in tps:
        assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await cluster.stop()


@pytest.mark.parametrize("left", [0, 1])
@on_virtual_time
async def test_a_partition_with_runs_in_shared_segments_alone_does_not_open_from_less_than_its_manifest_had(
    left: int,
) -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store, partitions=2)
    for tp in tps:
        await cluster.append(tp, b"c")
    await roll_together(cluster.broker, tps)
    await asyncio.sleep(10)
    await cluster.stop()
    await cluster.start("again")
    for tp in tps:
        await cluster.broker._ownership.open(tp)
    await asyncio.sleep(10)
    await cluster.stop()
    for tp in tps:
        for key in store.keys(manifest_prefix(tp))[left:]:
            store.apply_delete("somebody", key)
    await cluster.start("third")
    for tp in tps:
        with pytest.raises(PartitionStopped, match="was there and is gone, with every later one"):
            await cluster.append(tp, b"a second one")
    await cluster.stop()
    assert (await repaired(cluster)).failed == []
    await cluster.start("fourth")
    for tp in tps:
        assert (await cluster.append(tp, b"d")).base_offset == 3
        assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    await cluster.stop()


@on_virtual_time
async def test_a_first_manifest_version_is_told_to_the_controller_and_then_each_sixteenth() -> None:
    cluster = Cluster(settings=FAST)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    told = []
    for number in range(40):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
        await asyncio.sleep(10)
        meta = cluster.controller.metadata.image.partition(tp)
        assert meta is not None
        told.append(meta.manifest_version)
    assert sorted(set(told)) == [1, 17, 33]
    await cluster.kill()
    await cluster.start("again")
    assert cluster.controller.metadata.image.partition(tp).manifest_version == 33  # type: ignore[union-attr]
    assert len(await cluster.read_all(tp)) == 40
    await cluster.stop()
