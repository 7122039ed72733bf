"""Fetch in a lane: of a topic that nobody there has written to yet, and of the base's while the lane reads that."""

import asyncio
from typing import Any

import pytest
from proxy_in_memory import Client, Running, batch, fetch_request
from test_proxy_lane_produce import Gate, codes, in_lane

from bmq.metadata.image import Lane, Topic
from bmq.values import TopicPartition
from bmq.wire.batch_headers import split
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.fetch.answers import Found
from bmq_proxy.lanes.rate import RateCap
from bmq_proxy.lanes.reading import BaseEnds

WAIT_MS = 60_000


async def fetched(client: Client, offset: int, **options: Any) -> tuple[int, list[int], int]:
    """(error, base offsets, high watermark) of partition 0."""
    [topic] = (await client.ask(1, 12, fetch_request("orders", 0, offset, **options))).responses
    [partition] = topic.partitions
    return (
        partition.error_code,
        [header.base_offset for header in split(partition.records or b"")],
        partition.high_watermark,
    )


async def second_client(proxy: Running) -> Client:
    client = await proxy.connect()
    client.client_id = "lane=dev,writer"
    return client


def test_a_reader_of_what_nobody_has_written_to_waits_and_is_woken_by_the_first_write() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        writer = await second_client(proxy)
        assert await fetched(client, 0) == (0, [], 0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        waiting = asyncio.ensure_future(fetched(client, 0, max_wait_ms=WAIT_MS))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        writer.send_produce("orders", {0: batch(b"first")})
        assert codes((await writer.receive())[1]) == [0]
        assert (await waiting)[0] == 0
        assert loop.time() - began_s < 5
        assert await fetched(client, 0) == (0, [0], 1)

    in_lane(test)


def test_who_waits_in_a_lane_that_is_deleted_is_answered_at_once() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        client.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=WAIT_MS))
        await asyncio.sleep(0.1)
        proxy.metadata.change(lanes={})
        await asyncio.wait_for(client.receive(), 10)

    in_lane(test)


def test_where_the_bases_partitions_end_is_kept_once_for_all_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[BaseEnds] = []
    remember = BaseEnds.remember

    def recorded(ends: BaseEnds, tp: TopicPartition, found: Found) -> None:
        kept.append(ends)
        remember(ends, tp, found)

    monkeypatch.setattr(BaseEnds, "remember", recorded)

    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        lanes = {
            name: Lane(name=name, number=number, created_ms=0, reads_base=("orders",), reads_base_bytes_per_s=1)
            for number, name in enumerate(("dev", "test"), 1)
        }
        proxy.metadata.change(lanes=lanes)
        for number in range(3):
            proxy.owner.append(_tp(base), memoryview(batch(b"%d" % number)), produce_version=9)
        other = await proxy.connect()
        other.client_id = "lane=test,reader"
        for one in (client, other):
            assert await fetched(one, 0) == (0, [0], 3)  # a lane's first batch comes whole
        for one in (client, other):
            assert await fetched(one, 1) == (0, [], 3)
        assert len(kept) >= 2 and len(set(map(id, kept))) == 1
        assert kept[0].of([_tp(base)]).keys() == {_tp(base)}

    in_lane(test)


def test_an_offset_that_an_unwritten_topic_does_not_have_is_out_of_range_at_once() -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        proxy.owner.append(_tp(base), memoryview(batch(b"the base's")), produce_version=9)
        began_s = asyncio.get_running_loop().time()
        assert await fetched(client, 1, max_wait_ms=WAIT_MS) == (ErrorCode.offset_out_of_range, [], -1)
        assert asyncio.get_running_loop().time() - began_s < 5
        assert await fetched(client, 0) == (0, [], 0), "none of the base's"

    in_lane(test)


@pytest.mark.parametrize("bytes_per_s", [1 << 20, 1])
def test_a_lane_that_reads_the_base_gets_its_records_at_its_rate_until_it_has_its_own(bytes_per_s: int) -> None:
    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        gate.open.set()
        proxy.metadata.change(
            lanes={
                "dev": Lane(
                    name="dev", number=1, created_ms=0, reads_base=("orders",), reads_base_bytes_per_s=bytes_per_s
                )
            }
        )
        for number in range(3):
            proxy.owner.append(_tp(base), memoryview(batch(b"%d" % number)), produce_version=9)
        error, offsets, end = await fetched(client, 0)
        assert (error, end) == (0, 3)
        if bytes_per_s == 1:  # the first batch comes whole, and is paid for afterwards
            assert offsets == [0]
            for _ in range(3):
                assert await fetched(client, 1) == (0, [], 3)
        else:
            assert offsets == [0, 1, 2]
        writer = await second_client(proxy)
        writer.send_produce("orders", {0: batch(b"the lane's")})
        assert codes((await writer.receive())[1]) == [0]
        assert [len(proxy.owner.log(_tp(base)).batches)] == [3]
        made = proxy.metadata.image.topic("dev:orders")
        assert made is not None
        assert await fetched(client, 0) == (0, [0], 1)
        assert len(proxy.owner.log(_tp(made)).batches) == 1

    in_lane(test)


def test_what_is_told_of_partitions_while_nothing_may_be_read_costs_none_of_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It read a batch of each, threw it away, and nobody in the lane read anything until that was paid for."""
    settled: list[tuple[int, int]] = []
    settle = RateCap.settle

    def recorded(cap: RateCap, granted: int, used: int) -> None:
        settled.append((granted, used))
        settle(cap, granted, used)

    monkeypatch.setattr(RateCap, "settle", recorded)

    async def test(proxy: Running, client: Client, gate: Gate, base: Topic) -> None:
        proxy.metadata.change(
            lanes={"dev": Lane(name="dev", number=1, created_ms=0, reads_base=("orders",), reads_base_bytes_per_s=1)}
        )
        for partition in range(2):
            for _ in range(3):
                proxy.owner.append(
                    TopicPartition(base.topic_id, partition), memoryview(batch(bytes(1_000))), produce_version=9
                )
        assert (await fetched(client, 0))[1] == [0]  # more than a second's worth, which is paid for afterwards
        assert len(settled) == 1
        other = await second_client(proxy)
        for _ in range(3):
            [topic] = (await other.ask(1, 12, fetch_request("orders", 1, 0))).responses
            assert [(one.error_code, one.high_watermark, one.records or b"") for one in topic.partitions] == [
                (0, 3, b"")
            ]
        assert len(settled) == 1

    in_lane(test)


def _tp(topic: Topic) -> TopicPartition:
    return TopicPartition(topic.topic_id, 0)
