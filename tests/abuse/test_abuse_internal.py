"""Strangers at a node's internal address, who know no secret: what they send holds up nobody."""

import contextlib
import os
import socket
from typing import Final

import pytest
from abuse_node import WatchedLoop, may_hold_s
from tests.waiting import until_async

from bmq.internal import Identity, InternalServer
from bmq.internal.framing.frames import Kind, encode_frame
from bmq.internal.framing.secret import ClusterSecret
from bmq.internal.limits import RECEIVE_BUFFER_BYTES
from bmq.values import NodeId

STRANGERS: Final = 100
ADDRESSES: Final = 2
TURN_S_MAX: Final = 0.1
PING: Final = bytes(encode_frame(Kind.PING)[0])


@pytest.mark.measures
def test_a_hundred_strangers_that_send_all_they_can_at_once_hold_the_loop_for_a_moment() -> None:
    """It was one turn of 2.5 s, longer than a leading controller may be silent."""

    async def main() -> None:
        me = Identity(
            cluster_id="c", node_id=NodeId(1), secret=ClusterSecret(key=b"sesame", nonce=lambda: os.urandom(16))
        )
        server = InternalServer({}, me)
        address = await server.start("127.0.0.1", 0)
        with contextlib.ExitStack() as open_ones:
            for number in range(STRANGERS):
                stranger(open_ones, address, f"127.0.0.{2 + number % ADDRESSES}")
            await until_async(lambda: server.connections, "strangers to be there", every_s=0)
            loop.longest_s = 0.0
            await until_async(lambda: server.connections == 0, "all of them to be refused")
        await server.stop(grace_s=0)

    loop = WatchedLoop()
    with contextlib.closing(loop):
        loop.run_until_complete(main())
    assert loop.longest_s < TURN_S_MAX or loop.longest_s < may_hold_s(TURN_S_MAX)


def stranger(open_ones: contextlib.ExitStack, address: tuple[str, int], own_host: str) -> None:
    """Sends as many frames of the least bytes as are read at once."""
    one = open_ones.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * RECEIVE_BUFFER_BYTES)
    one.bind((own_host, 0))
    one.connect(address)
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        one.send(PING * (RECEIVE_BUFFER_BYTES // len(PING)))
