"""Which groups with members consume a topic, in the base and in lanes, as their coordinator says."""

from typing import Any

from group_shard import JOIN, LEAVE, SYNC, Coordinator, Topics, coordinator
from test_group_lane_offsets import GROUP, OWN, commit, consumer_of_orders

from bmq.naming.lanes import stored_group
from bmq.roles.owner import TOPIC_CONSUMERS, Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.handlers.group_calls import group_call_failed, handle_group_call
from bmq_sim.loop import on_virtual_time

TOPICS = Topics(OWN, "orders", "payments")
LANES = [{"name": "", "number": 0}, {"name": "dev", "number": 1}]


async def consumers(one: Coordinator, topic: str = "orders", *, named_max: int = 10, lanes: Any = LANES) -> Any:
    """{lane: (named groups, how many there are)}."""
    request = Message(topic=topic, lanes=lanes, named_max=named_max)
    answer = await handle_group_call(one.shard, TOPIC_CONSUMERS, request, Caller(client_id="", client_host=""))
    assert answer["error_code"] == ErrorCode.none
    return {lane["lane"]: (sorted(lane["groups"]), lane["count"]) for lane in answer["lanes"]}


@on_virtual_time
async def test_groups_with_members_are_told_apart_by_the_lane_that_they_are_in() -> None:
    async with coordinator(topics=TOPICS) as one:
        await consumer_of_orders(one, "shipping")
        await consumer_of_orders(one, GROUP)
        await consumer_of_orders(one, stored_group("qa", 2, "g"))
        await consumer_of_orders(one, stored_group("dev", 7, "of a lane that is gone"))
        assert await consumers(one) == {"": (["shipping"], 1), "dev": (["g"], 1)}
        assert await consumers(one, "payments") == {"": ([], 0), "dev": ([], 0)}
        assert await consumers(one, lanes=[{"name": "qa", "number": 2}]) == {"qa": (["g"], 1)}


@on_virtual_time
async def test_a_group_without_members_is_none_whatever_it_has_committed() -> None:
    async with coordinator(topics=TOPICS) as one:
        member_id = await consumer_of_orders(one, GROUP)
        await commit(one, OWN, member_id)
        assert (await consumers(one))["dev"] == (["g"], 1)
        await one.ask(LEAVE, 1, group_id=GROUP, member_id=member_id)
        assert (await consumers(one))["dev"] == ([], 0)


@on_virtual_time
async def test_members_that_are_no_consumers_are_known_by_what_they_commit() -> None:
    async with coordinator(topics=TOPICS) as one:
        asked = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 30_000, "member_id": "", "group_id": "connect"}
        joined = await one.ask(
            JOIN, 3, protocol_type="connect", protocols=[{"name": "default", "metadata": b""}], **asked
        )
        given = [{"member_id": joined.member_id, "assignment": b"all"}]
        await one.ask(SYNC, 3, group_id="connect", generation_id=1, member_id=joined.member_id, assignments=given)
        assert (await consumers(one))[""] == ([], 0)
        member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        assert await one.commit(7, topic="orders", group_id="connect", **member) == ErrorCode.none
        assert (await consumers(one))[""] == (["connect"], 1)
        assert (await consumers(one, "payments"))[""] == ([], 0)


@on_virtual_time
async def test_few_of_many_are_named_and_all_are_counted() -> None:
    async with coordinator(topics=TOPICS) as one:
        for number in range(5):
            await consumer_of_orders(one, f"group {number}")
        named, count = (await consumers(one, named_max=2))[""]
        assert (len(named), count) == (2, 5)


def test_a_coordinator_that_cannot_say_says_that() -> None:
    assert group_call_failed(TOPIC_CONSUMERS, Message(), ErrorCode.not_coordinator) == {
        "error_code": ErrorCode.not_coordinator,
        "lanes": [],
    }
