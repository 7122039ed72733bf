"""The sidecar's process: channels, producers, spools and what serves HTTP, from its start to its end."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
import uvicorn
from confluent_kafka import KafkaException
from prometheus_client import disable_created_metrics

from bmq.errors import ConfigurationError
from bmq.ports import Clock, Rng
from bmq.runtime.bearer_tokens import BearerTokens
from bmq_databus.channels.channel import Channel
from bmq_databus.channels.topics import TopicRule
from bmq_databus.http.app import App
from bmq_databus.http.connections import new_protocol
from bmq_databus.http.watched import Watched
from bmq_databus.producing.settings import cluster_settings
from bmq_databus.producing.writing import Writing
from bmq_databus.requests.admission import Admission
from bmq_databus.requests.readiness import Readiness
from bmq_databus.requests.written import Requests
from bmq_databus.spool.aside import DEFAULT_LIMITS, AsideLimits

if TYPE_CHECKING:
    from bmq_databus.control_plane.following import ControlPlane
    from bmq_databus.grpc.listening import Listening

DELIVERY_MS: Final = 30_000
"""How long a message on a durable channel may take to the cluster."""
BACKLOG: Final = 1_024
ANSWERING_S: Final = 2.0
DRAIN_S: Final = 10.0
"""How long an end waits for what is under way."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a sidecar is started with."""

    bootstrap_servers: str
    channels: Mapping[str, Channel]
    host: str
    port: int
    unix: Path | None = None
    grpc: tuple[str, int] | None = None
    """Host and port at which it is called by gRPC; None: at none."""
    grpc_unix: Path | None = None
    """A Unix socket for the same."""
    health: tuple[str, int] | None = None
    """Host and port at which health and metrics are served, and nothing else, besides where all is."""
    spool: Path | None = None
    token_file: Path | None = None
    """Who writes presents one of its tokens; None: whoever reaches it may."""
    aside: AsideLimits = DEFAULT_LIMITS
    any_topic: TopicRule | None = None
    """How topics that no channel is declared for are written by their names; None: they are not."""
    control_plane: "ControlPlane | None" = None
    """Whose channels it follows; None: `channels` are all that there ever are."""
    empty_spools_s: float = 0.0
    """How long an end waits until the cluster has what is in spools, where their disk does not outlive the process."""


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


async def serve(
    settings: Settings, stop: asyncio.Event, *, clock: Clock, rng: Rng, listens: Callable[[str, int, int | None], None]
) -> int:
    """Until `stop` is set; the exit code. `listens` is told where it does, and at which port it is
    called by gRPC. Raises ConfigurationError, DatabusError.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody asks for
    with ExitStack() as opened:
        sockets = [opened.enter_context(_bound(settings.host, settings.port))]
        if settings.unix is not None:
            sockets.append(opened.enter_context(_bound_unix(settings.unix, option="--unix")))
        grpc = grpc_unix = None
        if settings.grpc is not None:
            grpc = opened.enter_context(_bound(*settings.grpc, option="--grpc-listen"))
        if settings.grpc_unix is not None:
            grpc_unix = opened.enter_context(_bound_unix(settings.grpc_unix, option="--grpc-unix"))
        health = None
        if settings.health is not None:
            health = opened.enter_context(_bound(*settings.health, option="--health-listen"))
        return await _serve(settings, stop, sockets, health, (grpc, grpc_unix), clock=clock, rng=rng, listens=listens)


async def _serve(
    settings: Settings,
    stop: asyncio.Event,
    sockets: list[socket.socket],
    health: socket.socket | None,
    grpc: tuple[socket.socket | None, socket.socket | None],
    *,
    clock: Clock,
    rng: Rng,
    listens: Callable[[str, int, int | None], None],
) -> int:
    tokens = None if settings.token_file is None else BearerTokens(settings.token_file, option="--token-file")
    writing = Writing(
        settings.channels,
        spool_folder=settings.spool,
        clock=clock,
        rng=rng,
        aside=settings.aside,
        topics=settings.any_topic,
    )
    await _started(writing, settings)
    following = None
    if settings.control_plane is not None:
        # Its client's library takes memory, for which a sidecar with a file of channels has no use.
        from bmq_databus.control_plane.following import Following

        following = Following(settings.control_plane, writing.follow, clock=clock, rng=rng)
        await following.begin()
    requests = Requests(writing)
    admission = Admission(writing.channels, tokens=tokens, configuration=following, any_topic=writing.any_topic)
    app = App(requests, admission, configuration=following)
    calls = _Calls(requests, admission, settings, *grpc)
    server = _server(app)
    serving = asyncio.ensure_future(server.serve(sockets))
    watched = _Watched(app, health)
    stopping = asyncio.ensure_future(stop.wait())
    follows: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if following is not None:
        follows = asyncio.ensure_future(following.run())
    host, port = sockets[0].getsockname()[:2]
    log.info("databus serves", address=f"{host}:{port}", channels=len(writing.channels))
    try:
        await calls.start()
        listens(host, port, calls.port)
        ends: list[asyncio.Future[Any]] = [stopping, serving, watched.ended, follows, writing.broken]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if follows.done():
            await follows  # it ends by a bug alone
        admission.is_ending = True
        requests.streams.end()
        server.should_exit = True
        giving_up = asyncio.get_running_loop().call_later(DRAIN_S - ANSWERING_S, writing.give_up)
        await asyncio.gather(serving, calls.close())
        giving_up.cancel()
        if settings.empty_spools_s:
            await _emptied(writing, patience_s=settings.empty_spools_s)
    finally:
        stopping.cancel()
        follows.cancel()
        await watched.close()
        if following is not None:
            await following.close()
        left = await writing.close(patience_s=ANSWERING_S)
    if left:
        log.error("messages have no outcome: their writers were told none", messages=left)
    if writing.broken.done():
        why, remedy = writing.broken.result(), "start it again: what is in spools is sent then"
        log.error("producer is broken", why=why, remedy=remedy)
        return 1
    return 1 if left else 0


async def _started(writing: Writing, settings: Settings) -> None:
    """Raises ConfigurationError."""
    try:
        await writing.start(cluster_settings(settings.bootstrap_servers), delivery_ms=DELIVERY_MS)
    except KafkaException as error:
        raise ConfigurationError(f"--bootstrap-servers {settings.bootstrap_servers}: {error.args[0].str()}") from error


class _Calls:
    """Serves gRPC, whose library is loaded only where it is asked for; without an address, nothing."""

    def __init__(
        self,
        requests: Requests,
        admission: Admission,
        settings: Settings,
        tcp: socket.socket | None,
        unix: socket.socket | None,
    ) -> None:
        """The sockets are those of `settings.grpc` and `settings.grpc_unix`."""
        self._listening: Listening | None = None
        self.port: int | None = None
        if tcp is None and unix is None:
            return
        # What is wrong with a call is told to who calls: whoever does much that is would fill the log.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from bmq_databus.grpc import listening

        self._listening = listening.Listening(requests, admission, Readiness(requests.writing, admission))
        if tcp is not None:
            self.port = tcp.getsockname()[1]
            self._listening.at(tcp)
        if unix is not None:
            self._listening.at(unix, settings.grpc_unix)

    async def start(self) -> None:
        """Calls are taken from now on. Raises ConfigurationError."""
        if self._listening is not None:
            await self._listening.start()
            log.info("databus is called by gRPC", port=self.port)

    async def close(self) -> None:
        """Answers what is under way."""
        if self._listening is not None:
            await self._listening.close(patience_s=DRAIN_S)


class _Watched:
    """Serves health and metrics at an address of their own, until the very end; without one, nothing."""

    def __init__(self, app: App, listening: socket.socket | None) -> None:
        self._server = _server(Watched(app))
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done by a bug alone, before `close`."""
        if listening is not None:
            self.ended = asyncio.ensure_future(self._server.serve([listening]))

    async def close(self) -> None:
        """Answers what is under way."""
        self._server.should_exit = True
        if not isinstance(self.ended, asyncio.Task):
            self.ended.cancel()
        await asyncio.wait((self.ended,))


async def _emptied(writing: Writing, *, patience_s: float) -> None:
    """Nothing more is accepted. Until the cluster has all that was, or nothing can be sent any more."""
    emptying = asyncio.gather(*(spool.emptied() for spool in writing.spools.values()))
    await asyncio.wait((emptying, writing.broken), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
    if not emptying.done():
        emptying.cancel()
        for name, spool in writing.spools.items():
            if spool.waiting:
                log.error(
                    "spool is left with messages that the cluster does not have", channel=name, messages=spool.waiting
                )
    await asyncio.wait((emptying,))


def _bound(host: str, port: int, *, option: str = "--listen") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"{option} {host}:{port}: {error.strerror or error}: choose another address, or stop what listens there"
        ) from error


def _bound_unix(path: Path, *, option: str) -> socket.socket:
    """A file that is left of an earlier process makes way."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if made.connect_ex(str(path)) == 0:
                raise OSError(errno.EADDRINUSE, "another process listens there")
            made.close()
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            path.unlink()
        made.bind(str(path))
        path.chmod(0o660)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise ConfigurationError(f"{option} {path}: {error.strerror or error}: choose another path") from error
    return made


def _server(app: App | Watched) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=new_protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(DRAIN_S),
        )
    )
