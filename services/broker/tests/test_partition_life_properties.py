"""Whatever happens to a broker's partitions, in whatever order: what its lives say of each of them agrees."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from bmq.config.topic_config import resolve
from bmq.errors import PartitionStopped
from bmq.metadata.records import Range
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Offset, StreamId, TopicPartition
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import NOT_YET, Lives
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import TailTotal

TPS = [TopicPartition(UUID(int=1), index) for index in range(2)]
STEPS = ("name", "read", "lose", "look", "open", "append", "durable", "leave", "take", "forget")


class Walk:
    """Does to lives what a broker may do at that moment, and keeps beside them what is known of each partition."""

    def __init__(self) -> None:
        self.lives = Lives(StreamId(NodeId(2), BrokerEpoch(1)))
        self.epochs = dict.fromkeys(TPS, 1)
        self.stopped: set[TopicPartition] = set()
        self.closing: list[Partition] = []

    def step(self, step: str, tp: TopicPartition) -> None:
        open_one = self.lives.appending.get(tp)
        match step:
            case "name" if open_one is None:
                self.epochs[tp] += 1
                self.lives.want(tp, (Range(node_id=1, broker_epoch=1, leader_epoch=self.epochs[tp], end=10),))
            case "read" if (ranges := self.lives.unread.get(tp)) is not None:
                self.lives.read({tp: ranges}, {tp: Inheritance()})
                if self.lives.found(tp).stopped is None and self._state(tp) is not PartitionState.RESTORING:
                    self.stopped.discard(tp)
            case "lose" if open_one is None:
                self.lives.stop(tp, PartitionStopped("something is missing"))
                self.stopped.add(tp)
            case "look":
                assert set(self.lives.look_again(lambda _, ranges: ranges)) <= self.stopped
            case "open" if open_one is None and self.lives.found(tp).stopped is None:
                self.epochs[tp] += 1
                self.lives.open(self._recovered(tp))
                self.stopped.discard(tp)
            case "append" if open_one is not None:
                open_one.next_offset = Offset(open_one.next_offset + 1)
            case "durable":
                for partition in [*self.closing, *self.lives.appending.values()]:
                    partition.high_watermark = partition.next_offset
                    if partition.state is PartitionState.CLOSING:
                        partition._closed_if_durable()
                self.closing.clear()
                self.lives.close()
            case "leave" if open_one is not None:
                self.lives.leave(open_one)
                self.closing.append(open_one)
                self.lives.forget(tp)
            case "leave":
                self.lives.leave_unopened(tp, LeaderEpoch(self.epochs[tp]))
                self.lives.forget(tp)
                self.stopped.discard(tp)
            case "take" if open_one is not None:
                self.lives.take_away(open_one)
                self.lives.forget(tp)
            case "forget" if open_one is None:
                self.lives.forget(tp)
                self.stopped.discard(tp)

    def check(self) -> None:
        lives = self.lives
        current = lives._current
        assert set(lives.appending) == {tp for tp, life in current.items() if life.state is PartitionState.APPENDING}
        assert all(current[tp].partition is partition for tp, partition in lives.appending.items())
        assert all(life.found is None for life in current.values() if life.partition is not None)
        may_be_read = {PartitionState.UNREAD, PartitionState.STOPPED, PartitionState.RESTORING}
        assert {current[tp].state for tp in lives.unread} <= may_be_read
        assert {tp for tp, life in current.items() if life.state is PartitionState.UNREAD} <= set(lives.unread)
        assert lives.stopped_count == len(self.stopped)
        for tp, left in lives.left():
            assert left
            for epoch, life in left.items():
                assert (life.tp, life.leader_epoch) == (tp, epoch)
                assert life.state in (PartitionState.CLOSING, PartitionState.CLOSED)
                assert (life.partition is None) == (life.end != NOT_YET)
                assert (life.partition is None) != (life in lives._closing)

    def _state(self, tp: TopicPartition) -> PartitionState:
        return self.lives._current[tp].state

    def _recovered(self, tp: TopicPartition) -> Partition:
        epoch = LeaderEpoch(self.epochs[tp])
        partition = Partition(tp, leader_epoch=epoch, config=resolve({}, {}), ranges=(), total=TailTotal())
        partition.start()
        partition.recovered()
        return partition


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(TPS)), min_size=20, max_size=80))
def test_what_is_known_of_partitions_agrees_whatever_happens_to_them(steps: list[tuple[str, TopicPartition]]) -> None:
    walk = Walk()
    for step, tp in steps:
        walk.step(step, tp)
        walk.check()
