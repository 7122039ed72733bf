"""/livez, /readyz and /metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


class HealthServer:
    """Serves what probes and Prometheus ask. `why_dead` says why the process has to be started anew, or nothing;
    `why_not_ready` what it lacks, or nothing.
    """

    def __init__(
        self,
        listen: str,
        *,
        why_dead: Callable[[], str],
        why_not_ready: Callable[[], str],
        before_metrics: Callable[[], None],
    ) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._why_dead = why_dead
        self._why_not_ready = why_not_ready
        self._before_metrics = before_metrics
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(self._why_dead())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._why_not_ready())

    async def _metrics(self, _: web.Request) -> web.Response:
        self._before_metrics()
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(why: str) -> web.Response:
    return web.Response(text=why or "ok", status=503 if why else 200)
