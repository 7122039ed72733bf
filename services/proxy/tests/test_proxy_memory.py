"""What clients may fill of a proxy's memory, and that nobody who behaves is held up by who fills it."""

import asyncio
import gc
import tracemalloc
import weakref
from dataclasses import replace
from typing import Any

import pytest
from one_connection import codes, nothing_comes, run, slow_reader
from proxy_in_memory import Client, Running, batch, fetch_request
from tests.waiting import until_async

from bmq.config.limits import limits_of
from bmq_proxy.arriving import STILL_S_MAX, ArrivingMemory
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.settings import ProxySettings

pytestmark = pytest.mark.usefixtures("both_loops")


def test_no_frame_is_read_while_memory_is_used_up() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        memory = proxy.role.server.endpoint.request_memory
        client.send_produce("orders", {0: batch(b"a" * 600_000)})
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        assert not memory.has_room_for("127.0.0.1")
        other = await proxy.connect()
        other.send_produce("orders", {1: batch(b"b" * 3_000_000)})
        assert await nothing_comes(other)
        assert len(proxy.owner.held) == 1
        assert memory.held_bytes < 700_000
        proxy.owner.let_go()
        await client.receive()
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        proxy.owner.let_go()
        assert codes((await other.receive())[1]) == [0]

    run(test, ProxySettings(request_memory_bytes=500_000))


def test_an_address_whose_requests_wait_keeps_nobody_else_from_being_read() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        memory = proxy.role.server.endpoint.request_memory
        senders = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(12)]
        for sender in senders:
            sender.send_produce("orders", {0: batch(b"a" * 100_000)})
        await until_async(lambda: memory.held_bytes > 600_000, "600 kB to be held")
        assert await nothing_comes(senders[0])
        for _ in range(3):  # a connection that was read before brings in one
            asked = client.send(3, 9, {"topics": None})
            assert (await client.receive())[0] == asked
        while len(proxy.owner.appended) < len(senders):
            proxy.owner.let_go(len(proxy.owner.held))
            await asyncio.sleep(0)
        proxy.owner.let_go(len(proxy.owner.held))
        for sender in senders:
            assert codes((await sender.receive())[1]) == [0]
        assert memory.held_bytes == 0

    run(test, ProxySettings(request_memory_bytes=1_000_000))


def test_a_claim_to_be_large_holds_up_nobody() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        for _ in range(20):
            hostile = await proxy.connect()
            hostile.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(1_000))
        await until_async(lambda: endpoint.arriving.held_bytes > 0, "a request to arrive")
        client.send_produce("orders", {0: batch(b"a" * 400_000)})
        assert codes((await client.receive())[1]) == [0]
        assert endpoint.arriving.held_bytes <= 20 * 4_096

    run(test, ProxySettings(request_memory_bytes=500_000))


def test_who_fills_memory_with_half_requests_is_cut_off_when_others_wait_for_it() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        hostile = await proxy.connect()
        hostile.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(900_000))
        await until_async(lambda: endpoint.arriving.held_bytes > 500_000, "half a megabyte to arrive")
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


def test_a_reader_that_stops_reading_costs_one_response() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for _ in range(16):
            client.send_produce("orders", {0: batch(b"a" * 1_000_000)})
            await client.receive()
        loop = asyncio.get_running_loop()
        quiet = slow_reader()
        await loop.sock_connect(quiet, (proxy.role.host, proxy.role.port))
        stuck = await Client.connect(sock=quiet, limit=1_024)
        for _ in range(5):
            stuck.send(1, 12, fetch_request("orders", 0, 0, partition_max_bytes=16 << 20))
        memory = proxy.role.proxy.reader.memory
        await until_async(lambda: memory.held_bytes > 0, "a request to have memory")
        for _ in range(500):
            await asyncio.sleep(0)
        assert proxy.owner.reads == 1, "no further request is started"
        assert 15_000_000 < memory.held_bytes < 17_000_000
        assert codes(await client_produces(client)) == [0]
        stuck.writer.transport.abort()
        await until_async(lambda: memory.held_bytes == 0, "the memory to be free")

    run(test)


async def client_produces(client: Client) -> Any:
    client.send_produce("orders", {1: batch(b"b")})
    return (await client.receive())[1]


class Watched(bytearray):
    """Records that can be seen going."""


def test_who_waits_for_memory_keeps_nothing_that_it_has_read_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.reader.ROOM_WAIT_S", 60)  # to collect what is garbage takes its time

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
        await until_async(lambda: memory.is_waited_for, "somebody to wait for memory")
        await until_async(lambda: proxy.owner.reads >= 2, "two reads at the owner")
        gc.collect()
        assert handed_out
        assert all(one() is None for one in handed_out)
        memory.release(held_bytes)
        _, answer = await client.receive()
        assert len(answer.responses[0].partitions[0].records) > 300_000

    run(test)


def test_who_reads_little_is_answered_though_all_memory_is_used_up_and_gives_its_own_back() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.send_produce("orders", {0: batch(b"little")})
        await client.receive()
        reader = proxy.role.proxy.reader
        assert isinstance(reader, FetchReader)
        reader.memory.hold(reader.memory.limit_bytes)
        for _ in range(3):
            answer = await client.ask(1, 12, fetch_request("orders", 0, 0))
            assert len(answer.responses[0].partitions[0].records) == len(batch(b"little"))
            await until_async(lambda: not reader._small_memory.held_bytes, "the memory of small reads to be free")
        reader._small_memory.hold(reader._small_memory.limit_bytes)
        number = client.send(1, 12, fetch_request("orders", 0, 0))
        await until_async(lambda: reader.memory.is_waited_for, "somebody to wait for memory of reads")
        reader.memory.release(reader.memory.limit_bytes)
        got, answer = await client.receive()
        assert got == number
        assert len(answer.responses[0].partitions[0].records) == len(batch(b"little"))
        await until_async(lambda: not reader.memory.held_bytes, "the memory of reads to be free")

    run(test)


def test_who_waits_for_memory_that_does_not_come_is_answered_without_records_and_told_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_proxy.fetch.reader.ROOM_WAIT_S", 0.05)

    async def test(proxy: Running, client: Client) -> None:
        client.send_produce("orders", {0: batch(b"a" * 300_000)})
        await client.receive()
        reader = proxy.role.proxy.reader
        assert isinstance(reader, FetchReader)
        memory = reader.memory
        memory.hold(memory.limit_bytes)
        answer = await client.ask(1, 12, fetch_request("orders", 0, 0))
        [partition] = answer.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, bytes(partition.records)) == (0, 1, b"")
        assert not memory.is_waited_for
        assert memory.held_bytes == memory.limit_bytes
        assert reader._small_memory.held_bytes == 0
        memory.release(memory.limit_bytes)
        answer = await client.ask(1, 12, fetch_request("orders", 0, 0))
        assert len(answer.responses[0].partitions[0].records) > 300_000

    run(test)


def test_half_requests_of_one_address_give_way_at_once_to_another_address() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        hostile = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(30)]
        for one in hostile:
            one.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(600_000))
        await until_async(
            lambda: endpoint.arriving.held_bytes > endpoint.arriving.limit_bytes // 2, "half of the room to be taken"
        )
        began_s = asyncio.get_running_loop().time()
        for _ in range(3):
            client.send_produce("orders", {0: batch(b"a" * 400_000)})
            assert codes((await client.receive())[1]) == [0]
        assert asyncio.get_running_loop().time() - began_s < STILL_S_MAX

    run(test, ProxySettings(request_memory_bytes=4_000_000))


def test_half_requests_that_claim_much_are_behind_those_that_claim_little_when_memory_comes_free() -> None:
    async def test(proxy: Running, client: Client) -> None:
        endpoint = proxy.role.server.endpoint
        for _ in range(30):
            hostile = await proxy.connect()
            hostile.writer.write(b"\x06\x00\x00\x00\x00\x00\x00\x09" + bytes(600_000))
        await until_async(
            lambda: endpoint.arriving.held_bytes > endpoint.arriving.limit_bytes // 2, "half of the room to be taken"
        )
        began_s = asyncio.get_running_loop().time()
        client.send_produce("orders", {0: batch(b"a" * 300_000)})
        assert codes((await client.receive())[1]) == [0]
        assert asyncio.get_running_loop().time() - began_s < 3 * STILL_S_MAX

    run(test, ProxySettings(request_memory_bytes=4_000_000))


def test_one_address_may_not_have_all_connections() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for _ in range(4):
            await proxy.connect(local_addr=("127.0.0.2", 0))
        refused = await proxy.connect(local_addr=("127.0.0.2", 0))
        assert await refused.closed()
        assert (await client.ask(18, 0)).error_code == 0
        other = await proxy.connect(local_addr=("127.0.0.3", 0))
        assert (await other.ask(18, 0)).error_code == 0

    run(test, ProxySettings(limits=limits_of({"connections_per_address": 4})))


def test_a_request_that_drips_in_is_cut_off_and_one_that_is_only_long_is_not() -> None:
    arriving = ArrivingMemory(1 << 20, whole_within_s=10)

    class One:
        peer, is_read, arrived_at, whole_bytes, arrived_bytes = "a", True, 99.0, 1 << 20, 0

        def __init__(self, since_s: float) -> None:
            self.frame_since = since_s

        def go_on(self) -> None: ...

        def make_room(self, reason: str) -> None: ...

    dripping, long = One(since_s=0), One(since_s=0)
    arriving.ask(dripping, 4_096)
    arriving.ask(long, 1 << 20)
    assert [one for one, _ in arriving.stuck(9.0)] == []
    assert [one for one, _ in arriving.stuck(12.0)] == [dripping]
    assert {one for one, _ in arriving.stuck(40.0)} == {dripping, long}


def test_what_clients_call_themselves_is_not_kept_with_answers() -> None:
    async def test(proxy: Running, client: Client) -> None:
        tracemalloc.start()
        try:
            for number in range(100):
                client.client_id = f"bmq_az={number}" + "z" * 30_000
                assert (await client.ask(3, 9, {"topics": [{"name": "orders"}]})).topics[0].error_code == 0
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1_000_000
        finally:
            tracemalloc.stop()

    run(test)


def test_senders_are_told_apart_by_the_beginning_of_what_they_call_themselves() -> None:
    async def test(proxy: Running, client: Client) -> None:
        client.client_id = "c" * 30_000
        client.send_produce("orders", {0: batch(b"a")})
        assert codes((await client.receive())[1]) == [0]
        (connection,) = proxy.role.server.endpoint.connections
        assert connection.share is not None
        assert len(str(connection.share.key)) < 1_000

    run(test)
