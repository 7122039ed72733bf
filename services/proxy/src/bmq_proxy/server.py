"""The listening side of the proxy: accepts connections and stops cleanly. Only the loop's own network is used, so it
runs in the simulator.
"""

import asyncio
import errno

from bmq.naming.listeners import DEFAULT_LISTENER
from bmq_proxy.connection import Connection
from bmq_proxy.endpoint import RELIEF_INTERVAL_S, Endpoint

SWEEP_EVERY = 10


class ProxyServer:
    """A Kafka endpoint over an Endpoint, at the addresses of one listener or several."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._looks = 0

    async def start(self, host: str, port: int, *, listener: str = DEFAULT_LISTENER) -> tuple[str, int]:
        """Listens; returns where (the port that 0 became). Once for each listener. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self.endpoint, listener), host, port, backlog=1024)
        if not server.sockets:
            raise OSError(errno.EAFNOSUPPORT, host)
        self._servers.append(server)
        if self._sweeper is None:
            self._sweep()
        name = server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def stop(self, grace_s: float = 5.0) -> None:
        """Accepts no more, lets what is in flight finish for at most `grace_s`, closes every connection."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        await self.endpoint.finish(grace_s)
        for server in servers:
            await server.wait_closed()

    def _sweep(self) -> None:
        self.endpoint.relieve()
        if self._looks % SWEEP_EVERY == 0:
            self.endpoint.sweep()
        self._looks += 1
        self._sweeper = asyncio.get_running_loop().call_later(RELIEF_INTERVAL_S, self._sweep)
