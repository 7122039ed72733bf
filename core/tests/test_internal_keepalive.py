"""A peer that is gone is known before somebody needs it: also on connections that wait for nothing. In virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from internal_calls import ask, control
from internal_under_test import CLIENT, SERVER
from tests.waiting import until_async

from bmq.internal import InternalClient, InternalServer, NotSent, Purpose
from bmq.internal.limits import ALIVE_EVERY_S, CONNECT_TIMEOUT_S, IDLE_TICKS_MAX
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.network import Network
from bmq_sim.process import SimProcess

LEASE_S = 6.0
"""How long a broker may be silent before its partitions go to others (docs/decisions/0010)."""
PORT = 9190


def simulated(main: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop(network=Network())
    run(main(loop), loop=loop)


async def double(value: int) -> int:
    return 2 * value


async def listen() -> InternalServer:
    """A server on host "there"."""
    found: asyncio.Future[InternalServer] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        server = InternalServer(control(double), SERVER)
        await server.start("there", PORT)
        found.set_result(server)

    SimProcess("broker", host="there").start(serve())
    return await found


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_a_cable_that_is_pulled_is_noticed_within_the_lease_where_nothing_is_waited_for(direction: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        server = await listen()
        client = InternalClient("there", PORT, peer=SERVER.node_id, purpose=Purpose.CONTROL, me=CLIENT)
        assert await ask(client, 1) == 2
        await asyncio.sleep(30)
        assert client.is_connected
        if direction != "back":
            loop.network.block("localhost", "there")
        if direction != "there":
            loop.network.block("there", "localhost")
        pulled_s = loop.time()
        await until_async(
            lambda: not client.is_connected, "the connection to be given up", 10 * LEASE_S, every_s=ALIVE_EVERY_S / 10
        )
        assert loop.time() - pulled_s <= LEASE_S
        asked_s = loop.time()
        with pytest.raises(NotSent):
            await ask(client, 2)
        assert loop.time() - asked_s <= CONNECT_TIMEOUT_S  # not another lease's time
        loop.network.heal()
        await client.close()
        await server.stop()

    simulated(main)


def test_pings_keep_a_connection_that_nobody_uses_from_being_closed_no_longer_than_before() -> None:
    async def main(loop: VirtualLoop) -> None:
        server = await listen()
        client = InternalClient("there", PORT, peer=SERVER.node_id, purpose=Purpose.CONTROL, me=CLIENT)
        assert await ask(client, 1) == 2
        await asyncio.sleep(ALIVE_EVERY_S * (IDLE_TICKS_MAX - 10))
        assert client.is_connected
        await asyncio.sleep(ALIVE_EVERY_S * 20)
        assert not client.is_connected
        assert await ask(client, 2) == 4
        await client.close()
        await server.stop()

    simulated(main)
