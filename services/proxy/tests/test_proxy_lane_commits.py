"""Which topic an offset without an epoch is of: asked of owners that may know more of a partition than this proxy does."""

import pytest
from proxy_in_memory import CountingRng, MemoryOwner

from bmq.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from bmq.metadata.image import PartitionMeta, Topic
from bmq.roles.owner import EpochEnd, OffsetForTime
from bmq.storage.leader_epochs import EpochHistory, EpochStart, epoch_end
from bmq.values import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from bmq.wire.message import Message
from bmq_proxy.lanes.stale_commits import told_apart
from bmq_sim.loop import on_virtual_time

RNG = CountingRng()


class HistoricOwner(MemoryOwner):
    """Answers as the broker does, by each partition's epochs and end."""

    def __init__(self, logs: dict[TopicId, tuple[EpochHistory, int]]) -> None:
        super().__init__()
        self.histories = logs

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        history, log_end = self.histories[tp.topic_id]
        if 0 <= current_leader_epoch < history[-1].epoch:
            raise FencedLeaderEpoch("it is over")
        if current_leader_epoch > history[-1].epoch:
            raise UnknownLeaderEpoch("it is not known yet")
        epoch, end = epoch_end(history, leader_epoch, log_end=log_end)
        return EpochEnd(leader_epoch=LeaderEpoch(epoch), end_offset=Offset(end))

    async def offset_for_time(
        self, tp: TopicPartition, timestamp_ms: int, *, current_leader_epoch: int = -1, committed: bool = False
    ) -> OffsetForTime:
        assert (timestamp_ms, current_leader_epoch) == (-1, -1)
        history, log_end = self.histories[tp.topic_id]
        return OffsetForTime(offset=Offset(log_end), timestamp_ms=-1, leader_epoch=LeaderEpoch(history[-1].epoch))


def topic(name: str, leader_epoch: int) -> Topic:
    meta = PartitionMeta(node_id=NodeId(1), leader_epoch=LeaderEpoch(leader_epoch))
    return Topic(topic_id=TopicId(RNG.uuid()), name=name, partitions=(meta,))


@pytest.mark.parametrize(("offset", "is_the_bases"), [(8, False), (12, True)])
@pytest.mark.parametrize("known", [7, 8], ids=["behind", "up to date"])
@on_virtual_time
async def test_an_offset_within_the_lanes_log_stays_the_lanes_though_this_proxy_has_yet_to_hear_of_the_logs_newest_epoch(
    known: int, offset: int, is_the_bases: bool
) -> None:
    own, base = topic("dev:orders", known), topic("orders", 2)
    owner = HistoricOwner({own.topic_id: ((EpochStart(7, 0), EpochStart(8, 5)), 10), base.topic_id: ((EpochStart(2, 0),), 100)})
    one = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)
    request = Message(group_id="g", topics=[Message(name="orders", topic_id=None, partitions=[one])])
    lanes, bases = await told_apart(request, lambda _: own, lambda _: base, lambda _: owner)
    assert (bases is not None) == is_the_bases
    assert (lanes is None) == (bases is not None)
