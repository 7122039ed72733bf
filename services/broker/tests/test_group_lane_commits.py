"""Offsets of groups in lanes that fall back: taken in the lane's turn alone, and shown no lower than where it began."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from group_shard import DESCRIBE, Coordinator, Disk, Topics, coordinator
from test_group_lane_offsets import GROUP, OWN, consumer_of_orders

from bmq.errors import BmqError
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import LaneDeclared, LaneTurned, TopicCreated, Whose
from bmq.roles.lane_leases import LaneLeases
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.roles.owner import LANE_OFFSETS, Caller
from bmq.values import LANE_TURN_IDS, TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.lane_commits import LaneCommits
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

TOPICS = Topics(OWN, "orders")
ID = TOPICS.ids[OWN]
IMAGE = apply(
    Image(),
    1,
    [
        LaneDeclared(name="dev", number=1, created_ms=0, falls_back=True),
        TopicCreated(topic_id=ID, name=OWN, partitions=2, leader_epoch=0),
        TopicCreated(topic_id=UUID(int=9), name="orders", partitions=2, leader_epoch=0),
    ],
)


class Control:
    """Gives leases of ten seconds; none before it is `there`."""

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.there.set()
        self.asked = 0

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        self.asked += 1
        await self.there.wait()
        return LaneLease(lease_ms=10_000, position=0)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        raise NotImplementedError

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        raise NotImplementedError


class Falling:
    def __init__(self, one: Coordinator) -> None:
        self.one = one
        self.feed = MetadataFeed()
        self.feed.publish(IMAGE)
        self.control = Control()
        self.leases = LaneLeases(self.control, self.feed)
        one.shard.lane_commits = LaneCommits(self.feed, self.leases)

    def turn(self, whose: Whose, begin: int, *, partition: int = 0) -> None:
        """Whatever came before."""
        image = self.feed.image
        record = LaneTurned(
            topic_id=ID,
            partition=partition,
            generation=image.position,
            whose=whose,
            begin=begin,
            producer_id=-1 if whose is Whose.LANE else LANE_TURN_IDS + image.position,
        )
        self.feed.publish(apply(image, image.position + 1, [record]))

    async def commit(self, offset: int) -> ErrorCode:
        return await self.one.commit(offset, topic=OWN, group_id=GROUP)

    async def said(self, prefix: str = ":dev#1:") -> dict[str, object]:
        request = Message(prefix=prefix, topics=[{"name": OWN, "topic_id": ID}])
        answer = await handle_group_call(self.one.shard, LANE_OFFSETS, request, Caller(client_id="", client_host=""))
        assert answer["error_code"] == ErrorCode.none
        [topic] = answer["topics"]
        return topic  # type: ignore[no-any-return]


def test_an_offset_is_taken_in_the_lanes_turn_from_its_beginning_on() -> None:
    @on_virtual_time
    async def main() -> None:
        async with coordinator(topics=TOPICS) as one:
            lane = Falling(one)
            assert await lane.commit(3) == ErrorCode.none
            lane.turn(Whose.BASE, 3)
            assert await lane.commit(4) == ErrorCode.coordinator_load_in_progress
            lane.turn(Whose.CLOSING, 3)
            assert await lane.commit(4) == ErrorCode.coordinator_load_in_progress
            lane.turn(Whose.LANE, 9)
            assert await lane.commit(8) == ErrorCode.illegal_generation
            assert await one.fetch(OWN, group_id=GROUP) == 9, "it begins where the turn does"
            assert await one.fetch(OWN, group_id=":dev#1:new") == 9, "and so does who has committed nothing"
            assert await lane.commit(9) == ErrorCode.illegal_generation, "it is no member: 3 to 8 went on"
            assert await lane.commit(12) == ErrorCode.none
            assert await one.fetch(OWN, group_id=GROUP) == 12
            await lane.leases.close()

    main()


def test_none_is_taken_without_a_lease_however_long_that_takes() -> None:
    @on_virtual_time
    async def main() -> None:
        async with coordinator(topics=TOPICS) as one:
            lane = Falling(one)
            lane.control.there.clear()
            began_s = asyncio.get_running_loop().time()
            assert await lane.commit(3) == ErrorCode.coordinator_load_in_progress
            assert asyncio.get_running_loop().time() - began_s == 5
            assert await one.fetch(OWN, group_id=GROUP) == 0, "nothing was stored"
            lane.control.there.set()
            assert await lane.commit(3) == ErrorCode.none
            await lane.leases.close()

    main()


def test_the_base_and_lanes_without_fallback_ask_for_no_lease() -> None:
    @on_virtual_time
    async def main() -> None:
        async with coordinator(topics=TOPICS) as one:
            lane = Falling(one)
            assert await one.commit(3, topic="orders", group_id="g") == ErrorCode.none
            assert await one.fetch("orders", group_id="other") == -1
            assert not lane.control.asked
            await lane.leases.close()

    main()


def test_what_a_lanes_groups_have_committed_is_told_with_whether_members_consume() -> None:
    @on_virtual_time
    async def main() -> None:
        async with coordinator(Disk(), topics=TOPICS) as one:
            lane = Falling(one)
            assert await lane.said() == {"name": OWN, "has_members": False, "committed": []}
            await lane.commit(3)
            await one.commit(5, topic=OWN, group_id=":dev#1:other")
            await one.commit(99, topic=OWN, group_id=":dev#2:of-another-lane-of-that-name")
            assert await lane.said() == {"name": OWN, "has_members": False, "committed": [(0, 5)]}
            member_id = await consumer_of_orders(one, ":dev#1:members")
            assert (await lane.said())["has_members"] is True
            assert (await lane.said(":dev#2:"))["has_members"] is False
            await one.ask(13, group_id=":dev#1:members", members=[{"member_id": member_id, "group_instance_id": None}])
            described = await one.ask(DESCRIBE, groups=[":dev#1:members"])
            assert described.groups[0].group_state == "Empty"
            assert (await lane.said())["has_members"] is False
            await lane.leases.close()

    main()
