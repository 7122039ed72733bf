"""A topic that is deleted and made again while its groups' coordinator is loaded nowhere has none of its predecessor's
offsets.
"""

import asyncio
from uuid import UUID

import pytest
from broker_under_test import Cluster
from group_shard import Topics, coordinator

from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_sim.loop import on_virtual_time

CALLER = Caller(client_id="c", client_host="h")


def committing(offset: int, retention_ms: int) -> Message:
    part = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
    topic = Message(name="orders", topic_id=None, partitions=[part])
    who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return Message(**who, retention_time_ms=retention_ms, topics=[topic])


def fetching() -> Message:
    topic = Message(name="orders", topic_id=None, partition_indexes=[0])
    group = Message(group_id="g", member_id=None, member_epoch=-1, topics=[topic])
    return Message(group_id="g", topics=[topic], groups=[group], require_stable=False)


async def committed(cluster: Cluster) -> str:
    return str(await cluster.broker.owner.group_call(0, 9, fetching(), CALLER))


@pytest.mark.parametrize("retention_ms", [-1, 600_000])
def test_a_topic_made_again_has_none_of_its_predecessors_offsets(retention_ms: int) -> None:
    @on_virtual_time
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (orders,) = await cluster.topic("orders")
        await cluster.topic(CONSUMER_OFFSETS, configs={"cleanup.policy": "compact"})
        await cluster.append(orders, b"old")
        await cluster.broker.owner.group_call(0, 8, committing(1, retention_ms), CALLER)
        assert "'committed_offset': 1" in await committed(cluster)
        await cluster.broker.kill()
        (gone,) = await cluster.controller.controller.delete_topics([orders.topic_id])
        assert gone.error is None
        (again,) = await cluster.topic("orders")
        await cluster.controller.stop()
        await cluster.start("again")
        await cluster.append(again, b"new")
        assert "'committed_offset': -1" in await committed(cluster)
        await cluster.stop()

    main()


@on_virtual_time
async def test_what_is_committed_in_a_topic_made_again_stays_though_a_walk_still_looks_for_its_predecessors() -> None:
    topics = Topics("t")
    async with coordinator(None, topics) as one:
        for number in range(120):  # more groups than one turn looks at
            assert await one.commit(7, group_id=f"g{number}") == ErrorCode.none
        before = topics.ids["t"]
        topics.ids["t"] = TopicId(UUID(int=9))
        one.shard.topics_deleted([(before, "t")])
        assert await one.commit(3, group_id="g119") == ErrorCode.none
        await asyncio.sleep(5)
        assert await one.fetch(group_id="g119") == 3
        assert await one.fetch(group_id="g1") == -1
