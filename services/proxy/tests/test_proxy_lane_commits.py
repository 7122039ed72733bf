"""Which topic an offset without an epoch is of: asked of owners that may know more of a partition than this proxy
does.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from proxy_in_memory import CountingRng, MemoryOwner

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET
from bmq.errors import FencedLeaderEpoch, NotOwner, UnknownLeaderEpoch
from bmq.metadata.image import PartitionMeta, Topic
from bmq.roles.owner import EpochEnd, OffsetForTime
from bmq.storage.leader_epochs import EpochHistory, EpochStart, epoch_end
from bmq.values import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from bmq.wire.message import Message
from bmq_proxy.lanes.stale_commits import CODE, OWNERS_AT_ONCE, joined, take_out_stale, told_apart, with_stale
from bmq_sim.loop import on_virtual_time

RNG = CountingRng()


async def step(_: int) -> None:
    """It is always this request's turn."""


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
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
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
async def test_an_offset_within_the_lanes_log_stays_the_lanes_before_its_newest_epoch_is_heard_of(
    known: int, offset: int, is_the_bases: bool
) -> None:
    own, base = topic("dev:orders", known), topic("orders", 2)
    owner = HistoricOwner(
        {own.topic_id: ((EpochStart(7, 0), EpochStart(8, 5)), 10), base.topic_id: ((EpochStart(2, 0),), 100)}
    )
    one = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)
    request = Message(group_id="g", topics=[Message(name="orders", topic_id=None, partitions=[one])])
    lanes, bases = await told_apart(request, lambda _: own, lambda _: base, lambda _: owner, step=step)
    assert (bases is not None) == is_the_bases
    assert (lanes is None) == (bases is not None)


def committed(*offsets: tuple[int, int, int], name: str = "orders") -> Message:
    """A commit of (partition, offset, epoch) each."""
    parts = [
        Message(partition_index=at, committed_offset=offset, committed_leader_epoch=epoch)
        for at, offset, epoch in offsets
    ]
    return Message(group_id="g", topics=[Message(name=name, topic_id=None, partitions=parts)])


def offsets_in(request: Message) -> list[tuple[int, int]]:
    return [(one.partition_index, one.committed_offset) for topic in request.topics for one in topic.partitions]


@pytest.mark.parametrize(
    ("offset", "epoch", "is_stale"),
    [
        (3, 9, False),  # of the epoch that this proxy takes for the newest
        (9, 9, False),
        (5, 8, False),  # up to where its epoch ends
        (6, 8, True),  # beyond it: it was read elsewhere
        (4, 2, True),  # of the base's epochs, which end where the topic begins
        (0, 2, False),  # nothing is skipped by it
        (50, -1, False),  # told apart elsewhere
    ],
)
@on_virtual_time
async def test_an_offset_beyond_the_end_of_its_epoch_is_taken_out_of_a_commit_and_no_other(
    offset: int, epoch: int, is_stale: bool
) -> None:
    own = topic("dev:orders", 9)
    owner = HistoricOwner({own.topic_id: ((EpochStart(7, 0), EpochStart(8, 0), EpochStart(9, 5)), 10)})
    left, stale = await take_out_stale(committed((0, offset, epoch)), lambda _: own, lambda _: owner, step=step)
    assert stale == ({"orders": [0]} if is_stale else {})
    assert offsets_in(left) == ([] if is_stale else [(0, offset)])


@pytest.mark.timeout(30)
@on_virtual_time
async def test_a_commit_of_very_many_stale_partitions_is_not_compared_with_all_of_them_for_each() -> None:
    parts = [
        Message(partition_index=index, committed_offset=READING_LANES_FIRST_OFFSET, committed_leader_epoch=-1)
        for index in range(90_000)
    ]
    asked = Message(group_id="g", topics=[Message(name="t", topic_id=None, partitions=parts)])
    turns = 0

    async def counted(elements: int) -> None:
        nonlocal turns
        turns += elements

    left, stale = await take_out_stale(asked, lambda _: None, MemoryOwner, step=counted)
    assert (left.topics, len(stale["t"]), turns) == ([], 90_000, 2 * 90_001)


@on_virtual_time
async def test_an_owner_is_asked_by_few_at_a_time_however_many_partitions_a_commit_names() -> None:
    tasks = 0

    class Slow(MemoryOwner):
        async def offset_for_time(self, tp: TopicPartition, *_: Any, **__: Any) -> OffsetForTime:
            nonlocal tasks
            tasks = max(tasks, len(asyncio.all_tasks()))
            await asyncio.sleep(0.001)
            return OffsetForTime(offset=Offset(3), timestamp_ms=-1, leader_epoch=LeaderEpoch(1))

    parts = [Message(partition_index=0, committed_offset=5, committed_leader_epoch=-1) for _ in range(500)]
    asked = Message(group_id="g", topics=[Message(name="t", topic_id=None, partitions=parts)])
    topic = Topic(topic_id=TopicId(RNG.uuid()), name="t", partitions=(PartitionMeta(node_id=NodeId(1)),), configs={})
    owner = Slow()
    own, bases = await told_apart(asked, lambda _: topic, lambda _: topic, lambda _: owner, step=step)
    assert own is not None and bases is None
    assert tasks <= OWNERS_AT_ONCE + 2


@on_virtual_time
async def test_of_a_commit_of_several_partitions_what_is_stale_is_refused_and_the_rest_is_stored() -> None:
    own, other = topic("dev:orders", 9), topic("dev:other", 9)
    own = replace(own, partitions=own.partitions * 3)
    owner = HistoricOwner(
        {own.topic_id: ((EpochStart(7, 0), EpochStart(9, 5)), 10), other.topic_id: ((EpochStart(9, 0),), 10)}
    )
    request = committed((0, 6, 7), (1, 4, 7), (2, 8, 9), (7, 1, 7))
    request.topics.append(committed((0, 1, 2), name="other").topics[0])
    request.topics.append(committed((0, 1, 2), name="not the lane's").topics[0])
    topics = {"orders": own, "other": other}
    left, stale = await take_out_stale(request, topics.get, lambda _: owner, step=step)
    assert stale == {"orders": [0], "other": [0]}
    assert {(asked.name, one.partition_index) for asked in left.topics for one in asked.partitions} == {
        ("orders", 1),
        ("orders", 2),
        ("orders", 7),
        ("not the lane's", 0),
    }
    assert left.group_id == "g"
    stored = {
        "topics": [{"name": "orders", "partitions": [{"partition_index": at, "error_code": 0} for at in (1, 2, 7)]}]
    }
    answer = with_stale(stored, stale)
    codes = {
        (one["name"], part["partition_index"]): part["error_code"]
        for one in answer["topics"]
        for part in one["partitions"]
    }
    assert codes == {("orders", 1): 0, ("orders", 2): 0, ("orders", 7): 0, ("orders", 0): CODE, ("other", 0): CODE}
    assert [part["partition_index"] for part in stored["topics"][0]["partitions"]] == [1, 2, 7], (
        "another's answer is left as it was"
    )


@pytest.mark.parametrize("epoch", [-1, 9])
@on_virtual_time
async def test_an_offset_of_the_lanes_own_topic_is_none_of_the_bases_once_that_is_deleted(epoch: int) -> None:
    request = committed((0, READING_LANES_FIRST_OFFSET, epoch), (1, READING_LANES_FIRST_OFFSET - 1, epoch))
    left, stale = await take_out_stale(request, lambda _: None, lambda _: HistoricOwner({}), step=step)
    assert (offsets_in(left), stale) == ([(1, READING_LANES_FIRST_OFFSET - 1)], {"orders": [0]})


@on_virtual_time
async def test_an_offset_is_kept_where_no_owner_can_say_what_its_epoch_was() -> None:
    own = topic("dev:orders", 9)

    def nobody(_: TopicPartition) -> HistoricOwner:
        raise NotOwner("it moves")

    left, stale = await take_out_stale(committed((0, 60, 7)), lambda _: own, nobody, step=step)
    assert (offsets_in(left), stale) == ([(0, 60)], {})


def test_answers_to_two_parts_of_one_commit_are_one_with_each_partition_once() -> None:
    first = {"throttle_time_ms": 1, "topics": [{"name": "a", "partitions": [{"partition_index": 0, "error_code": 0}]}]}
    second = {
        "topics": [
            Message(name="b", partitions=[1]),
            {"name": "a", "partitions": [{"partition_index": 1, "error_code": 3}]},
        ]
    }
    answer = joined(first, second)
    assert answer["throttle_time_ms"] == 1
    assert {one["name"]: len(one["partitions"]) for one in answer["topics"]} == {"a": 2, "b": 1}
