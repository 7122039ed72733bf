"""What a broken assertion ends: the broker, and with an answer for whoever waits; nothing of it is acknowledged."""

import asyncio

import pytest
from broker_under_test import Cluster

from bmq.storage.stream import StreamBroken
from bmq.values import Offset
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import Run
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_an_object_that_becomes_durable_out_of_turn_ends_the_broker_and_leaves_nobody_waiting() -> None:
    bugs: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(str(context["exception"])))
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    real = Partition.durable

    def durable(self: Partition, run: Run) -> None:
        self.high_watermark = Offset(0)  # the bug
        real(self, run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "durable", durable)
        for waits in [cluster.append(tp, value) for value in (b"b", b"c")]:
            with pytest.raises(StreamBroken):
                await waits
    (bug,) = bugs
    assert "offsets from 1 on are durable, and the high watermark is 0" in bug
    assert isinstance(cluster.fenced[0], StreamBroken)
    with pytest.raises(StreamBroken):
        await cluster.append(tp, b"d")
    await cluster.kill()
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await cluster.stop()
