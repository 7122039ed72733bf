"""What the admin address answers from the first moment on: health and metrics, without the framework of the REST API.

That takes half a second to import and 20 MiB, so it is loaded, in a thread, when the first of its pages is asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from bmq_proxy.proxy import Proxy

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(slots=True)
class AdminSources:
    """What the pages are made of; filled in by whoever starts the process.

    `proxy` None: not serving yet, or a node without one, which says `started`. `readiness` are asked at each /readyz: None is ready, a text says
    what is missing.
    """

    proxy: Proxy | None = None
    started: bool = False
    readiness: list[Callable[[], str | None]] = field(default_factory=list)

    def not_ready(self) -> str | None:
        """What is missing; None: ready."""
        if self.proxy is None and not self.started:
            return "starting"
        return next((missing for missing in (ask() for ask in self.readiness) if missing is not None), None)


class AdminFront:
    """The ASGI application for uvicorn."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources
        self._rest: Application | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            match scope["path"]:
                case "/livez":
                    return await _say(send, 200, b"ok\n")
                case "/readyz":
                    missing = self._sources.not_ready()
                    return await _say(send, 200 if missing is None else 503, b"ok\n" if missing is None else f"{missing}\n".encode())
                case "/metrics":
                    return await _say(send, 200, generate_latest(), content_type=CONTENT_TYPE_LATEST)
        await (await self._loaded())(scope, receive, send)
        return None

    async def _loaded(self) -> Application:
        async with self._loading:
            if self._rest is None:
                self._rest = await asyncio.get_running_loop().run_in_executor(None, _load, self._sources)
        return self._rest


def _load(sources: AdminSources) -> Application:
    from bmq_proxy.admin import build_admin

    return build_admin(sources)


async def _say(send: Send, status: int, body: bytes, *, content_type: str = _TEXT) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
