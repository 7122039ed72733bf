"""The turns of topics that nobody consumes: what is asked for them, and of what there is nothing to ask."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from bmq.metadata.image import Image, Lane, PartitionMeta, Topic, Turn
from bmq.metadata.records import Whose
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.lane_turns import NextTurn, Unconsumed
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_proxy.fetch.answers import Found
from bmq_proxy.lanes.fallback.idle import IdleTopics, may_go_on
from bmq_proxy.lanes.fallback.worker import changed_lanes
from bmq_sim.loop import on_virtual_time

SINCE = Unconsumed(epoch=1, count=0)


def topic(number: int, name: str, partitions: int = 1) -> Topic:
    metas = (PartitionMeta(node_id=NodeId(1)),) * partitions
    return Topic(topic_id=TopicId(UUID(int=number)), name=name, partitions=metas)


class Cluster:
    """`dev` is nested in `ppe`; the base has `orders`, `dev` its own."""

    def __init__(self, *more: Topic, parent: str = "ppe") -> None:
        self.own = topic(1, "dev:orders", 2)
        self.lane = Lane(name="dev", number=2, created_ms=0, falls_back=True, parent=parent)
        ppe = Lane(name="ppe", number=1, created_ms=0, falls_back=True)
        self.image = Image(lanes={"dev": self.lane, "ppe": ppe})
        self.has(topic(2, "orders", 2), topic(3, CONSUMER_OFFSETS), self.own, *more)
        self.is_idle = True
        self.makes = True
        self.made: list[list[str]] = []
        self.asked = 0
        self.turns: list[NextTurn] = []
        self.idle = IdleTopics(
            self.lane,
            control=cast(Any, self),
            metadata=cast(Any, self),
            owner_for=lambda _: cast(Any, self),
            reader=cast(Any, self),
            goes_on_at=lambda _: 0,
            make=self.make,
        )

    def has(self, *topics: Topic) -> None:
        all_topics = {**self.image.topics, **{one.topic_id: one for one in topics}}
        ids = {one.name: one.topic_id for one in all_topics.values()}
        self.image = Image(lanes=self.image.lanes, topics=all_topics, topic_ids=ids)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        return [SINCE if self.is_idle else None for _ in topic_ids]

    async def make(self, names: Collection[str]) -> None:
        self.made.append(list(names))
        if self.makes:
            self.has(*(topic(10 + number, f"ppe:{name}", 2) for number, name in enumerate(names)))

    async def group_call(self, _partition: int, _api_key: int, request: Any, _caller: Any) -> dict[str, Any]:
        self.asked += 1
        told = [{"name": one["name"], "has_members": False, "committed": [(1, 7)]} for one in request.topics]
        return {"error_code": 0, "topics": told}

    async def ends(self, reads: Sequence[Any]) -> list[Found]:
        return [Found(high_watermark=9, log_start=3) for _ in reads]

    async def turned(self, turns: Sequence[NextTurn]) -> list[None]:
        self.turns += turns
        return [None for _ in turns]


@on_virtual_time
async def test_the_lane_beneath_gets_a_topic_of_its_own_and_the_turns_that_go_on_to_it() -> None:
    cluster = Cluster()
    await cluster.idle.give_away([cluster.own])
    assert cluster.made == [["orders"]]
    assert [(one.tp.partition, one.begin) for one in cluster.turns] == [(0, 3), (1, 7)]


@on_virtual_time
async def test_where_none_can_be_made_nobody_is_asked_and_where_somebody_consumes_none_is() -> None:
    cluster = Cluster()
    cluster.makes = False
    for _ in range(3):
        await cluster.idle.give_away([cluster.own])
    assert (len(cluster.made), cluster.asked, cluster.turns) == (3, 0, [])
    cluster.is_idle = False
    await cluster.idle.give_away([cluster.own])
    assert (len(cluster.made), cluster.asked) == (3, 0)


@on_virtual_time
async def test_a_topic_of_the_base_is_made_for_no_lane() -> None:
    cluster = Cluster(parent="")
    own = topic(4, "dev:alone")
    cluster.has(own)
    assert may_go_on(cluster.image, own) == []
    await cluster.idle.give_away([own])
    assert (cluster.made, cluster.asked) == ([], 0)


def test_what_may_go_on_are_the_partitions_that_there_are_beneath() -> None:
    cluster = Cluster()
    assert [tp.partition for tp in may_go_on(cluster.image, cluster.own)] == [0, 1]
    cluster.has(topic(5, "ppe:orders"))
    assert may_go_on(cluster.image, cluster.own) == [TopicPartition(cluster.own.topic_id, 0)]
    gone = topic(6, "dev:none")
    cluster.has(gone)
    assert may_go_on(cluster.image, gone) == []


def test_a_change_is_of_the_lanes_whose_topics_or_turns_are_others() -> None:
    cluster = Cluster()
    before = cluster.image
    cluster.has(topic(20, "ppe:orders"))
    came = cluster.image
    assert changed_lanes(before, came) == {"ppe"}
    assert changed_lanes(came, before) == {"ppe"}
    turned = replace(came, turns={TopicPartition(TopicId(UUID(int=1)), 0): Turn(whose=Whose.BASE, generation=1)})
    assert changed_lanes(came, turned) == {"dev"}
    assert changed_lanes(turned, before) == {"ppe", "dev"}
    assert changed_lanes(turned, turned) == set()
