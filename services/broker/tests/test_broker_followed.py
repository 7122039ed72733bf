"""Whoever follows a broker's partitions is told of each change, reads at once what is durable, and hears when the
incarnation ends.
"""

import pytest
from broker_under_test import Cluster

from bmq.errors import BmqError, OffsetOutOfRange
from bmq.roles.owner import TailRequest
from bmq.values import Offset, TopicPartition
from bmq_sim.loop import on_virtual_time

MIB = 1 << 20


def at(tp: TopicPartition, offset: int) -> TailRequest:
    return TailRequest(tp=tp, offset=Offset(offset), max_bytes=MIB)


@on_virtual_time
async def test_what_is_durable_is_told_and_read_at_once_for_as_long_as_it_is_watched() -> None:
    cluster = Cluster()
    await cluster.start()
    (orders,) = await cluster.topic("orders")
    (others,) = await cluster.topic("others")
    told: list[TopicPartition] = []
    tails = cluster.broker.owner.tails(told.append)
    again: list[TopicPartition] = []
    second = cluster.broker.owner.tails(again.append)
    await cluster.append(orders, b"first")
    tails.watch(orders)
    second.watch(orders)
    assert tails.read(at(orders, 0)).high_watermark == 1
    appended = cluster.append(orders, b"second")
    assert (tails.read(at(orders, 1)).batches, told) == ((), [])
    await appended
    await cluster.append(others, b"not watched")
    assert set(told) == set(again) == {orders}
    answer = tails.read(at(orders, 1))
    assert (len(answer.batches), answer.high_watermark) == (1, 2)
    assert isinstance(tails.read(at(orders, 7)).error, OffsetOutOfRange)
    assert isinstance(tails.read(at(TopicPartition(orders.topic_id, 99), 0)).error, BmqError)
    tails.leave(orders)
    told.clear()
    again.clear()
    await cluster.append(orders, b"third")
    assert (told, set(again)) == ([], {orders})
    await cluster.stop()


@pytest.mark.parametrize("how", ["kill", "stop"])
@on_virtual_time
async def test_the_end_of_an_incarnation_is_told(how: str) -> None:
    cluster = Cluster()
    await cluster.start()
    (orders,) = await cluster.topic("orders")
    await cluster.append(orders, b"first")
    told: list[TopicPartition] = []
    tails = cluster.broker.owner.tails(told.append)
    tails.watch(orders)
    await (cluster.kill() if how == "kill" else cluster.stop())
    assert orders in told
    with pytest.raises(BmqError):
        tails.read(at(orders, 0))
