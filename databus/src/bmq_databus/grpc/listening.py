"""The server that applications call: where it listens, and the bounds that gRPC's library keeps for it.

What it reads of a call ahead of whoever wants it is a window of 64 KiB; what is compressed is refused, as nobody could
tell how large it becomes before it has.
"""

import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from bmq.errors import ConfigurationError
from bmq_databus.grpc.asked import Asked
from bmq_databus.grpc.call import METADATA_BYTES_MAX
from bmq_databus.grpc.relay import CONNECTIONS_MAX, Inner, ListeningSocket, Relay
from bmq_databus.grpc.service import Service
from bmq_databus.requests.admission import Admission
from bmq_databus.requests.readiness import Readiness
from bmq_databus.requests.written import Requests

REQUEST_BYTES_MAX: Final = 4 << 20
"""What gRPC's libraries take unless they are told otherwise."""
CALLS_MAX: Final = 200
"""Those under way. One with all the metadata that there may be takes some 100 KiB, and a few hundred bytes on the wire,
where an entry that comes again is one byte."""
CALLS_NEW_MAX: Final = 200
"""So many more wait to be looked at, with theirs."""
CALLS_OF_CONNECTION_MAX: Final = 40
WINDOW_BYTES: Final = 64 << 10
HANDSHAKE_WITHIN_MS: Final = 10_000
ENDING_MAX: Final = 500
"""The relay bounds connections; so many more have ended, and the library has not heard of it."""
IDLE_MS: Final = 60_000
"""A connection without calls for so long is closed."""
PING_MS: Final = 30_000
PINGED_WITHIN_MS: Final = 20_000
"""One that does not answer a ping for so long is cut: also who reads nothing of it."""
LEFT_WITHIN_S: Final = 1.0
"""How long an end waits for what is written by calls whose clients have left, or that had no more time."""
STOPPED_WITHIN_S: Final = 2.0
"""How long the library has for its own end, behind the calls' and once more after its connections were cut."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX + ENDING_MAX),
    ("grpc.max_concurrent_streams", CALLS_OF_CONNECTION_MAX),
    ("grpc.server.max_pending_requests", CALLS_NEW_MAX),
    ("grpc.server.max_pending_requests_hard_limit", CALLS_NEW_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_WITHIN_MS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.keepalive_time_ms", PING_MS),
    ("grpc.keepalive_timeout_ms", PINGED_WITHIN_MS),
    ("grpc.so_reuseport", 0),
)

log = structlog.get_logger()


class Listening:
    """`start`, and `close` at the end."""

    def __init__(self, requests: Requests, admission: Admission, readiness: Readiness) -> None:
        self._sockets: list[ListeningSocket] = []
        self._unix: Path | None = None
        self._relay: Relay | None = None
        self._service = Service(requests, admission, self._cut, self._called)
        asked = Asked(self._service.serve, readiness)
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        self._server.add_generic_rpc_handlers((self._service.handlers, *asked.handlers))

    def at(self, listening: ListeningSocket, unix: Path | None = None) -> None:
        """Takes connections of that socket, once it is started. `unix`: the path of one that is a Unix socket."""
        self._sockets.append(listening)
        self._unix = unix or self._unix

    async def start(self) -> None:
        """Calls are taken from now on. Raises ConfigurationError."""
        inner = self._inner()
        await self._server.start()
        self._relay = Relay(self._sockets, inner)
        await self._relay.start()

    def _inner(self) -> Inner:
        """Where the library listens. Who may not come by the Unix socket may not come by this one."""
        if self._unix is None:
            return self._server.add_insecure_port("127.0.0.1:0")
        inner = self._unix.with_name(f".{self._unix.name}.inner")
        mask = os.umask(0o177)  # it is for this process alone
        try:
            self._server.add_insecure_port(f"unix:{inner}")
        except RuntimeError:
            raise ConfigurationError(
                f"--grpc-unix {self._unix}: {inner} cannot be made: choose another path, of 90 characters at most"
            ) from None
        finally:
            os.umask(mask)
        return inner

    async def close(self, *, patience_s: float) -> None:
        """Takes no more calls; those that are under way have so long."""
        if self._relay is not None:
            self._relay.refuse()
        stopping = asyncio.ensure_future(self._server.stop(patience_s))
        _, late = await asyncio.wait((stopping,), timeout=patience_s + STOPPED_WITHIN_S)
        if late:
            # The library waits for connections to take what it has for them, and some take nothing.
            count = 0 if self._relay is None else self._relay.cut_all()
            log.warning("connections of gRPC did not end in time, and are cut", connections=count)
            await asyncio.wait((stopping,), timeout=STOPPED_WITHIN_S)
        if self._relay is not None:
            self._relay.close()
        await self._service.close(patience_s=LEFT_WITHIN_S)

    def _cut(self, peer: str) -> bool:
        return self._relay is not None and self._relay.cut(peer)

    def _called(self, peer: str) -> AbstractContextManager[None]:
        return nullcontext() if self._relay is None else self._relay.called(peer)
