"""A proxy that stops: what is in flight is answered, nothing is begun."""

import asyncio

import pytest
from one_connection import codes
from proxy_in_memory import batch, fetch_request, running_proxy
from tests.waiting import until_async

pytestmark = pytest.mark.usefixtures("both_loops")


def test_stopping_lets_what_is_in_flight_finish() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            client = await proxy.connect()
            proxy.owner.hold = True
            client.send_produce("orders", {0: batch(b"a")})
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
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
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
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
            await until_async(lambda: proxy.role.server.endpoint.in_flight == 1, "one request to be worked on")
            async with asyncio.timeout(5):
                await asyncio.gather(proxy.role.stop(grace_s=60), client.closed())

    asyncio.run(main())
