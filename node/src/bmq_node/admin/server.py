"""The admin address of a process: uvicorn in its own event loop, over the front of the admin API."""

import asyncio
import contextlib
import errno
import logging
from typing import cast

import uvicorn
from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

from bmq.config.limits import Limits
from bmq_controller.api.front import AdminFront
from bmq_node.admin.connections import AdminConnections, OncePerInterval, protocol_of
from bmq_node.admin.exposition import Lags

STOP_S = 3.0


class _Server(uvicorn.Server):
    """Without signal handlers of its own: the process has them."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # uvicorn's own is not typed either
        yield


class AdminServer:
    """Listens from `start` on; says that it is not ready until `serve`."""

    def __init__(self, front: AdminFront, *, host: str, port: int, limits: Limits | None = None) -> None:
        self.connections = AdminConnections(limits or Limits(), new_id=front.new_id)
        self.host = host
        self.port = port
        self._front = front
        # Who asks is who connects: what a header says of it is anybody's to say.
        config = uvicorn.Config(
            front,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            proxy_headers=False,
            http=protocol_of(self.connections),
            ws="none",
        )
        self._server = _Server(config)
        self._lines = OncePerInterval()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listens. Raises OSError where it cannot; `port` is then the one that 0 became."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(asyncio.Protocol, self.host, self.port, start_serving=False)
        if not listener.sockets:
            raise OSError(errno.EAFNOSUPPORT, self.host)
        sockets = [socket.dup() for socket in listener.sockets]
        listener.close()
        self.port = int(sockets[0].getsockname()[1])
        logging.getLogger("uvicorn.error").addFilter(self._lines)
        self._task = loop.create_task(self._server.serve(sockets=sockets), name="admin server")

    def serve(self, *, ended: "asyncio.Future[str]", lags: Lags | None = None) -> None:
        """The node serves from now on, until `ended` says why it cannot go on; `lags` are metrics of its broker."""
        self._front.state.readiness.append(lambda: ended.result() if ended.done() else None)
        if lags is not None:
            REGISTRY.register(cast(Collector, lags))
            self._front.state.refreshers.append(lags.refresh)

    async def stop(self) -> None:
        """Ends it."""
        if self._task is None:
            return
        self._server.should_exit = True
        self._front.end_watches()
        logging.getLogger("uvicorn.error").removeFilter(self._lines)
        try:
            async with asyncio.timeout(STOP_S):
                await self._task
        except TimeoutError:
            self._task.cancel()
