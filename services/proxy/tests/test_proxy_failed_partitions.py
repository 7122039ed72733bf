"""A partition that cannot be read does not make its client ask again and again without a pause."""

import asyncio

import pytest
from one_connection import nothing_comes, run
from proxy_in_memory import Client, Running, batch, fetch_request
from tests.waiting import until_async

from bmq.errors import BmqError, NotOwner, NotReady, OffsetOutOfRange, StoreUnavailable
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.handlers.k01_fetch import FAILED_WAIT_MS

pytestmark = pytest.mark.usefixtures("both_loops")

WAITED_FOR = (NotReady("opening"), NotOwner("moved"), StoreUnavailable("down"))


def both(second: str, index: int, **options: int) -> dict[str, object]:
    """A Fetch of the first partition of `orders` and of another one."""
    request = fetch_request("orders", 0, 0, **options)
    request["topics"] += fetch_request(second, index, 0)["topics"]
    return request


def codes_of(message: object) -> list[int]:
    return [one.error_code for topic in message.responses for one in topic.partitions]  # type: ignore[attr-defined]


def partition_of(proxy: Running, index: int) -> TopicPartition:
    topic = proxy.metadata.image.topic("orders")
    assert topic is not None
    return TopicPartition(topic.topic_id, index)


@pytest.mark.parametrize(("second", "index"), [("deleted", 0), ("orders", 7)])
def test_a_fetch_of_a_partition_that_is_gone_waits_for_records_of_the_others(second: str, index: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send(1, 11, both(second, index, max_wait_ms=10_000))
        await until_async(lambda: proxy.owner.reads > 0, "a read at the owner")
        assert await nothing_comes(client)
        writer = await proxy.connect()
        writer.send_produce("orders", {0: batch(b"a")})
        _, answer = await client.receive()
        assert codes_of(answer) == [0, ErrorCode.unknown_topic_or_partition]
        assert answer.responses[0].partitions[0].records

    run(test)


def test_a_fetch_of_nothing_but_what_is_gone_pauses_before_it_says_so() -> None:
    async def test(proxy: Running, client: Client) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answer = await client.ask(1, 11, fetch_request("deleted", 0, 0, max_wait_ms=10_000))
        assert codes_of(answer) == [ErrorCode.unknown_topic_or_partition]
        assert round((loop.time() - began_s) * 1000) >= FAILED_WAIT_MS

    run(test)


@pytest.mark.parametrize("error", WAITED_FOR, ids=lambda error: type(error).__name__)
def test_a_fetch_of_a_partition_that_is_not_ready_pauses_and_is_answered_when_others_have_records(
    error: BmqError,
) -> None:
    async def test(proxy: Running, client: Client) -> None:
        loop = asyncio.get_running_loop()
        proxy.owner.unreadable[partition_of(proxy, 1)] = error
        began_s = loop.time()
        answer = await client.ask(1, 11, both("orders", 1, max_wait_ms=10_000))
        assert round((loop.time() - began_s) * 1000) >= FAILED_WAIT_MS
        assert [code == 0 for code in codes_of(answer)] == [True, False]
        client.send(1, 11, both("orders", 1, max_wait_ms=10_000))
        reads = proxy.owner.reads
        await until_async(lambda: proxy.owner.reads >= reads + 2, "two more reads at the owner")
        writer = await proxy.connect()
        writer.send_produce("orders", {0: batch(b"a")})
        _, answer = await client.receive()
        assert [code == 0 for code in codes_of(answer)] == [True, False]
        assert answer.responses[0].partitions[0].records

    run(test)


def test_a_fetch_that_does_not_wait_or_needs_its_clients_attention_is_answered_at_once() -> None:
    async def test(proxy: Running, client: Client) -> None:
        loop = asyncio.get_running_loop()
        proxy.owner.unreadable[partition_of(proxy, 1)] = NotReady("opening")
        began_s = loop.time()
        assert codes_of(await client.ask(1, 11, both("orders", 1, max_wait_ms=0)))[0] == 0
        assert codes_of(await client.ask(1, 11, both("deleted", 0, max_wait_ms=0)))[0] == 0
        proxy.owner.unreadable[partition_of(proxy, 1)] = OffsetOutOfRange("9")
        assert codes_of(await client.ask(1, 11, both("orders", 1, max_wait_ms=10_000))) == [
            0,
            ErrorCode.offset_out_of_range,
        ]
        assert loop.time() - began_s < 10
        assert proxy.owner.reads == 3

    run(test)
