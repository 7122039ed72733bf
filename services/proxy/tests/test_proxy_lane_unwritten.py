"""What is said of a topic of a lane that nobody there has written to yet: it is empty where it will begin, and none of
it is the base's.
"""

from collections.abc import Awaitable, Callable

import pytest
from proxy_in_memory import Client, MemoryOwner, Running, batch
from test_proxy_lane_produce import Gate, codes, in_lane

from bmq.config.topic_config import FIRST_OFFSET, READING_LANES_FIRST_OFFSET
from bmq.errors import BmqError, NotOwner
from bmq.metadata.image import Lane, Topic
from bmq.roles.owner import Caller, Position, TailRequest
from bmq.values import Offset, TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.batch_headers import split
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.lanes.by_lane import ByLane
from bmq_proxy.lanes.unwritten import owner_in_lane
from bmq_proxy.lanes.views import LaneView

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = range(-1, -6, -1)
HAS_READ = {"dev": Lane(name="dev", number=1, created_ms=0, has_read_base=("orders",))}
STARTS = pytest.mark.parametrize(("lanes", "start"), [({}, 0), (HAS_READ, READING_LANES_FIRST_OFFSET)])
"""Lanes to change to, and where what they write begins: above all of the base's where they may hold offsets of that."""


def in_written_base(test: Callable[[Running, Client, TopicPartition], Awaitable[None]], lanes: dict[str, Lane]) -> None:
    """The base has five records in the partition, from 2 on; the lane's client has none."""

    async def main(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        tp = TopicPartition(base.topic_id, 0)
        for number in range(5):
            proxy.owner.append(tp, memoryview(batch(b"%d" % number)), produce_version=9)
        proxy.owner.log(tp).log_start = 2
        if lanes:
            proxy.metadata.change(lanes=lanes)
        await test(proxy, client, tp)
        assert (proxy.owner.log(tp).log_start, proxy.owner.log(tp).end) == (2, 5), "the base keeps what it has"

    in_lane(main)


async def offset_at(client: Client, timestamp: int) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch)."""
    asked = {
        "replica_id": -1,
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}],
    }
    [found] = (await client.ask(2, 7, asked)).topics[0].partitions
    return found.error_code, found.offset, found.timestamp, found.leader_epoch


@STARTS
def test_it_ends_where_it_begins_by_every_timestamp_and_its_first_record_is_there(
    lanes: dict[str, Lane], start: int
) -> None:
    async def test(proxy: Running, client: Client, tp: TopicPartition) -> None:
        ends = {
            timestamp: await offset_at(client, timestamp)
            for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)
        }
        assert set(ends.values()) == {(0, start, -1, -1)}
        assert {await offset_at(client, timestamp) for timestamp in (LARGEST_TIMESTAMP, 0, 1_000)} == {
            (0, -1, -1, -1)
        }, "no record has a time"
        client.send_produce("orders", {0: batch(b"the lane's")})
        assert codes((await client.receive())[1]) == [0]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        if not lanes:  # the owner in memory lets every topic begin at 0
            [(first, _, data)] = proxy.owner.log(TopicPartition(made.topic_id, 0)).batches
            assert [first, split(data)[0].base_offset] == [start, start]
            assert (await offset_at(client, LATEST))[1] == start + 1

    in_written_base(test, lanes)


@STARTS
def test_no_epoch_of_the_base_is_known_and_nothing_of_it_is_deleted_or_counted(
    lanes: dict[str, Lane], start: int
) -> None:
    async def test(proxy: Running, client: Client, tp: TopicPartition) -> None:
        for epoch in (0, 3, 99):
            asked = {
                "replica_id": -1,
                "topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": epoch}]}],
            }
            [end] = (await client.ask(23, 4, asked)).topics[0].partitions
            assert (end.error_code, end.leader_epoch, end.end_offset) == (0, -1, -1)
        for before in (-1, 4):
            asked = {
                "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": before}]}],
                "timeout_ms": 1_000,
            }
            [cut] = (await client.ask(21, 2, asked)).topics[0].partitions
            assert (cut.error_code, cut.low_watermark) == (ErrorCode.unknown_topic_or_partition, -1)
        [log_dir] = (await client.ask(35, 4, {"topics": [{"topic": "orders", "partitions": [0, 1]}]})).results
        assert [(one.partition_index, one.partition_size) for topic in log_dir.topics for one in topic.partitions] == [
            (0, 0),
            (1, 0),
        ]
        assert list((await client.ask(35, 4, {"topics": None})).results[0].topics) == [], "it is in no list"

    in_written_base(test, lanes)


@STARTS
def test_whoever_asks_its_owner_in_any_way_gets_nothing_and_stores_nothing(lanes: dict[str, Lane], start: int) -> None:
    async def test(proxy: Running, client: Client, base: TopicPartition) -> None:
        view = LaneView(proxy.metadata, "dev", ByLane(), own_only=False)
        owner_for = owner_in_lane(view, lambda _: proxy.owner)  # type: ignore[arg-type,return-value]
        found = view.image.topic("orders")
        assert found is not None
        assert int(found.configs.get(FIRST_OFFSET, "0")) == start
        tps = [TopicPartition(found.topic_id, partition) for partition in range(3)]
        owner = owner_for(tps[0])
        assert not isinstance(owner, MemoryOwner)
        assert isinstance(owner_for(base), MemoryOwner), "a topic that there is has its own"
        statuses = await owner.status(tps)
        assert [(one.tp, one.log_start, one.high_watermark, one.segment_count) for one in statuses] == [
            (tp, start, start, 0) for tp in tps
        ]
        unread = await owner.unread([Position(tp=tp, offset=Offset(at)) for tp in tps for at in (0, start, start + 7)])
        assert [one and (one.records, one.seconds) for one in unread] == [(0, 0.0)] * 9, "one for each, in order"
        tails = await owner.read_tail(
            [TailRequest(tp=tp, offset=Offset(start), max_bytes=1) for tp in tps],
            min_bytes=1,
            max_bytes=1,
            max_wait_ms=60_000,
        )
        assert [(one.tp, type(one.error), one.batches) for one in tails] == [(tp, NotOwner, ()) for tp in tps]
        with pytest.raises(NotOwner):
            owner.append(tps[0], memoryview(batch(b"x")), produce_version=9)
        with pytest.raises(NotOwner):
            await owner.delete_records(tps[0], Offset(-1))
        with pytest.raises(BmqError):
            await owner.group_call(0, ApiKey.HEARTBEAT, {}, Caller(client_id="", client_host=""))

    in_written_base(test, lanes)


@pytest.mark.parametrize("meanwhile", ["written to", "deleted"])
def test_who_was_found_before_it_was_written_to_or_deleted_does_not_say_that_it_is_empty(meanwhile: str) -> None:
    """A look-up may wait for its turn between the two."""

    async def test(proxy: Running, client: Client, base: TopicPartition) -> None:
        view = LaneView(proxy.metadata, "dev", ByLane(), own_only=False)
        found = view.image.topic("orders")
        assert found is not None
        tp = TopicPartition(found.topic_id, 0)
        owner = owner_in_lane(view, lambda _: proxy.owner)(tp)  # type: ignore[arg-type,return-value]
        if meanwhile == "written to":
            client.send_produce("orders", {0: batch(b"the lane's")})
            assert codes((await client.receive())[1]) == [0]
        else:
            proxy.metadata.change(topics={}, topic_ids={})
        for timestamp in (LATEST, EARLIEST, 1_000):
            with pytest.raises(NotOwner):
                await owner.offset_for_time(tp, timestamp)
        with pytest.raises(NotOwner):
            await owner.epoch_end(tp, 3)

    in_written_base(test, HAS_READ)
