"""The proxy serves who sends little past who sends all it can, and whoever is held back gets through in the end."""

import asyncio
from dataclasses import replace
from typing import Any

from proxy_in_memory import Client, Running, batch, running_proxy
from tests.waiting import until_async

from bmq.fairness.greedy_window import WINDOW_FIRST_BYTES
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

MIB = 1 << 20
LARGE = 512 << 10


def test_a_proxy_lets_a_small_request_past_the_large_ones_of_another_connection() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            modest, greedy = await proxy.connect(), await proxy.connect()
            modest.send_produce("orders", {1: batch(b"first")})
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
            large = batch(bytes(LARGE))
            for _ in range(30):
                greedy.send_produce("orders", {0: large})
            window = WINDOW_FIRST_BYTES // LARGE
            await until_async(lambda: len(proxy.owner.held) >= window, "a window of appends at the owner")
            modest.send_produce("orders", {1: batch(b"second")})
            await until_async(
                lambda: sum(tp.partition == 1 for tp, _ in proxy.owner.appended) == 2, "the modest one's second append"
            )
            assert sum(tp.partition == 0 for tp, _ in proxy.owner.appended) <= window
            await answered_in_order(proxy, greedy, 30)
            assert proxy.role.server.endpoint.shares.window.held_bytes == 0

    asyncio.run(main())


def test_many_who_are_held_back_leave_memory_for_the_modest() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(request_memory_bytes=32 * MIB)) as proxy:
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            modest = await proxy.connect()
            modest.send_produce("orders", {1: batch(b"first")})
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
            large = batch(bytes(LARGE))
            for _ in range(30):
                greedy = await proxy.connect()
                greedy.client_id = "greedy"
                for _ in range(4):
                    greedy.send_produce("orders", {0: large})
            memory = proxy.role.server.endpoint.request_memory
            await until_async(lambda: memory.held_bytes >= 30 * LARGE, "30 large requests to be held")
            for number in range(2, 20):
                modest.send_produce("orders", {1: batch(b"another")})
                await until_async(
                    lambda: sum(tp.partition == 1 for tp, _ in proxy.owner.appended) == number,  # noqa: B023 - called in this turn
                    "the modest one's next append",
                )
            assert memory.held_bytes <= memory.limit_bytes

    asyncio.run(main())


def test_the_greedy_never_have_all_memory_beside_the_modest_however_little_these_wait() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(request_memory_bytes=16 * MIB)) as proxy:
            endpoint = proxy.role.server.endpoint
            for _ in range(100):
                endpoint.shares.window.adapt(1.0)
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            modest = await proxy.connect()
            modest.send_produce("orders", {1: batch(b"first")})
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
            for _ in range(4):
                greedy = await proxy.connect()
                greedy.client_id = "greedy"
                for _ in range(15):
                    greedy.send_produce("orders", {0: batch(bytes(LARGE))})
            await until_async(
                lambda: len(proxy.owner.held) > 8 * MIB // (LARGE + 1000), "as many appends as fit at the owner"
            )
            modest.send_produce("orders", {1: batch(b"another")})
            await until_async(
                lambda: sum(tp.partition == 1 for tp, _ in proxy.owner.appended) == 2, "the modest one's second append"
            )
            assert endpoint.shares.window.held_bytes <= 8 * MIB
            assert endpoint.request_memory.has_room

    asyncio.run(main())


def test_all_who_are_held_back_are_answered_when_their_topic_is_deleted_however_many_they_are() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            endpoint = proxy.role.server.endpoint
            greedy = await held_back(proxy, 200, 300 << 10)
            proxy.metadata.change(topics={}, topic_ids={})
            while proxy.owner.held:
                proxy.owner.let_go()
            async with asyncio.timeout(20):
                answers = [
                    (await client.receive())[1].responses[0].partition_responses[0].error_code for client in greedy
                ]
            assert set(answers) == {ErrorCode.none, ErrorCode.unknown_topic_or_partition}
            await until_async(lambda: endpoint.request_memory.held_bytes == 0, "the requests' memory to be free")
            assert endpoint.shares.held_bytes == 0

    asyncio.run(main())


def test_a_handler_that_fails_when_a_request_is_let_in_ends_that_connection_and_holds_up_nobody() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            endpoint = proxy.role.server.endpoint
            greedy = await held_back(proxy, 20, LARGE)
            taken = len(proxy.owner.held) - 1
            route = endpoint._routes[0]

            def fails(*_: Any) -> Any:
                endpoint._routes[0] = route
                raise RuntimeError("a bug")

            endpoint._routes[0] = replace(route, begin=fails)
            releasing = asyncio.ensure_future(release(proxy))
            for at, client in enumerate(greedy):
                if at == taken:
                    assert await asyncio.wait_for(client.closed(), 10)
                else:
                    await asyncio.wait_for(client.receive(), 10)
            releasing.cancel()
            await until_async(lambda: endpoint.request_memory.held_bytes == 0, "the requests' memory to be free")
            assert (endpoint.shares.held_bytes, endpoint.in_flight) == (0, 0)

    asyncio.run(main())


async def held_back(proxy: Running, count: int, size_bytes: int) -> list[Client]:
    """So many clients with a request each, of which most wait for their turn beside a modest client, whose request is
    the first at the owner.
    """
    proxy.metadata.add_topic("orders", 2)
    proxy.owner.hold = True
    modest = await proxy.connect()
    modest.send_produce("orders", {1: batch(b"first")})
    await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
    clients = []
    for number in range(count):
        client = await proxy.connect()
        client.client_id = f"greedy {number}"
        client.send_produce("orders", {0: batch(bytes(size_bytes))}, timeout_ms=300_000)
        clients.append(client)
        share_count = number + 2
        await until_async(
            lambda: sum(one.share is not None for one in proxy.role.server.endpoint.connections),
            "every sender to have a share",
            holds=lambda count: count == share_count,  # noqa: B023 - called in this turn
        )
    assert len(proxy.owner.held) < count / 2
    return clients


async def answered_in_order(proxy: Running, client: Client, count: int) -> None:
    releasing = asyncio.ensure_future(release(proxy))
    offsets = [(await client.receive())[1].responses[0].partition_responses[0].base_offset for _ in range(count)]
    releasing.cancel()
    assert offsets == list(range(count))


async def release(proxy: Running) -> None:
    while True:
        if proxy.owner.held:
            proxy.owner.let_go()
        await asyncio.sleep(0)
