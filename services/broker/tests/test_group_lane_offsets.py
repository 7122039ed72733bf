"""Offsets of a lane's group: members name topics as the lane's clients do, and offsets stand under the names that the
cluster has.
"""

import asyncio
import struct

import pytest
from group_shard import BEAT, JOIN, OFFSET_DELETE, SYNC, Coordinator, Topics, coordinator

from bmq.naming.lanes import overlay_name, stored_group
from bmq.wire.error_codes import ErrorCode
from bmq_sim.loop import on_virtual_time

GROUP = stored_group("dev", 1, "g")
OWN = overlay_name("dev", "orders")
LEFT = overlay_name("dev", "payments")
TOPICS = Topics(OWN, LEFT, "orders", "payments")


def subscription(topic: str) -> bytes:
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", 0)


async def consumer_of_orders(one: Coordinator, group_id: str = GROUP) -> str:
    """A member alone in its group."""
    asked = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 30_000, "member_id": "", "protocol_type": "consumer"}
    joined = await one.ask(
        JOIN, 3, group_id=group_id, protocols=[{"name": "range", "metadata": subscription("orders")}], **asked
    )
    given = [{"member_id": joined.member_id, "assignment": b"all"}]
    synced = await one.ask(SYNC, 3, group_id=group_id, generation_id=1, member_id=joined.member_id, assignments=given)
    assert synced.error_code == 0
    return str(joined.member_id)


async def commit(one: Coordinator, topic: str, member_id: str, group_id: str = GROUP) -> None:
    assert (
        await one.commit(7, topic=topic, group_id=group_id, generation_id_or_member_epoch=1, member_id=member_id)
        == ErrorCode.none
    )


async def live(one: Coordinator, member_id: str, *, hours: float, group_id: str = GROUP) -> None:
    for _ in range(int(hours * 120)):
        await asyncio.sleep(30)
        beat = await one.ask(BEAT, group_id=group_id, generation_id=1, member_id=member_id)
        assert beat.error_code == 0


@pytest.mark.parametrize("topic", [OWN, "orders"], ids=["the lane's own", "one that it reads of the base"])
def test_an_offset_of_a_topic_that_a_lanes_group_consumes_does_not_expire(topic: str) -> None:
    @on_virtual_time
    async def main() -> None:
        async with coordinator(topics=TOPICS, offsets_retention_ms=3_600_000) as one:
            member_id = await consumer_of_orders(one)
            await commit(one, topic, member_id)
            await live(one, member_id, hours=3)
            assert await one.fetch(topic, group_id=GROUP) == 7

    main()


@on_virtual_time
async def test_an_offset_of_a_topic_that_a_lanes_group_consumes_no_more_expires() -> None:
    async with coordinator(topics=TOPICS, offsets_retention_ms=3_600_000) as one:
        member_id = await consumer_of_orders(one)
        await commit(one, LEFT, member_id)
        await live(one, member_id, hours=3)
        assert await one.fetch(LEFT, group_id=GROUP) == -1


@on_virtual_time
async def test_an_offset_of_a_topic_that_a_lanes_group_consumes_cannot_be_deleted() -> None:
    async with coordinator(topics=TOPICS) as one:
        member_id = await consumer_of_orders(one)
        for topic in (OWN, LEFT):
            await commit(one, topic, member_id)
        asked = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in (OWN, LEFT)]
        reply = await one.ask(OFFSET_DELETE, group_id=GROUP, topics=asked)
        codes = [topic.partitions[0].error_code for topic in reply.topics]
        assert codes == [ErrorCode.group_subscribed_to_topic, ErrorCode.none]
        assert [await one.fetch(topic, group_id=GROUP) for topic in (OWN, LEFT)] == [7, -1]


@on_virtual_time
async def test_a_group_of_the_base_consumes_what_it_names_and_nothing_of_a_lane() -> None:
    async with coordinator(topics=TOPICS, offsets_retention_ms=3_600_000) as one:
        member_id = await consumer_of_orders(one, ":g")  # which no lane's group is called
        for topic in ("orders", OWN):
            await commit(one, topic, member_id, ":g")
        await live(one, member_id, hours=3, group_id=":g")
        assert [await one.fetch(topic, group_id=":g") for topic in ("orders", OWN)] == [7, -1]
