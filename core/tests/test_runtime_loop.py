"""What the event loop of a service does otherwise than uvloop's own."""

import asyncio
import socket
from functools import partial
from operator import gt
from typing import cast

from tests.waiting import until_async

from bmq.runtime.loop import UNSENT_BYTES_MAX, run_service

ANSWER_BYTES = 16 << 20
RECEIVED_BYTES_MAX = 64 << 10


class Answers(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(bytes(ANSWER_BYTES))


def test_what_a_peer_has_no_room_for_stays_in_this_process_and_each_part_that_it_takes_is_seen() -> None:
    async def main(stop: asyncio.Event) -> int:
        loop, answers = asyncio.get_running_loop(), Answers()
        server = await loop.create_server(lambda: answers, "127.0.0.1", 0)
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES_MAX)
            peer.setblocking(False)
            await loop.sock_connect(peer, server.sockets[0].getsockname())
            transport = await until_async(lambda: answers.transport, "the connection")
            left = transport.get_write_buffer_size()
            assert left > ANSWER_BYTES - 4 * RECEIVED_BYTES_MAX - 4 * UNSENT_BYTES_MAX
            for _ in range(8):
                taken = 0
                while taken < 2 * UNSENT_BYTES_MAX:
                    taken += len(await loop.sock_recv(peer, RECEIVED_BYTES_MAX))
                await until_async(transport.get_write_buffer_size, "less to be left", holds=partial(gt, left))
                left = transport.get_write_buffer_size()
            transport.abort()
        server.close()
        await server.wait_closed()
        return 7

    assert run_service(main) == 7
