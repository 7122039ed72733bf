"""One connection: order, overlap, bounds, and what ends it."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
import uvloop
from proxy_in_memory import Client, Running, batch, fetch_request, running_proxy

from bmq.errors import NotOwner, NotReady, OutOfOrderSequence, StoreUnavailable
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

Test = Callable[[Running, Client], Awaitable[None]]


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"], autouse=True)
def _on_both_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """They differ in when they read and in how they write: uvloop is what runs, asyncio what the simulator is like."""
    asyncio.set_event_loop_policy(request.param())
    yield
    asyncio.set_event_loop_policy(None)


def run(test: Test, settings: ProxySettings | None = None) -> None:
    async def main() -> None:
        async with running_proxy(settings) as proxy:
            proxy.metadata.add_topic("orders", 2)
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until something has happened."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def nothing_comes(client: Client) -> bool:
    """Whether an answer stays away while the loop turns many times."""
    waiting = asyncio.ensure_future(client.reader.read(1))
    for _ in range(200):
        await asyncio.sleep(0)
    silent = not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return silent


def codes(message: Any) -> list[int]:
    return [one.error_code for topic in message.responses for one in topic.partition_responses]


def test_produce_requests_overlap_and_are_answered_in_order() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        sent = [client.send_produce("orders", {0: batch(b"%d" % n)}) for n in range(5)]
        await until(lambda: len(proxy.owner.held) == 5)
        for last in (4, 3, 2, 1):
            proxy.owner.held.pop(last)()
        assert await nothing_comes(client)
        proxy.owner.let_go()
        answers = [await client.receive() for _ in sent]
        assert [number for number, _ in answers] == sent
        assert [one.responses[0].partition_responses[0].base_offset for _, one in answers] == [0, 1, 2, 3, 4]

    run(test)


def test_any_other_request_waits_until_everything_before_it_is_answered() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        first = client.send_produce("orders", {0: batch(b"a")})
        ends = client.send(2, 7, {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]})
        second = client.send_produce("orders", {0: batch(b"b")})
        await until(lambda: len(proxy.owner.held) == 1)
        assert await nothing_comes(client)
        assert len(proxy.owner.held) == 1, "a Produce behind another request waits, too"
        proxy.owner.let_go()
        assert (await client.receive())[0] == first
        number, message = await client.receive()
        assert (number, message.topics[0].partitions[0].offset) == (ends, 1)
        await until(lambda: len(proxy.owner.held) == 1)
        proxy.owner.let_go()
        assert (await client.receive())[0] == second

    run(test)


def test_a_waiting_fetch_holds_back_only_its_own_connection() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=10_000))
        client.send_produce("orders", {1: batch(b"a")})
        await until(lambda: proxy.owner.reads == 1)
        other = await proxy.connect()
        other.send_produce("orders", {0: batch(b"b")})
        assert codes((await other.receive())[1]) == [0]
        assert (await client.receive())[1].responses[0].partitions[0].high_watermark == 1
        assert codes((await client.receive())[1]) == [0]

    run(test)


def test_acks_0_is_not_answered_and_an_error_of_it_closes_the_connection() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send_produce("orders", {0: batch(b"a")}, acks=0)
        asked = client.send(3, 9, {"topics": None})
        assert (await client.receive())[0] == asked
        assert len(proxy.owner.appended) == 1
        client.send_produce("none", {0: batch(b"a")}, acks=0)
        assert await client.closed()

    run(test)


def test_time_up_is_said_to_the_client_while_the_frame_stays_counted() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        memory = proxy.role.server.endpoint.request_memory
        client.send_produce("orders", {0: batch(b"a" * 5_000)}, timeout_ms=20)
        assert codes((await client.receive())[1]) == [ErrorCode.request_timed_out]
        assert memory.held_bytes > 5_000
        proxy.owner.let_go()
        await until(lambda: memory.held_bytes == 0)

    run(test)


def test_a_client_that_goes_away_leaves_no_memory_behind() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        endpoint = proxy.role.server.endpoint
        client.send_produce("orders", {0: batch(b"a")})
        other = await proxy.connect()
        other.send(1, 12, fetch_request("orders", 1, 0, max_wait_ms=60_000))
        other.send_produce("orders", {1: batch(b"b")})
        await until(lambda: len(proxy.owner.held) == 1 and proxy.owner.reads == 1)
        client.close()
        other.close()
        await until(lambda: not endpoint.connections)
        proxy.owner.let_go()
        await until(lambda: endpoint.request_memory.held_bytes == 0 and endpoint.in_flight == 0)

    run(test)


def test_no_frame_is_read_while_memory_is_used_up() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        memory = proxy.role.server.endpoint.request_memory
        client.send_produce("orders", {0: batch(b"a" * 600_000)})
        await until(lambda: len(proxy.owner.held) == 1)
        assert not memory.has_room
        other = await proxy.connect()
        other.send_produce("orders", {1: batch(b"b" * 3_000_000)})
        assert await nothing_comes(other)
        assert len(proxy.owner.held) == 1
        assert memory.held_bytes < 700_000
        proxy.owner.let_go()
        await client.receive()
        await until(lambda: len(proxy.owner.held) == 1)
        proxy.owner.let_go()
        assert codes((await other.receive())[1]) == [0]

    run(test, ProxySettings(request_memory_bytes=500_000))


def test_a_claim_to_be_large_holds_up_nobody() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        for _ in range(20):
            hostile = await proxy.connect()
            hostile.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(1_000))
        await until(lambda: endpoint.arriving.held_bytes > 0)
        client.send_produce("orders", {0: batch(b"a" * 400_000)})
        assert codes((await client.receive())[1]) == [0]
        assert endpoint.arriving.held_bytes <= 20 * 4_096

    run(test, ProxySettings(request_memory_bytes=500_000))


def test_who_fills_memory_with_half_requests_is_cut_off_when_others_wait_for_it() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        hostile = await proxy.connect()
        hostile.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(900_000))
        await until(lambda: endpoint.arriving.held_bytes > 500_000)
        client.send_produce("orders", {0: batch(b"a" * 400_000)})
        assert await nothing_comes(client)
        endpoint.relieve()
        assert await nothing_comes(client)
        for connection in endpoint.connections:
            if connection._intake._arriving_bytes > 500_000:
                connection._intake.arrived_at -= 3
        endpoint.relieve()
        assert await hostile.closed()
        assert codes((await client.receive())[1]) == [0]
        assert endpoint.arriving.held_bytes == 0

    run(test, ProxySettings(request_memory_bytes=500_000))


def test_requests_in_flight_of_one_connection_are_bounded() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        for n in range(200):
            client.send_produce("orders", {0: batch(b"%d" % n * 50)})
            await client.writer.drain()
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(proxy.owner.held) < 100
        proxy.owner.hold = False
        while proxy.owner.held:
            proxy.owner.let_go()
        for _ in range(200):
            await client.receive()
        assert len(proxy.owner.appended) == 200

    run(test, ProxySettings(requests_in_flight_max=4))


def slow_reader() -> socket.socket:
    quiet = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    quiet.setblocking(False)
    return quiet


def test_a_reader_that_stops_reading_costs_one_response() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for _ in range(16):
            client.send_produce("orders", {0: batch(b"a" * 1_000_000)})
            await client.receive()
        loop = asyncio.get_running_loop()
        quiet = slow_reader()
        await loop.sock_connect(quiet, (proxy.role.host, proxy.role.port))
        reader, writer = await asyncio.open_connection(sock=quiet, limit=1_024)
        stuck = Client(reader, writer)
        for _ in range(5):
            stuck.send(1, 12, fetch_request("orders", 0, 0, partition_max_bytes=16 << 20))
        memory = proxy.role.proxy.reader.memory
        await until(lambda: memory.held_bytes > 0)
        for _ in range(500):
            await asyncio.sleep(0)
        assert proxy.owner.reads == 1, "no further request is started"
        assert 15_000_000 < memory.held_bytes < 17_000_000
        assert codes(await client_produces(client)) == [0]
        writer.transport.abort()
        await until(lambda: memory.held_bytes == 0)

    run(test)


async def client_produces(client: Client) -> Any:
    client.send_produce("orders", {1: batch(b"b")})
    return (await client.receive())[1]


class Watched(bytearray):
    """Records that can be seen going."""


def test_who_waits_for_memory_keeps_nothing_that_it_has_read_alive() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send_produce("orders", {0: batch(b"a" * 300_000)})
        await client.receive()
        handed_out: list[weakref.ref[Watched]] = []
        read_tail = proxy.owner.read_tail

        async def hands_out_copies(requests: Any, **options: Any) -> Any:
            answers = []
            for answer in await read_tail(requests, **options):
                copies = tuple(map(Watched, answer.batches))
                handed_out.extend(map(weakref.ref, copies))
                answers.append(replace(answer, batches=copies))
            return answers

        proxy.owner.read_tail = hands_out_copies  # type: ignore[method-assign]
        memory = proxy.role.proxy.reader.memory
        held_bytes = memory.limit_bytes - 1
        memory.hold(held_bytes)
        client.send(1, 12, fetch_request("orders", 0, 0))
        await until(lambda: memory.is_waited_for)
        await until(lambda: proxy.owner.reads >= 2)
        gc.collect()
        assert handed_out
        assert all(one() is None for one in handed_out)
        memory.release(held_bytes)
        _, answer = await client.receive()
        assert len(answer.responses[0].partitions[0].records) > 300_000

    run(test)


def test_a_bug_that_every_request_meets_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(proxy: Running, client: Client) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError("a bug")

        monkeypatch.setattr(proxy.owner, "append", fails)
        with structlog.testing.capture_logs() as logs:
            for _ in range(50):
                client.send_produce("orders", {0: batch(b"a"), 1: batch(b"b")})
            for _ in range(50):
                assert codes((await client.receive())[1]) == [ErrorCode.unknown_server_error] * 2
        assert [(line["event"], line["left_out"]) for line in logs] == [("append failed", 0), ("request was answered with an error", 0)]
        assert {line["request_id"] for line in logs} == {"c1-1"}

    run(test)


def test_requests_that_are_slow_or_time_out_are_logged_with_an_id_that_the_client_knows_too() -> None:
    async def test(proxy: Running, client: Client) -> None:
        other = await proxy.connect()
        other.client_id = "orders-writer"
        await other.ask(3, 12, {"topics": None})
        proxy.owner.hold = True
        with structlog.testing.capture_logs() as logs:
            slow = other.send_produce("orders", {0: batch(b"a")})
            await until(lambda: len(proxy.owner.held) == 1)
            sent_s = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() > sent_s + 0.05)
            proxy.owner.let_go()
            assert codes((await other.receive())[1]) == [0]
            late = other.send_produce("orders", {0: batch(b"b")}, timeout_ms=1)
            assert codes((await other.receive())[1]) == [ErrorCode.request_timed_out]
            waits = client.send(1, 11, fetch_request("orders", 1, 0, max_wait_ms=80, min_bytes=1))
            assert (await client.receive())[0] == waits
        told = [(line["event"], line["request_id"], line["api"], line["error"], line["client_id"]) for line in logs]
        assert told == [
            ("request was slow", f"c2-{slow}", "Produce", "none", "orders-writer"),
            ("request was answered with an error", f"c2-{late}", "Produce", "request_timed_out", "orders-writer"),
        ]
        assert logs[0]["took_ms"] >= 50

    run(test, ProxySettings(slow_request_ms=50))


def test_a_peer_that_takes_nothing_for_too_long_is_cut_off() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for _ in range(8):
            client.send_produce("orders", {0: batch(b"a" * 1_000_000)})
            await client.receive()
        quiet = slow_reader()
        await asyncio.get_running_loop().sock_connect(quiet, (proxy.role.host, proxy.role.port))
        reader, writer = await asyncio.open_connection(sock=quiet, limit=1_024)
        Client(reader, writer).send(1, 12, fetch_request("orders", 0, 0, partition_max_bytes=16 << 20))
        endpoint = proxy.role.server.endpoint
        await until(lambda: any(connection.stalled_at is not None for connection in endpoint.connections))
        for connection in endpoint.connections:
            if connection.stalled_at is not None:
                connection.stalled_at -= 61
        endpoint.sweep()
        await until(lambda: len(endpoint.connections) == 1)
        assert proxy.role.proxy.reader.memory.held_bytes == 0
        writer.transport.abort()

    run(test)


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        waiting = await proxy.connect()
        waiting.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=60_000))
        await until(lambda: proxy.owner.reads == 1 and len(endpoint.connections) == 2)
        for connection in endpoint.connections:
            connection.active_at -= 601
        endpoint.sweep()
        assert await client.closed()
        assert len(endpoint.connections) == 1

    run(test)


def test_connections_above_the_limit_are_closed_at_once() -> None:
    async def test(proxy: Running, client: Client) -> None:
        await client.ask(3, 9, {"topics": None})
        other = await proxy.connect()
        assert await other.closed()
        await client.ask(3, 9, {"topics": None})

    run(test, ProxySettings(connections_max=1))


@pytest.mark.parametrize(
    "garbage",
    [
        bytes.fromhex("16030100c8010000c40303") + bytes(50),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x7f\xff\xff\xff" + bytes(20),
        b"\xff\xff\xff\xff" + bytes(20),
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0e\x00\x01\x00\x63\x00\x00\x00\x01\xff\xff" + bytes(4),
        b"\x00\x00\x00\x10\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\x0f\x00",
    ],
    ids=["tls", "http", "huge", "negative", "unknown-api", "unknown-version", "header-tags"],
)
def test_what_is_not_the_protocol_ends_the_connection_and_disturbs_nobody(garbage: bytes) -> None:
    async def test(proxy: Running, client: Client) -> None:
        hostile = await proxy.connect()
        hostile.writer.write(garbage)
        assert await hostile.closed()
        await client.ask(3, 9, {"topics": None})
        assert proxy.role.server.endpoint.request_memory.held_bytes == 0

    run(test)


def test_what_was_not_applied_is_sent_again_in_order() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening"), NotReady("opening"), NotOwner("moved")]
        sent = [client.send_produce("orders", {0: batch(b"%d" % n)}) for n in range(4)]
        answers = [await client.receive() for _ in sent]
        assert [codes(one) for _, one in answers] == [[0]] * 4
        assert [one.responses[0].partition_responses[0].base_offset for _, one in answers] == [0, 1, 2, 3]

    run(test)


def test_what_may_have_been_applied_is_not_sent_again() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for error, code in (
            (StoreUnavailable("down"), ErrorCode.kafka_storage_error),
            (OutOfOrderSequence("gap"), ErrorCode.out_of_order_sequence_number),
        ):
            proxy.owner.refuse = [error]
            client.send_produce("orders", {0: batch(b"a")})
            assert codes((await client.receive())[1]) == [code]
        assert proxy.owner.appended == []

    run(test)


def test_a_batch_that_is_given_up_is_not_sent_afterwards() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening")] * 1_000
        client.send_produce("orders", {0: batch(b"a")}, timeout_ms=60)
        [code] = codes((await client.receive())[1])
        assert code in (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower)
        proxy.owner.refuse = []
        client.send_produce("orders", {0: batch(b"b")})
        assert (await client.receive())[1].responses[0].partition_responses[0].base_offset == 0
        topic = proxy.metadata.image.topic("orders")
        assert topic is not None
        assert proxy.owner.appended == [(TopicPartition(topic.topic_id, 0), 0)]
        assert proxy.role.server.endpoint.request_memory.held_bytes == 0

    run(test)


def test_stopping_lets_what_is_in_flight_finish() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            client = await proxy.connect()
            proxy.owner.hold = True
            client.send_produce("orders", {0: batch(b"a")})
            await until(lambda: len(proxy.owner.held) == 1)
            stopping = asyncio.create_task(proxy.role.stop(grace_s=10))
            await asyncio.sleep(0)
            proxy.owner.let_go()
            assert codes((await client.receive())[1]) == [0]
            await stopping
            assert await client.closed()

    asyncio.run(main())


def test_what_comes_while_stopping_is_not_begun_and_its_connection_ends_behind_the_last_answer() -> None:
    """So that whoever sent it may send it again: it certainly was not applied."""

    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            client, idle = await proxy.connect(), await proxy.connect()
            proxy.owner.hold = True
            client.send_produce("orders", {0: batch(b"a")})
            await until(lambda: len(proxy.owner.held) == 1)
            stopping = asyncio.create_task(proxy.role.stop(grace_s=10))
            assert await idle.closed(), "nothing is waited for there"
            client.send_produce("orders", {0: batch(b"b")})
            for _ in range(100):
                await asyncio.sleep(0)
            proxy.owner.let_go()
            assert codes((await client.receive())[1]) == [0]
            assert await client.closed()
            await stopping
            assert len(proxy.owner.appended) == 1

    asyncio.run(main())


def test_a_long_poll_does_not_hold_up_a_stop() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            client = await proxy.connect()
            client.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=60_000))
            await until(lambda: proxy.role.server.endpoint.in_flight == 1)
            async with asyncio.timeout(5):
                await asyncio.gather(proxy.role.stop(grace_s=60), client.closed())

    asyncio.run(main())
