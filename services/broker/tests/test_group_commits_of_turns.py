"""Offsets that are committed in a lane that falls back."""

from collections.abc import Collection
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from group_shard import Coordinator, Topics, coordinator

from bmq.metadata.image import Image, Lane, Turn
from bmq.metadata.records import Whose
from bmq.naming.lanes import overlay_name, stored_group
from bmq.values import TopicId, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups.lane_commits import LaneCommits
from bmq_sim.loop import on_virtual_time

GROUP = stored_group("dev", 1, "g")
OWN = overlay_name("dev", "orders")


@dataclass
class Leases:
    """Those of this node, all or none."""

    has: bool = True

    def holds(self, _topic_id: TopicId) -> bool:
        return self.has

    async def hold(self, _topic_ids: Collection[TopicId], _until_s: float) -> bool:
        return self.has


class InLane:
    """A coordinator, and whose turn its image has of partition 0."""

    def __init__(self, one: Coordinator) -> None:
        self.one = one
        self.leases = Leases()
        self.turn = Turn()
        one.shard.lane_commits = LaneCommits(cast(Any, self), cast(Any, self.leases))

    @property
    def image(self) -> Image:
        topic_id = self.one.topics.id_of(OWN)
        assert topic_id is not None
        lane = Lane(name="dev", number=1, created_ms=0, falls_back=True)
        topics = cast(Any, {topic_id: SimpleNamespace(name=OWN)})
        return Image(lanes={"dev": lane}, topics=topics, turns={TopicPartition(topic_id, 0): self.turn})

    async def commit(self, offset: int, **fields: Any) -> ErrorCode:
        return await self.one.commit(offset, topic=OWN, group_id=GROUP, **fields)


@on_virtual_time
async def test_a_commit_is_taken_in_the_lanes_turn_under_a_lease_and_not_below_where_that_began() -> None:
    async with coordinator(topics=Topics(OWN)) as one:
        lane = InLane(one)
        assert await lane.commit(3) == ErrorCode.none
        lane.leases.has = False
        assert await lane.commit(4) == ErrorCode.coordinator_load_in_progress
        lane.leases.has = True
        for whose in (Whose.BASE, Whose.CLOSING):
            lane.turn = Turn(whose=whose, begin=3, generation=1)
            assert await lane.commit(4) == ErrorCode.coordinator_load_in_progress
        lane.turn = Turn(whose=Whose.LANE, begin=6, generation=3)
        assert await lane.commit(5) == ErrorCode.illegal_generation
        assert await one.fetch(OWN, group_id=GROUP) == 6, "where its turn begins, whatever was committed"
        assert await lane.commit(7) == ErrorCode.none
        assert await one.fetch(OWN, group_id=GROUP) == 7


@on_virtual_time
async def test_who_is_in_no_group_does_not_commit_all_that_it_read_in_an_earlier_turn_and_the_base_has() -> None:
    async with coordinator(topics=Topics(OWN)) as one:
        lane = InLane(one)
        assert await lane.commit(0) == ErrorCode.none, "nothing lies before it"
        assert await lane.commit(2) == ErrorCode.none
        lane.turn = Turn(whose=Whose.LANE, begin=6, generation=3)
        assert await lane.commit(6) == ErrorCode.illegal_generation, "2 to 5 went on to the base"
        assert await lane.commit(7) == ErrorCode.none
        assert await lane.commit(6) == ErrorCode.none, "what was read in this turn is given back"


@pytest.mark.parametrize("had", [0, 6])
@on_virtual_time
async def test_a_member_commits_where_it_begins(had: int) -> None:
    async with coordinator(topics=Topics(OWN)) as one:
        lane = InLane(one)
        assert await lane.commit(had) == ErrorCode.none
        lane.turn = Turn(whose=Whose.LANE, begin=6, generation=3)
        asked: dict[str, Any] = {"group_id": GROUP, "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
        protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\0"}]
        joined = await one.ask(11, 3, member_id="", protocol_type="consumer", protocols=protocols, **asked)
        given = [{"member_id": joined.member_id, "assignment": b"all"}]
        await one.ask(14, 3, group_id=GROUP, generation_id=1, member_id=joined.member_id, assignments=given)
        member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
        assert await lane.commit(6, **member) == ErrorCode.none
        assert await lane.commit(5, **member) == ErrorCode.illegal_generation
