"""One client's connection to a proxy in memory: runs a test on it, and looks at what comes by it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from proxy_in_memory import Client, Running, running_proxy

from bmq_proxy.settings import ProxySettings

Test = Callable[[Running, Client], Awaitable[None]]


def run(test: Test, settings: ProxySettings | None = None) -> None:
    async def main() -> None:
        async with running_proxy(settings) as proxy:
            proxy.metadata.add_topic("orders", 2)
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


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


def slow_reader() -> socket.socket:
    quiet = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    quiet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    quiet.setblocking(False)
    return quiet
