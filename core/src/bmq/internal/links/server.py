"""The internal listener of a node: accepts other nodes' connections and stops cleanly. Only the loop's own network is
used, as in the simulator.
"""

import asyncio
import errno
from collections import Counter
from typing import Any

import structlog

from bmq.fairness.log_limit import RateLimited
from bmq.internal import limits
from bmq.internal.framing.hello import Identity
from bmq.internal.framing.routes import Handlers
from bmq.internal.links.connection import Connection
from bmq.internal.links.room import ProduceRoom

log = structlog.get_logger(__name__)

_LOOK_S = 0.02
_COMPLAIN_EVERY_S = 10.0
_ABORT_S = 0.2
"""More than the loop takes to say that a connection which was aborted is gone."""


class InternalServer:
    """Serves `handlers` to the nodes of one cluster. A listener of several roles gets the union of their tables."""

    def __init__(
        self,
        handlers: Handlers,
        me: Identity,
        *,
        produce_bytes_max: int = limits.PRODUCE_BYTES_MAX,
        strangers_max: int = limits.STRANGERS_MAX,
    ) -> None:
        self.handlers = handlers
        self.me = me
        self.room = ProduceRoom(produce_bytes_max)
        self.scratch = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._connections: dict[Connection, None] = {}
        """In the order in which they were opened: what is done with each of them is done in one order, so that a
        simulated run repeats."""
        self._strangers: dict[Connection, None] = {}
        """Those of them that have yet to show that they belong here."""
        self._strangers_max = strangers_max
        self._work: set[asyncio.Task[Any]] = set()
        self._complaints = RateLimited(interval_s=_COMPLAIN_EVERY_S)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listens; returns where (the port that 0 became). Raises OSError."""
        self._server = await self._loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        if not self._server.sockets:
            raise OSError(errno.EAFNOSUPPORT, host)
        self._ticker = self._loop.call_later(limits.ALIVE_EVERY_S, self._tick)
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Accepts no more, tells every client to go, waits for what is being worked on and for them to close, at most
        `grace_s`; then ends all.

        Calls that come meanwhile are refused (NotReady): a client that follows the goodbye has none whose outcome is
        unknown.
        """
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.say_goodbye()
        await self._until_over(grace_s)
        for connection in list(self._connections):
            connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
        tasks = list(self._work)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._until_over(_ABORT_S if self._connections else 0.0)

    async def _until_over(self, limit_s: float) -> None:
        deadline = self._loop.time() + limit_s
        while (self._connections or self._work) and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_S)

    def opened(self, connection: Connection) -> bool:
        if self.is_stopping:
            return False
        self._connections[connection] = self._strangers[connection] = None
        if len(self._strangers) > self._strangers_max:
            self._turn_away()
        return True

    def welcomed(self, connection: Connection) -> bool:
        """It belongs here. False: there are too many."""
        if len(self._connections) - len(self._strangers) >= limits.CONNECTIONS_MAX:
            return False
        self._strangers.pop(connection, None)
        return True

    def _turn_away(self) -> None:
        """The first stranger of the address that has the most."""
        most = Counter(one.host for one in self._strangers).most_common(1)[0][0]
        first = next(one for one in self._strangers if one.host == most)
        del self._strangers[first]
        self.broken(
            first.peer,
            f"internal_strangers_max = {self._strangers_max} connections have yet to show that they belong to this "
            "cluster",
        )
        first.abort()

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._strangers.pop(connection, None)

    def broken(self, peer: str, reason: str) -> None:
        left_out = self._complaints.due(peer.rpartition(":")[0], now=self._loop.time())
        if left_out is not None:
            log.warning("internal connection refused", peer=peer, reason=reason, left_out=left_out)

    def began(self, work: "asyncio.Task[Any]") -> None:
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(limits.ALIVE_EVERY_S, self._tick)
        for connection in list(self._connections):
            connection.tick()
