"""The base's turn that closes ends where the base's owner says that it got to, whoever has to be asked how often."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from bmq.errors import BmqError, ControllerUnavailable, NotReady, StoreUnavailable
from bmq.metadata.image import Image, PartitionMeta, Topic, Turn
from bmq.metadata.records import Whose
from bmq.roles.lane_turns import NextTurn
from bmq.roles.owner import HandedOver
from bmq.values import LANE_TURN_IDS, NodeId, TopicId, TopicPartition
from bmq_proxy.lanes.fallback.closing import ROUND_MAX, Closings
from bmq_sim.loop import on_virtual_time

OWN, BASE = TopicId(UUID(int=1)), TopicId(UUID(int=2))
TP = TopicPartition(OWN, 0)
CLOSING = Turn(whose=Whose.CLOSING, begin=7, generation=2, producer_id=LANE_TURN_IDS, base_topic_id=BASE)


class Cluster:
    """A lane's partition whose turn closes, and the base's. What is in `said` is what the owner says, then 3 messages;
    what is in `refusals` what the leader answers, then that the next turn begins.
    """

    def __init__(self) -> None:
        base = Topic(topic_id=BASE, name="orders", partitions=(PartitionMeta(node_id=NodeId(1)),))
        self.image = Image(turns={TP: CLOSING}, topics={BASE: base})
        self.said: list[HandedOver | BaseException] = []
        self.refusals: list[BmqError] = []
        self.begun: list[NextTurn] = []
        self.asked = 0
        self.never = False

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> HandedOver:
        assert (tp, producer_id) == (TopicPartition(BASE, 0), LANE_TURN_IDS)
        self.asked += 1
        if self.never:
            await asyncio.get_running_loop().create_future()
        if not self.said:
            return HandedOver(count=3, is_final=True)
        said = self.said.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        if self.refusals:
            raise self.refusals.pop(0)
        self.begun += turns
        return [None for _ in turns]


def closings(cluster: Cluster) -> Closings:
    this = cast(Any, cluster)
    return Closings(this, this, lambda _: this)


def the_lanes(begin: int) -> NextTurn:
    return NextTurn(tp=TP, generation=2, whose=Whose.LANE, begin=begin)


async def ended(cluster: Cluster, *, within_s: float = 60) -> list[NextTurn]:
    closings(cluster).begin([TP])
    await asyncio.sleep(within_s)
    return cluster.begun


@on_virtual_time
async def test_the_lanes_turn_begins_behind_what_the_base_has() -> None:
    assert await ended(Cluster()) == [the_lanes(10)]


@on_virtual_time
async def test_an_owner_that_may_still_take_some_or_that_does_not_know_yet_is_asked_again() -> None:
    cluster = Cluster()
    cluster.said = [
        HandedOver(count=1, is_final=False),
        NotReady("it is opening"),
        StoreUnavailable("away"),
        TimeoutError(),
    ]
    assert await ended(cluster) == [the_lanes(10)]
    assert cluster.asked == 5


@on_virtual_time
async def test_of_a_base_that_is_deleted_there_is_nothing_to_wait_for() -> None:
    cluster = Cluster()
    cluster.image = Image(turns={TP: CLOSING})
    assert await ended(cluster) == [the_lanes(7)]
    assert cluster.asked == 0


@on_virtual_time
async def test_a_leader_that_is_away_is_asked_again() -> None:
    cluster = Cluster()
    cluster.refusals = [ControllerUnavailable("there is none")] * 3
    assert await ended(cluster) == [the_lanes(10)]


@on_virtual_time
async def test_an_owner_that_never_answers_holds_up_nobody_and_the_end_of_a_proxy_neither() -> None:
    cluster = Cluster()
    cluster.never = True
    closing = closings(cluster)
    closing.begin([TP])
    await asyncio.sleep(30)
    assert 3 <= cluster.asked <= 6, "each time it has its patience"
    await closing.close()
    asked = cluster.asked
    await asyncio.sleep(30)
    assert cluster.asked == asked
    assert cluster.begun == []


@on_virtual_time
async def test_what_nobody_expected_is_told_and_the_next_one_begins_anew() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    cluster = Cluster()
    cluster.said = [RuntimeError("a bug")]
    closing = closings(cluster)
    closing.begin([TP])
    await asyncio.sleep(1)
    assert [str(one["exception"]) for one in told] == ["a bug"]
    closing.begin([TP])
    await asyncio.sleep(1)
    assert cluster.begun == [the_lanes(10)]


@on_virtual_time
async def test_a_topic_with_thousands_of_partitions_holds_up_no_other_one() -> None:
    wide = [TopicPartition(TopicId(UUID(int=3)), index) for index in range(3_000)]
    narrow = TopicPartition(TopicId(UUID(int=4)), 0)
    cluster = Cluster()
    cluster.image = Image(turns=dict.fromkeys((*wide, narrow), CLOSING))
    told: list[list[TopicPartition]] = []

    async def turned(turns: Sequence[NextTurn]) -> list[BmqError | None]:
        told.append([one.tp for one in turns])
        await asyncio.sleep(0.01)
        return [None for _ in turns]

    cluster.turned = turned  # type: ignore[method-assign]
    closing = closings(cluster)
    closing.begin(wide)
    await asyncio.sleep(0.015)
    closing.begin([narrow])
    await asyncio.sleep(60)
    [came] = [number for number, tps in enumerate(told) if narrow in tps]
    assert came <= 3
    assert sorted(tp for tps in told for tp in tps) == sorted([*wide, narrow]), "each once"
    assert max(map(len, told)) <= ROUND_MAX
