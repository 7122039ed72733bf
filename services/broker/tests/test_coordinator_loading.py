"""Thousands of members that ask a coordinator which is being loaded, as after a broker died."""

import asyncio

import pytest
from test_coordinator_log_life import started

from bmq.fairness.crowd import WOKEN_PER_TURN
from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.log import PartitionLog
from bmq_sim.loop import on_virtual_time

HEARTBEAT = 12
MANY = 3_000
CALLER = Caller(client_id="app", client_host="/10.0.0.1", api_version=4)


@on_virtual_time
@pytest.mark.parametrize("loads_after_s", [2.0, 60.0], ids=["it is loaded", "they wait no longer"])
async def test_thousands_that_wait_for_a_coordinator_are_answered_some_in_a_turn(
    loads_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, tp = await started()
    await cluster.kill()
    loads = asyncio.Event()
    real = PartitionLog.load_snapshot

    async def load_snapshot(self: PartitionLog) -> object:
        await loads.wait()
        return await real(self)

    monkeypatch.setattr(PartitionLog, "load_snapshot", load_snapshot)
    await cluster.start("again")
    answered, codes = [0], set[int]()

    async def beat(number: int) -> None:
        request = Message(group_id=f"g{number}", generation_id=1, member_id="m", group_instance_id=None)
        codes.add((await cluster.broker.owner.group_call(tp.partition, HEARTBEAT, request, CALLER))["error_code"])
        if not answered[-1]:
            asyncio.get_running_loop().call_soon(answered.append, 0)  # the next turn
        answered[-1] += 1

    tasks = [asyncio.create_task(beat(number)) for number in range(MANY)]
    await asyncio.sleep(min(loads_after_s, 2.9))
    assert sum(answered) == 0
    if loads_after_s < 3:
        loads.set()
    await asyncio.gather(*tasks)
    assert codes == {ErrorCode.unknown_member_id if loads_after_s < 3 else ErrorCode.coordinator_load_in_progress}
    assert (sum(answered), max(answered) <= WOKEN_PER_TURN + 1) == (MANY, True), answered
    loads.set()
    await cluster.stop()
