"""One connection: order, overlap, bounds, and what ends it."""

import asyncio

import pytest
from one_connection import codes, nothing_comes, run, slow_reader
from proxy_in_memory import Client, Running, batch, fetch_request
from tests.waiting import until_async

from bmq.wire.error_codes import ErrorCode
from bmq_proxy import metrics
from bmq_proxy.intake import SPLIT_AT_ONCE
from bmq_proxy.settings import ProxySettings

pytestmark = pytest.mark.usefixtures("both_loops")


def test_produce_requests_overlap_and_are_answered_in_order() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        sent = [client.send_produce("orders", {0: batch(b"%d" % n)}) for n in range(5)]
        await until_async(lambda: len(proxy.owner.held) == 5, "five appends at the owner")
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
        ends = client.send(
            2,
            7,
            {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        )
        second = client.send_produce("orders", {0: batch(b"b")})
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        assert await nothing_comes(client)
        assert len(proxy.owner.held) == 1, "a Produce behind another request waits, too"
        proxy.owner.let_go()
        assert (await client.receive())[0] == first
        number, message = await client.receive()
        assert (number, message.topics[0].partitions[0].offset) == (ends, 1)
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        proxy.owner.let_go()
        assert (await client.receive())[0] == second

    run(test)


def test_a_proxy_that_does_not_know_yet_what_the_cluster_is_answers_later() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.role.server.endpoint.hold()
        first = client.send_produce("orders", {0: batch(b"a")})
        second = client.send(18, 3)
        gone = await proxy.connect()
        gone.send(18, 3)
        assert await nothing_comes(client) and not proxy.owner.held
        gone.close()
        proxy.role.server.endpoint.release()
        assert [(await client.receive())[0], (await client.receive())[0]] == [first, second]
        await until_async(lambda: len(proxy.role.server.endpoint.connections) == 1, "one connection to be left")

    run(test)


def test_a_waiting_fetch_holds_back_only_its_own_connection() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=10_000))
        client.send_produce("orders", {1: batch(b"a")})
        await until_async(lambda: proxy.owner.reads == 1, "one read at the owner")
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
        await until_async(lambda: memory.held_bytes == 0, "the memory to be free")

    run(test, ProxySettings(write_timeout_ms_min=0))


def test_a_client_that_goes_away_leaves_no_memory_behind() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        endpoint = proxy.role.server.endpoint
        client.send_produce("orders", {0: batch(b"a")})
        other = await proxy.connect()
        other.send(1, 12, fetch_request("orders", 1, 0, max_wait_ms=60_000))
        other.send_produce("orders", {1: batch(b"b")})
        await until_async(
            lambda: len(proxy.owner.held) == 1 and proxy.owner.reads == 1, "one append and one read at the owner"
        )
        client.close()
        other.close()
        await until_async(lambda: not endpoint.connections, "all connections to end")
        proxy.owner.let_go()
        await until_async(
            lambda: endpoint.request_memory.held_bytes == 0 and endpoint.in_flight == 0, "no request to be left"
        )

    run(test)


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


def test_requests_that_are_answered_at_once_leave_the_loop_to_others_however_many_came_together() -> None:
    async def test(proxy: Running, client: Client) -> None:
        begun = metrics.REQUESTS.labels("ApiVersions", "none")._value.get
        sent = [client.send(18, 0, {}) for _ in range(3_000)]
        answers = asyncio.ensure_future(_answers(client, len(sent)))
        most, before = 0, begun()
        while not answers.done():
            await asyncio.sleep(0)
            now = begun()
            most, before = max(most, now - before), now
        assert await answers == sent
        assert 0 < most <= 2 * 50, "in two turns"

    run(test)


def test_who_sends_many_requests_at_once_has_one_part_of_a_turn_among_those_of_its_address() -> None:
    async def test(proxy: Running, client: Client) -> None:
        greedy = [await proxy.connect() for _ in range(5)]
        for one in greedy:
            for _ in range(1_000):
                one.send(18, 0, {})
        done = metrics.REQUESTS.labels("ApiVersions", "none")._value.get
        before = done()
        for _ in range(5):
            await asyncio.sleep(0)
        asked = client.send(18, 0, {})
        assert (await client.receive())[0] == asked
        assert done() - before < 5_000 / 2, "it waits for a few turns, not for all that was sent before"
        for one in greedy:
            await _answers(one, 1_000)

    run(test)


async def _answers(client: Client, count: int) -> list[int]:
    return [(await client.receive())[0] for _ in range(count)]


def test_no_more_is_taken_out_of_what_was_read_than_may_be_in_flight() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        sent = [client.send_produce("orders", {0: batch(b"%d" % n)}) for n in range(400)]
        await until_async(lambda: bool(proxy.owner.held), "an append at the owner")
        assert await nothing_comes(client)
        memory = proxy.role.server.endpoint.request_memory
        assert len(proxy.owner.held) <= 4 + SPLIT_AT_ONCE
        assert memory.held_bytes > 0
        proxy.owner.hold = False
        answers = asyncio.ensure_future(_answers(client, len(sent)))
        while not answers.done():
            proxy.owner.let_go(len(proxy.owner.held))
            await asyncio.sleep(0)
        assert await answers == sent
        assert memory.held_bytes == 0

    run(test, ProxySettings(requests_in_flight_max=4))


def test_a_peer_that_takes_nothing_for_too_long_is_cut_off() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for _ in range(8):
            client.send_produce("orders", {0: batch(b"a" * 1_000_000)})
            await client.receive()
        quiet = slow_reader()
        await asyncio.get_running_loop().sock_connect(quiet, (proxy.role.host, proxy.role.port))
        stuck = await Client.connect(sock=quiet, limit=1_024)
        stuck.send(1, 12, fetch_request("orders", 0, 0, partition_max_bytes=16 << 20))
        endpoint = proxy.role.server.endpoint
        await until_async(
            lambda: any(connection.stalled_at is not None for connection in endpoint.connections),
            "a connection that takes nothing",
        )
        for connection in endpoint.connections:
            if connection.stalled_at is not None:
                connection.stalled_at -= ProxySettings().write_stall_ms_max / 1000 + 1
        endpoint.sweep()
        await until_async(lambda: len(endpoint.connections) == 1, "one connection to be left")
        assert proxy.role.proxy.reader.memory.held_bytes == 0
        stuck.writer.transport.abort()

    run(test)


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        waiting = await proxy.connect()
        waiting.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=60_000))
        await until_async(
            lambda: proxy.owner.reads == 1 and len(endpoint.connections) == 2, "a read, and two connections"
        )
        for connection in endpoint.connections:
            connection.active_at -= 601
        endpoint.sweep()
        assert await client.closed()
        assert len(endpoint.connections) == 1

    run(test)


def test_for_others_who_come_the_address_with_most_connections_gives_up_idle_ones() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send(1, 12, fetch_request("orders", 0, 0, max_wait_ms=60_000))
        await until_async(lambda: proxy.owner.reads == 1, "a read")
        many = [await proxy.connect() for _ in range(5)]
        await until_async(lambda: len(proxy.role.server.endpoint.connections) == 6, "all of them")
        for connection in proxy.role.server.endpoint.connections:
            connection.active_at -= 1
        assert (await many[0].ask(3, 9, {"topics": None})).brokers
        others = []
        for number in range(3):
            others.append(await proxy.connect(local_addr=("127.0.0.2", 0)))
            assert (await others[-1].ask(3, 9, {"topics": None})).brokers
            assert await many[number + 1].closed()
        refused = await proxy.connect(local_addr=("127.0.0.2", 0))
        assert await refused.closed(), "its address has as many as the other one"
        assert (await many[0].ask(3, 9, {"topics": None})).brokers
        assert (await many[4].ask(3, 9, {"topics": None})).brokers
        third = await proxy.connect(local_addr=("127.0.0.3", 0))
        assert (await third.ask(3, 9, {"topics": None})).brokers
        assert len(proxy.role.server.endpoint.connections) == 6

    run(test, ProxySettings(connections_max=6))


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
        b"\x00\x00\x00\x18\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00\x00\xff\xff\x00\x00\x00\x01\x01\x02\x05\x00\x05\x00",
        b"\x00\x00\x00\x96\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00\x00\xff\xff\x00\x00\x00\x01\x01\x41"
        + bytes(byte for tag in range(65) for byte in (tag, 0)),
    ],
    ids=["tls", "http", "huge", "negative", "unknown-api", "unknown-version", "header-tags", "tags", "many-tags"],
)
def test_what_is_not_the_protocol_ends_the_connection_and_disturbs_nobody(garbage: bytes) -> None:
    async def test(proxy: Running, client: Client) -> None:
        hostile = await proxy.connect()
        hostile.writer.write(garbage)
        assert await hostile.closed()
        await client.ask(3, 9, {"topics": None})
        assert proxy.role.server.endpoint.request_memory.held_bytes == 0

    run(test)
