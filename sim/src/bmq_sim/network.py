"""The in-memory network of a simulated cluster: hosts, listeners, connections, and what goes wrong between them.

Seeded: latency, the places where a stream of bytes is cut into reads, connections that are lost. One-way partitions
hold bytes back (TCP sends them again once the way is open); they never drop some bytes of a stream and deliver later
ones.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from bmq_sim.process import CURRENT_PROCESS, SimProcess, current_host
from bmq_sim.transport import Address, SimTransport

FIRST_SERVER_PORT = 30_000
FIRST_CLIENT_PORT = 50_000
CONNECT_TIMEOUT_S = 60.0

_OWN_HOST = frozenset({"", "0.0.0.0", "::", "::1", "localhost", "127.0.0.1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """How bad the network is. Latencies are one-way, in seconds; probabilities are per chunk of bytes sent."""

    latency_s_min: float = 0.0
    latency_s_max: float = 0.0
    jitter_s: float = 0.0
    split_probability: float = 0.0
    loss_probability: float = 0.0


class SimSocket:
    """What `server.sockets` holds."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """(host, port)."""
        return self._address


class SimServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(
        self,
        network: "Network",
        address: Address,
        accept: Callable[[], asyncio.BaseProtocol],
        process: SimProcess | None,
    ) -> None:
        self._network = network
        self._address = address
        self._accept = accept
        self._process = process
        self._closed = asyncio.get_running_loop().create_future()
        self._forget_death = process.on_death(self._stop_listening) if process is not None else None

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """One while it listens."""
        return (SimSocket(self._address),) if self.is_serving() else ()

    def accept(self) -> tuple[asyncio.BaseProtocol, SimProcess | None]:
        """A new protocol for a connection, and the process that it belongs to."""
        return self._accept(), self._process

    async def start_serving(self) -> None:
        self._network.listen(self._address, self)

    def is_serving(self) -> bool:
        return self._network.listener(self._address) is self

    def close(self) -> None:
        self._stop_listening()
        if self._forget_death is not None:
            self._forget_death()
            self._forget_death = None
        if not self._closed.done():
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self.wait_closed()
        finally:
            self.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._closed.get_loop()

    def _stop_listening(self) -> None:
        if self.is_serving():
            self._network.unlisten(self._address)


class Watcher(Protocol):
    """Sees what programs write, each write whole, and ends of connections that are over."""

    def wrote(self, transport: SimTransport, data: bytes) -> None: ...

    def ended(self, transport: SimTransport) -> None: ...


class Network:
    """All hosts. Without an Rng: no latency, no cuts, no losses."""

    def __init__(self, *, rng: Random | None = None, faults: NetworkFaults | None = None) -> None:
        self.faults = faults or NetworkFaults()
        self.rng = rng or Random(0)
        self.bytes_delivered = 0
        self.watcher: Watcher | None = None
        self.injected: Counter[str] = Counter()
        """What went wrong, by kind (bmq_sim.work.INJECTED)."""
        self.names: dict[str, str] = {}
        """Hosts by further names, which come and go."""
        self._listeners: dict[Address, SimServer] = {}
        self._transports: dict[int, SimTransport] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._healed: list[asyncio.Future[None]] = []
        self._held_back: dict[int, SimTransport] = {}
        self._ports = 0
        self._numbers = 0

    async def create_server(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any,
        port: Any,
        *,
        start_serving: bool,
    ) -> SimServer:
        """A listener on (host, port); port 0 or None: a free one. Raises OSError where another one listens."""
        host = host[0] if isinstance(host, list | tuple) else host
        server = SimServer(
            self, (_resolve(host), port or self._next_port(FIRST_SERVER_PORT)), protocol_factory, CURRENT_PROCESS.get()
        )
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any,
        port: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Raises ConnectionRefusedError where nobody listens, TimeoutError where the way stays blocked."""
        here, there = (
            (current_host(), self._next_port(FIRST_CLIENT_PORT)),
            (self.names.get(str(host)) or _resolve(host), int(port)),
        )
        latency_s = self.latency_s()
        await self._wait_for_way(here[0], there[0])
        if latency_s:
            await asyncio.sleep(latency_s)
        server = self._listeners.get(there)
        if server is None:
            raise ConnectionRefusedError(111, f"connect to {there[0]}:{there[1]}: nobody listens")
        near_protocol = protocol_factory()
        near = self._transport(near_protocol, CURRENT_PROCESS.get(), local=here, remote=there, latency_s=latency_s)
        far_protocol, far_process = server.accept()
        far = self._transport(far_protocol, far_process, local=there, remote=here, latency_s=latency_s)
        near.connect(far)
        far.connect(near)
        far.start_soon()
        connected = loop.create_future()
        near.start_soon(connected)
        await connected
        if latency_s:
            await asyncio.sleep(latency_s)
        return near, near_protocol

    def block(self, source: str, target: str) -> None:
        """Nothing gets from host `source` to host `target` until `heal`; the other way stays open."""
        self.injected["no way"] += 1
        self._blocked.add((source, target))

    def block_both_ways(self, one: str, other: str) -> None:
        """A partition between two hosts."""
        self.block(one, other)
        self.block(other, one)

    def unblock_both_ways(self, one: str, other: str) -> None:
        """The ways between two hosts are open again; what was held back on them arrives."""
        self._blocked -= {(one, other), (other, one)}
        self._opened()

    def heal(self) -> None:
        """Opens every way; what was held back arrives."""
        self._blocked.clear()
        self._opened()

    def _opened(self) -> None:
        waiting, self._healed = self._healed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        held_back, self._held_back = self._held_back, {}
        for transport in held_back.values():
            transport.unblock()

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether bytes from `source` to `target` are held back."""
        return bool(self._blocked) and (source, target) in self._blocked

    def lose_connections(self, host: str, *, probability: float = 1.0) -> int:
        """Resets connections of a host, each with that probability; returns how many."""
        lost = [each for each in self.transports() if each.local[0] == host and self.rng.random() < probability]
        for transport in lost:
            transport.lose()
        return len(lost)

    def transports(self) -> list[SimTransport]:
        """Those that are open, oldest first."""
        return list(self._transports.values())

    def forget(self) -> None:
        """Drops everything; for the end of a run."""
        self._listeners.clear()
        self._transports.clear()
        self._healed.clear()
        self._held_back.clear()

    def listen(self, address: Address, server: SimServer) -> None:
        """Raises OSError where another one listens."""
        if self._listeners.setdefault(address, server) is not server:
            raise OSError(98, f"listen on {address[0]}:{address[1]}: address in use")

    def unlisten(self, address: Address) -> None:
        """Connections to it are refused from now on."""
        self._listeners.pop(address, None)

    def listener(self, address: Address) -> SimServer | None:
        """Who listens there."""
        return self._listeners.get(address)

    def latency_s(self) -> float:
        """One connection's one-way latency."""
        if self.faults.latency_s_max == 0.0:
            return 0.0
        return self.rng.uniform(self.faults.latency_s_min, self.faults.latency_s_max)

    def hold_back(self, transport: SimTransport) -> None:
        """What a transport has in flight waits for `heal`."""
        self._held_back[transport.number] = transport

    def closed(self, transport: SimTransport) -> None:
        """A transport is over."""
        if self.watcher is not None:
            self.watcher.ended(transport)
        self._transports.pop(transport.number, None)

    def _transport(
        self,
        protocol: asyncio.BaseProtocol,
        process: SimProcess | None,
        *,
        local: Address,
        remote: Address,
        latency_s: float,
    ) -> SimTransport:
        self._numbers += 1
        transport = SimTransport(
            self, protocol, process, number=self._numbers, local=local, remote=remote, latency_s=latency_s
        )
        self._transports[transport.number] = transport
        return transport

    async def _wait_for_way(self, here: str, there: str) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            while self.is_blocked(here, there) or self.is_blocked(there, here):
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._healed.append(future)
                await future

    def _next_port(self, first: int) -> int:
        self._ports += 1
        return first + self._ports


def _resolve(host: Any) -> str:
    return current_host() if host is None or host in _OWN_HOST else str(host)
