"""Lag from memory, against what is known of the records."""

import asyncio

from broker_under_test import Cluster

from bmq_broker.lag import lag_seconds
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_lag_in_seconds_is_the_age_of_the_first_unread_record() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    written_ms: list[int] = []
    for number in range(12):
        written_ms.append(cluster.clock.now_ms())
        await cluster.append(tp, b"%d" % number)
        if number == 5:
            await cluster.roll(tp)
        await asyncio.sleep(10)
    partition = await cluster.broker._ownership.open(tp)
    now_ms = cluster.clock.now_ms()
    for offset, time_ms in enumerate(written_ms):
        assert abs(lag_seconds(partition, offset, now_ms=now_ms) - (now_ms - time_ms) / 1000) < 10.1
    assert lag_seconds(partition, 12, now_ms=now_ms) == 0
    await cluster.stop()
