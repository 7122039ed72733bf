"""What lanes hand over to a partition of the base, and how far they got: through rolls, restarts and long silence."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from broker_under_test import Cluster, small

from bmq.errors import BatchTooLarge, BmqError, InvalidBatch, InvalidTimestamp, NotReady, OutOfOrderSequence, TurnIsOver
from bmq.metadata.records import Whose
from bmq.roles.controller import NewTopic
from bmq.roles.lane_turns import NextTurn
from bmq.roles.owner import HANDED_OVER, Appended, HandedOver
from bmq.values import LANE_TURN_IDS, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq_controller.machine.lanes import LaneWanted
from bmq_sim.loop import on_virtual_time

HOUR_S = 60 * 60


class Handing:
    """A cluster whose lane `dev` has handed over its topic `orders`: it is the base's turn from offset 5 on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.base: TopicPartition
        self.lane: TopicPartition

    async def begin(self, **configs: str) -> None:
        cluster = self.cluster
        await cluster.start()
        control = cluster.controller.controller
        [self.base] = await cluster.topic("orders", configs={"retention.ms": "-1", **configs})
        await control.create_lane(LaneWanted(name="dev", falls_back=True))
        [made] = await control.create_topics([NewTopic(name="orders", lane="dev")])
        assert made.topic_id is not None
        self.lane = TopicPartition(made.topic_id, 0)
        await self.turn_to_base(5)

    async def turn_to_base(self, begin: int) -> int:
        control = self.cluster.controller.controller
        await control.unconsumed([self.lane.topic_id])
        await asyncio.sleep(31)
        [since] = await control.unconsumed([self.lane.topic_id])
        [refused] = await control.turned(
            [NextTurn(tp=self.lane, generation=self.generation, whose=Whose.BASE, begin=begin, since=since)]
        )
        assert refused is None
        return self.turn_id

    @property
    def generation(self) -> int:
        return self.cluster.controller.metadata.image.turn(self.lane).generation

    @property
    def turn_id(self) -> int:
        return self.cluster.controller.metadata.image.turn(self.lane).producer_id

    async def hand(self, sequence: int, *values: bytes, producer_id: int = -1, timestamp_ms: int = 1) -> Appended:
        batch = build_batch(
            [Record(0, timestamp_ms, None, value) for value in values],
            producer_id=self.turn_id if producer_id < 0 else producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        return await self.cluster.broker.owner.append(self.base, batch, produce_version=HANDED_OVER)

    async def far(self) -> HandedOver:
        return await self.cluster.broker.owner.handed_over(self.base, self.turn_id)


def on_handing(**changes: int) -> Callable[[Callable[[Handing], Awaitable[None]]], None]:
    def run(check: Callable[[Handing], Awaitable[None]]) -> None:
        async def main() -> None:
            cluster = Cluster(settings=small(**changes))
            await check(Handing(cluster))
            await cluster.stop()

        on_virtual_time(main)()

    return run


async def refused(appending: Awaitable[object], kind: type[BmqError], match: str | None = None) -> None:
    with pytest.raises(kind, match=match):
        await appending


def test_each_message_is_taken_once_and_in_order_whoever_hands_it_over() -> None:
    @on_handing()
    async def _(handing: Handing) -> None:
        await handing.begin()
        await refused(handing.hand(1, b"b"), OutOfOrderSequence)
        first = await handing.hand(0, b"a", b"b")
        assert (await handing.hand(0, b"a", b"b")).base_offset == first.base_offset, "a copy"
        await refused(handing.hand(1, b"b", b"c"), OutOfOrderSequence)
        await handing.hand(2, b"c")
        assert await handing.far() == HandedOver(count=3, is_final=False)
        assert [value for _, value in await handing.cluster.read_all(handing.base)] == [b"a", b"b", b"c"]


def test_nothing_is_taken_of_a_turn_that_closes_or_is_over_or_that_was_never_heard_of() -> None:
    @on_handing()
    async def _(handing: Handing) -> None:
        await handing.begin()
        control = handing.cluster.controller.controller
        await handing.hand(0, b"a")
        turn_id = handing.turn_id
        await control.consumed([handing.lane.topic_id])
        await refused(handing.hand(1, b"b"), TurnIsOver, "it closes")
        assert await handing.far() == HandedOver(count=1, is_final=True)
        await control.turned([NextTurn(tp=handing.lane, generation=2, whose=Whose.LANE, begin=6)])
        await refused(handing.hand(1, b"b", producer_id=turn_id), TurnIsOver, "is over")
        await refused(handing.hand(0, b"x", producer_id=turn_id + 1), NotReady, "has not heard")
        assert await handing.turn_to_base(6) == turn_id + 1
        await handing.hand(0, b"b")
        assert [value for _, value in await handing.cluster.read_all(handing.base)] == [b"a", b"b"]


def test_clients_have_no_such_producer_ids_and_lanes_no_others() -> None:
    @on_handing()
    async def _(handing: Handing) -> None:
        await handing.begin()
        await refused(
            handing.cluster.append(handing.base, b"x", producer_id=handing.turn_id, producer_epoch=0, base_sequence=0),
            InvalidBatch,
            "are of lanes",
        )
        await refused(handing.hand(0, b"x", producer_id=7), TurnIsOver)
        [other] = await handing.cluster.topic("other")
        handing.base = other
        await refused(handing.hand(0, b"x"), InvalidBatch, "is not of")


def test_how_far_it_got_outlives_rolls_restarts_and_what_producers_are_forgotten_for() -> None:
    @on_handing(producers_per_partition=1, producers_per_broker=1, producer_expiry_ms=HOUR_S * 1000)
    async def _(handing: Handing) -> None:
        await handing.begin()
        cluster = handing.cluster
        await handing.hand(0, b"a", b"b")
        await cluster.roll(handing.base)
        await handing.hand(2, b"c")
        for producer in range(5):
            await cluster.append(handing.base, b"x", producer_id=producer, producer_epoch=0, base_sequence=0)
        await asyncio.sleep(3 * HOUR_S)
        assert await handing.far() == HandedOver(count=3, is_final=False)
        await cluster.roll(handing.base)
        await cluster.kill()
        await cluster.start("again")
        assert await handing.far() == HandedOver(count=3, is_final=False)
        await refused(handing.hand(0, b"a"), OutOfOrderSequence)
        partition = cluster.broker.partitions[handing.base]
        await cluster.controller.controller.consumed([handing.lane.topic_id])
        assert await handing.far() == HandedOver(count=3, is_final=True), "as long as it closes"
        await cluster.controller.controller.turned([NextTurn(tp=handing.lane, generation=2, whose=Whose.LANE, begin=8)])
        await asyncio.sleep(2 * HOUR_S)
        assert partition.live.next_sequence(LANE_TURN_IDS) == 0, "what is over is forgotten"


def test_what_the_lanes_topic_took_is_taken_whatever_the_bases_limits_are() -> None:
    @on_handing()
    async def _(handing: Handing) -> None:
        await handing.begin(**{"max.message.bytes": "300", "message.timestamp.before.max.ms": "1000"})
        old = handing.cluster.append(handing.base, b"x", b"y" * 400)
        await refused(old, BatchTooLarge)
        with pytest.raises(InvalidTimestamp):
            batch = build_batch([Record(0, 1, None, b"x")])
            await handing.cluster.broker.owner.append(handing.base, batch, produce_version=9)
        await handing.hand(0, b"x" * 400)
        assert len(await handing.cluster.read_all(handing.base)) == 1
