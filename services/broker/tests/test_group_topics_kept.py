"""The topics that a generation subscribes to are counted like all that members say, and are no more than can be told
apart in a short turn.
"""

import struct
from typing import Any

import pytest
from group_log import Disk
from group_shard import COMMIT, JOIN, OFFSET_DELETE, SYNC, Coordinator, coordinator

from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups import timeouts
from bmq_broker.coordinators.groups.group import TOPIC_BYTES, Group
from bmq_broker.coordinators.groups.subscription import TOPICS_MAX, same_topics, subscribed_topics, topics_of
from bmq_sim.loop import on_virtual_time


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


def many(count: int) -> bytes:
    return subscription(*(f"{number:05x}" for number in range(count)))


def group_of(one: Coordinator, group_id: str = "g") -> Group:
    group: Group = one.shard._machine.groups[group_id]  # type: ignore[union-attr]
    return group


async def stable(one: Coordinator, metadata: bytes, group_id: str = "g") -> str:
    asked: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
    }
    joined = await one.ask(JOIN, 3, group_id=group_id, protocols=[{"name": "p", "metadata": metadata}], **asked)
    assert joined.error_code == 0
    given = [{"member_id": joined.member_id, "assignment": b"all"}]
    synced = await one.ask(
        SYNC, 3, group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id, assignments=given
    )
    assert synced.error_code == 0
    return str(joined.member_id)


async def deleted(one: Coordinator, topic: str) -> ErrorCode:
    asked = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    reply = await one.ask(OFFSET_DELETE, group_id="g", topics=asked)
    return ErrorCode(reply.topics[0].partitions[0].error_code)


@on_virtual_time
async def test_topics_of_a_generation_count_as_the_objects_that_they_are_and_no_more_once_it_is_over() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        member_id = await stable(one, many(1_000))
        group = group_of(one)
        assert group.size_bytes >= 1_000 * (TOPIC_BYTES + 5)
        counted = one.shard._machine.tally.size_bytes
        assert counted == group.size_bytes
    async with coordinator(disk) as one:
        assert group_of(one).size_bytes >= 1_000 * (TOPIC_BYTES + 5), "and as many after a restart"
        await one.ask(13, 3, group_id="g", members=[{"member_id": member_id, "group_instance_id": None}])
        assert group_of(one).size_bytes < TOPIC_BYTES * 10


@on_virtual_time
async def test_of_a_subscription_of_too_many_topics_nothing_is_kept_and_no_offset_is_deleted() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        assert await one.commit(1) == ErrorCode.none
        await stable(one, many(TOPICS_MAX + 1))
        assert group_of(one).topics is None
        assert await deleted(one, "t") == ErrorCode.group_subscribed_to_topic
        await stable(one, many(TOPICS_MAX), "h")
        assert len(group_of(one, "h").topics or ()) == TOPICS_MAX
    async with coordinator(disk) as one:
        assert (group_of(one).topics, group_of(one).topics_bytes) == (None, 0)
        assert await deleted(one, "t") == ErrorCode.group_subscribed_to_topic


@on_virtual_time
async def test_topics_for_which_there_is_no_room_cannot_be_told() -> None:
    async with coordinator(members_bytes_max=100_000) as one:
        assert await one.commit(1) == ErrorCode.none
        await stable(one, many(1_000))
        assert group_of(one).topics is None
        assert one.shard._machine.tally.size_bytes <= 100_000
        assert await deleted(one, "t") == ErrorCode.group_subscribed_to_topic


@on_virtual_time
async def test_few_large_groups_are_brought_to_life_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        for number in range(12):
            await stable(one, many(5_000), f"g{number}")
        for number in range(12):
            await stable(one, many(1), f"h{number}")
        assert (await one.ask(COMMIT, 8, group_id="g0", topics=[])).topics == []
    turns: list[int] = []

    def start(machine: Any, now: Any, group_ids: Any = None) -> Any:
        turns.append(len(group_ids))
        return begin(machine, now, group_ids)

    begin = timeouts.start
    monkeypatch.setattr(timeouts, "start", start)
    async with coordinator(disk):
        assert sum(turns) == 24
        assert len(turns) >= 4
        assert max(turns[:3]) <= 4


def test_members_that_subscribe_to_the_same_count_once() -> None:
    alike = [
        subscription(*(f"t{number}" for number in range(1_000)), user_data=bytes([member])) for member in range(100)
    ]
    topics = topics_of(alike)
    assert topics is not None
    assert len(topics) == 1_000
    assert topics_of([subscription(*(f"{member}-{number}" for number in range(1_000))) for member in range(11)]) is None


def test_a_subscription_whose_names_run_out_is_none_though_another_begins_like_it() -> None:
    whole = subscription("a", "b")
    assert topics_of([whole, whole[:9]]) is None
    assert topics_of([whole, b"\xff\xff" + whole[2:]]) is None
    assert topics_of([]) == frozenset()


def test_of_topics_too_many_to_be_read_any_change_counts() -> None:
    large = many(TOPICS_MAX + 1)
    assert subscribed_topics(large) is None
    assert same_topics(large, bytes(bytearray(large)))
    assert not same_topics(large, large + b"\0")
    assert not same_topics(large, many(1))
    assert same_topics(subscription("a", "b", user_data=b"1"), subscription("b", "a", user_data=b"2"))
    assert same_topics(b"own", b"words"), "what cannot be read changes nothing"
