"""What answers in the place of an API server, on a port of this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from kubernetes.aio import client

from bmq_operator.kube import Kube

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served_at(answer: Answer) -> AsyncIterator[str]:
    """The address of an API server that answers so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[Kube]:
    """A client of an API server that answers so."""
    async with served_at(answer) as url, client.ApiClient(client.Configuration(host=url)) as api:
        yield Kube(api)
