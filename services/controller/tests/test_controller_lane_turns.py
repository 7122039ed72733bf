"""Whose turn a lane's messages are: which turns follow which, and who has to be gone for that."""

import asyncio
from uuid import UUID

import pytest
from controller_committed import Committed
from leading_controller import registration, start

from bmq.errors import InvalidRequest, TurnIsOver, UnknownTopic
from bmq.metadata.image import Image, PartitionMeta, Topic, Turn
from bmq.metadata.invariants import InvariantBroken, check_step
from bmq.metadata.records import LaneTurned, Whose
from bmq.roles.controller import NewTopic
from bmq.roles.lane_turns import NextTurn, Unconsumed
from bmq.values import LANE_TURN_IDS, NodeId, TopicId, TopicPartition
from bmq_controller.machine.lanes import LaneWanted, change_lane, create_lane, delete_lanes
from bmq_controller.machine.presence import Presence
from bmq_controller.machine.topics import delete_topics
from bmq_controller.machine.turns import consumed, turned
from bmq_controller.settings import ControllerSettings
from bmq_sim.loop import run
from bmq_sim.store import SimStore, StoreFaults

SINCE = Unconsumed(epoch=1, count=0)


class Lane:
    """`dev` falls back; `orders` has two partitions there and in the base."""

    def __init__(self, *, fallback: bool = True, base_partitions: int = 2) -> None:
        self.cluster = Committed(brokers=2)
        self.cluster.create(NewTopic(name="orders", partitions=base_partitions))
        self.cluster.commit(create_lane(self.cluster.image, 1, LaneWanted(name="dev", falls_back=fallback)).records)
        self.cluster.create(NewTopic(name="orders", lane="dev", partitions=2))
        topic, base = self.cluster.image.topic("dev:orders"), self.cluster.image.topic("orders")
        assert topic is not None
        assert base is not None
        self.topic_id, self.base_id = topic.topic_id, base.topic_id
        self.is_absent = True

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic_id, partition)

    def turn(self, partition: int = 0) -> Turn:
        return self.cluster.image.turn(self.tp(partition))

    def next(self, whose: Whose, begin: int, *, partition: int = 0, generation: int | None = None) -> object:
        at = self.turn(partition).generation if generation is None else generation
        wanted = NextTurn(tp=self.tp(partition), generation=at, whose=whose, begin=begin, since=SINCE)
        decision = turned(self.cluster.image, [wanted], is_absent=lambda _topic, _since: self.is_absent)
        self.cluster.commit(decision.records)
        return decision.result[0]

    def consume(self) -> None:
        self.cluster.commit(consumed(self.cluster.image, [self.topic_id]).records)


def test_the_turn_goes_from_the_lane_to_the_base_and_back_by_closing() -> None:
    lane = Lane()
    assert lane.next(Whose.BASE, 5) is None
    first = Turn(whose=Whose.BASE, begin=5, generation=1, producer_id=LANE_TURN_IDS, base_topic_id=lane.base_id)
    assert lane.turn() == first
    assert lane.cluster.image.turn_ids == {LANE_TURN_IDS: lane.tp()}
    lane.consume()
    assert lane.turn().whose is Whose.CLOSING
    assert (lane.turn().begin, lane.turn().producer_id) == (5, LANE_TURN_IDS)
    lane.consume()
    assert lane.turn().generation == 2, "it closes once"
    assert lane.next(Whose.LANE, 9) is None
    assert lane.turn() == Turn(whose=Whose.LANE, begin=9, generation=3)
    assert not lane.cluster.image.turn_ids
    assert lane.next(Whose.BASE, 3) is None
    assert (lane.turn().begin, lane.turn().producer_id) == (9, LANE_TURN_IDS + 1), "what was given up before stays so"
    assert lane.turn(1) == Turn(), "the other partition has its own"


def test_a_turn_is_refused_that_does_not_follow_the_one_that_there_is() -> None:
    lane = Lane()
    assert isinstance(lane.next(Whose.LANE, 5), InvalidRequest)
    assert isinstance(lane.next(Whose.CLOSING, 5), InvalidRequest)
    assert isinstance(lane.next(Whose.BASE, 5, generation=1), TurnIsOver)
    assert isinstance(lane.next(Whose.BASE, 5, partition=2, generation=0), UnknownTopic)
    assert lane.next(Whose.BASE, 5) is None
    assert isinstance(lane.next(Whose.BASE, 6), InvalidRequest)
    lane.consume()
    assert isinstance(lane.next(Whose.LANE, 4), InvalidRequest), "below its beginning"
    assert isinstance(lane.next(Whose.LANE, 7, generation=1), TurnIsOver)


def test_no_turn_is_given_away_while_somebody_is_there_or_where_there_is_nowhere_to_go() -> None:
    lane = Lane(base_partitions=1)
    lane.is_absent = False
    assert isinstance(lane.next(Whose.BASE, 0), TurnIsOver)
    lane.is_absent = True
    assert isinstance(lane.next(Whose.BASE, 0, partition=1), UnknownTopic)
    assert lane.next(Whose.BASE, 0) is None
    staying = Lane(fallback=False)
    assert isinstance(staying.next(Whose.BASE, 0), InvalidRequest)
    assert not consumed(staying.cluster.image, [staying.topic_id, TopicId(UUID(int=3))]).records


def test_one_request_that_names_a_partition_twice_turns_it_once() -> None:
    lane = Lane()
    twice = [NextTurn(tp=lane.tp(), generation=0, whose=Whose.BASE, begin=0, since=SINCE)] * 2
    decision = turned(lane.cluster.image, twice, is_absent=lambda _topic, _since: True)
    assert decision.result[0] is None
    assert isinstance(decision.result[1], InvalidRequest)
    assert len(decision.records) == 1


def test_turns_go_with_their_topic_and_their_ids_are_never_given_again() -> None:
    lane = Lane()
    lane.next(Whose.BASE, 0)
    lane.next(Whose.BASE, 0, partition=1)
    lane.cluster.commit(delete_topics(lane.cluster.image, [lane.topic_id], cluster={}).records)
    assert not lane.cluster.image.turns
    assert not lane.cluster.image.turn_ids
    assert lane.cluster.image.next_turn_id == LANE_TURN_IDS + 2
    other = Lane()
    other.next(Whose.BASE, 0)
    other.cluster.commit(delete_lanes(other.cluster.image, ["dev"]).records)
    assert not other.cluster.image.turns


@pytest.mark.parametrize(
    "record",
    [
        {"generation": 1, "whose": Whose.CLOSING, "begin": 0, "producer_id": LANE_TURN_IDS},
        {"generation": 1, "whose": Whose.LANE, "begin": 0},
        {"generation": 1, "whose": Whose.BASE, "begin": 0, "producer_id": LANE_TURN_IDS - 1},
        {"generation": 0, "whose": Whose.BASE, "begin": 0, "producer_id": LANE_TURN_IDS},
    ],
)
def test_an_entry_that_has_turns_go_another_way_is_refused(record: dict[str, object]) -> None:
    lane = Lane()
    before = lane.cluster.image
    with pytest.raises(InvariantBroken):
        lane.cluster.commit((LaneTurned(topic_id=lane.topic_id, partition=0, **record),))  # type: ignore[arg-type]
        check_step(before, lane.cluster.image)


def test_a_lane_falls_back_as_it_was_made() -> None:
    lane = Lane()
    with pytest.raises(InvalidRequest, match="fallback = none: the lane was made with base"):
        change_lane(lane.cluster.image, 2, LaneWanted(name="dev"))
    with pytest.raises(InvalidRequest, match="fallback = base and reads_base"):
        create_lane(
            lane.cluster.image,
            2,
            LaneWanted(name="other", falls_back=True, reads_base=("*",), reads_base_bytes_per_s=1_024),
        )


def test_nobody_is_there_once_nobody_said_so_for_the_whole_grace() -> None:
    topic_id = TopicId(UUID(int=1))
    presence = Presence(7, grace_s=30)
    assert presence.unconsumed(topic_id, 100) is None, "a leader that has just begun knows of nobody"
    assert presence.unconsumed(topic_id, 129) is None
    since = presence.unconsumed(topic_id, 130)
    assert since == Unconsumed(epoch=7, count=0)
    assert presence.is_absent(topic_id, since, 131)
    presence.tell([topic_id], 132)
    assert not presence.is_absent(topic_id, since, 132)
    assert not presence.is_absent(topic_id, since, 170), "somebody was there since"
    again = presence.unconsumed(topic_id, 170)
    assert again == Unconsumed(epoch=7, count=1)
    assert not Presence(8, grace_s=30).is_absent(topic_id, again, 500), "another leader waits for itself"


def test_topics_that_are_gone_are_forgotten_once_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_controller.machine.presence._LOOKED_THROUGH_FROM", 2)
    stays, goes = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    topic = Topic(topic_id=stays, name="dev:orders", partitions=(PartitionMeta(node_id=NodeId(1)),))
    presence = Presence(7, grace_s=30)
    presence._looked_through_at = 2
    presence.tell([stays], 100)
    presence.forget(Image(topics={stays: topic}))
    presence.tell([goes], 100)
    presence.forget(Image(topics={stays: topic}))
    assert presence.unconsumed(stays, 130) == Unconsumed(epoch=7, count=1), "what is there is remembered"
    assert presence.unconsumed(goes, 130) is None, "what is gone is as one that nobody has asked about"


def test_somebody_is_there_for_as_long_as_a_lease_lasts_however_long_it_took_to_give_it() -> None:
    async def main() -> None:
        fast, slow = (StoreFaults(latency_s_min=s, latency_s_max=s) for s in (0.1, 2.6))
        store = SimStore(faults=fast)
        role = await start(store, settings=ControllerSettings(lane_grace_s=3.0))
        control = role.controller
        await control.register(registration())
        await control.create_lane(LaneWanted(name="dev", falls_back=True))
        [made] = await control.create_topics([NewTopic(name="orders", lane="dev", partitions=1)])
        await asyncio.sleep(1)
        store.faults = slow
        before = asyncio.ensure_future(control.allocate_producer_ids(1))
        await asyncio.sleep(0.01)
        asking = asyncio.ensure_future(control.consumed([made.topic_id]))
        await asyncio.sleep(0.01)
        store.faults = fast
        lease = await asking
        await before
        await asyncio.sleep(lease.lease_ms / 1000 - 0.1)
        assert await control.unconsumed([made.topic_id]) == [None]
        await asyncio.sleep(3.1)
        assert await control.unconsumed([made.topic_id]) != [None]
        await role.stop()

    run(main())
