"""What an heir takes up by itself though the store fails it at first: nobody has to ask for the partition."""

import asyncio
from uuid import UUID

from broker_under_test import Cluster, reading_alone

from bmq.errors import StoreUnavailable
from bmq.metadata.records import Range
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicPartition
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import Lives, Ranges
from bmq_broker.ownership.passes import RETRY_S
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_a_partition_that_cannot_be_opened_is_adopted_as_soon_as_the_store_gives_what_it_needs() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    await cluster.roll(tp)
    await cluster.append(tp, b"b")
    (entry,) = cluster.broker._ownership.partitions[tp].manifest.entries
    await cluster.kill()
    kept = cluster.store.objects.pop(entry.key)
    await cluster.start("again")
    await asyncio.sleep(3 * RETRY_S)
    assert not cluster.broker._ownership.is_open(tp)
    cluster.store.objects[entry.key] = kept
    await asyncio.sleep(1.1 * RETRY_S)
    assert cluster.broker._ownership.is_open(tp)
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
    await cluster.stop()


@on_virtual_time
async def test_a_stream_that_cannot_be_read_is_read_again() -> None:
    failures = [StoreUnavailable("down"), StoreUnavailable("down")]

    async def fails_twice(ranges: Ranges) -> dict[TopicPartition, Inheritance]:
        if failures:
            raise failures.pop()
        return {}

    lives = Lives(StreamId(NodeId(2), BrokerEpoch(1)))
    reading = reading_alone(fails_twice, lives)
    tp, ranges = TopicPartition(UUID(int=1), 0), (Range(node_id=1, broker_epoch=1, leader_epoch=1, end=10),)
    reading.want(tp, ranges)
    reading.start()
    await asyncio.sleep(2.5 * RETRY_S)
    assert not failures
    assert lives.has_read(tp, ranges)
    await reading.close()
