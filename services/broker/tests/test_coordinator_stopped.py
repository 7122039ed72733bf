"""A coordinator whose partition of __consumer_offsets takes no records for a while: what it says, and what becomes of
it.
"""

import asyncio

import pytest
from group_shard import DESCRIBE, coordinator
from test_coordinator_log_life import commit, fetched, started

from bmq.errors import PartitionStopped
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.log import PartitionLog
from bmq_sim.loop import on_virtual_time

RETRIABLE = {
    int(ErrorCode.coordinator_not_available),
    int(ErrorCode.not_coordinator),
    int(ErrorCode.coordinator_load_in_progress),
}


@on_virtual_time
async def test_a_commit_to_a_stopped_coordinator_is_to_be_tried_again_and_what_was_committed_is_told_meanwhile() -> (
    None
):
    cluster, tp = await started()
    assert await commit(cluster, 42) == 0
    partition = await cluster.broker._ownership.open(tp)
    partition.cannot_roll = PartitionStopped("it cannot be rolled")
    for offset in (100, 101, 102):
        assert await commit(cluster, offset) in RETRIABLE
        assert await fetched(cluster) == (0, 42)
    partition.cannot_roll = None
    assert await commit(cluster, 103) == 0
    await cluster.kill()
    await cluster.start("again")
    assert await fetched(cluster) == (0, 103)
    await cluster.stop()


@on_virtual_time
async def test_a_stopped_coordinator_is_not_loaded_anew_for_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, tp = await started()
    assert await commit(cluster, 42) == 0
    partition = await cluster.broker._ownership.open(tp)
    partition.cannot_roll = PartitionStopped("it cannot be rolled")
    loads: list[int] = []
    real = PartitionLog.load_snapshot

    async def load_snapshot(self: PartitionLog) -> object:
        loads.append(1)
        return await real(self)

    monkeypatch.setattr(PartitionLog, "load_snapshot", load_snapshot)
    for offset in range(100, 120):
        assert await commit(cluster, offset) in RETRIABLE
        assert await fetched(cluster) == (0, 42)
    assert len(loads) <= 1
    await cluster.kill()


@on_virtual_time
async def test_members_keep_their_sessions_while_nothing_can_be_stored_and_commit_afterwards() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        assert await one.commit(5, generation_id_or_member_epoch=1, member_id=member_id) == ErrorCode.none
        one.log.is_stopped = True
        for _ in range(20):
            await asyncio.sleep(3)
            assert await one.commit(6, generation_id_or_member_epoch=1, member_id=member_id) in RETRIABLE
            assert await one.beat(member_id, 1) == ErrorCode.none
            assert await one.fetch() == 5
        one.log.is_stopped = False
        assert await one.commit(7, generation_id_or_member_epoch=1, member_id=member_id) == ErrorCode.none
        assert await one.fetch() == 7
        assert one.failures == []


@on_virtual_time
async def test_a_member_that_goes_while_nothing_can_be_stored_is_out_of_its_group_afterwards() -> None:
    async with coordinator() as one:
        await one.single_member()
        one.log.is_stopped = True
        await asyncio.sleep(100)
        one.log.is_stopped = False
        await asyncio.sleep(100)
        assert (await one.ask(DESCRIBE, groups=["g"])).groups[0].group_state == "Empty"
        assert one.failures == []
