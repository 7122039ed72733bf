"""Partitions that nobody asks for: those that have something in the store are opened for its upkeep, the others stay as
they are.
"""

import asyncio
from collections import Counter

import pytest
from broker_under_test import Cluster, small
from test_broker_manifest_gone import rolled, tells_nothing

from bmq.roles.controller import ConfigChange, ConfigResource
from bmq.storage.keys import manifest_prefix, segment_prefix
from bmq_sim.loop import on_virtual_time

ROUND_S = 60.0


@on_virtual_time
async def test_partitions_that_nothing_was_written_to_stay_unopened_and_cost_one_look() -> None:
    cluster = Cluster(settings=small(shared_look_ms=10**9))
    await cluster.start()
    (written, *idle) = await cluster.topic("orders", partitions=20)
    await cluster.append(written, b"old")
    await cluster.roll(written)
    await cluster.stop()
    for restarted in (False, True):  # under the epoch after the first, and one that was never told of them
        await cluster.start(f"again {restarted}")
        await asyncio.sleep(1.5 * ROUND_S)
        assert cluster.broker._ownership.partitions.keys() == {written}
        before = Counter(cluster.store.requests)
        await asyncio.sleep(10 * ROUND_S)
        assert cluster.store.requests["list"] - before["list"] < len(idle), "nothing is looked at again"
        assert cluster.broker._ownership.unopened() == []
        if not restarted:
            await cluster.kill()
    await cluster.append(idle[3], b"new")
    assert await cluster.read_all(idle[3]) == [(0, b"new")]
    await asyncio.sleep(2 * ROUND_S)
    assert cluster.broker._ownership.partitions.keys() == {written, idle[3]}
    await cluster.controller.controller.delete_topics([written.topic_id])
    await asyncio.sleep(2 * ROUND_S)
    assert cluster.broker._ownership._empty == {}
    await cluster.stop()


@on_virtual_time
async def test_what_grows_old_goes_though_nobody_asks_for_its_partition_after_a_restart() -> None:
    cluster, tp = await rolled()
    await cluster.start("third")
    await asyncio.sleep(2 * ROUND_S)
    assert len(cluster.store.keys(segment_prefix(tp))) == 6
    change = ConfigChange(name="retention.ms", operation="set", value="600000")
    await cluster.controller.controller.alter_configs(ConfigResource(kind="topic", name="orders"), [change])
    await asyncio.sleep(2_000)
    assert cluster.broker._ownership.partitions[tp].log_start == 6
    assert len(cluster.store.keys(segment_prefix(tp))) == 1, "the newest, for what it says of producers"
    await cluster.stop()


@on_virtual_time
async def test_a_partition_whose_manifests_somebody_deleted_is_told_though_nobody_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tells_nothing(monkeypatch)
    cluster, tp = await rolled()
    for key in cluster.store.keys(manifest_prefix(tp)):
        cluster.store.apply_delete("somebody", key)
    await cluster.start("third")
    await asyncio.sleep(2 * ROUND_S)
    assert cluster.broker._ownership.stopped_count == 1
    await cluster.stop()
