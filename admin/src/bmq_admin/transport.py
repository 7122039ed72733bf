"""Connections whose answers' heads have bounds, for httpx."""

import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore
import httpx

from bmq_admin.heads import HeadBeyondBounds, Heads

_READ_BYTES_MAX: Final = 64 << 10


class BoundedTransport(httpx.AsyncHTTPTransport):
    """As httpx's, without proxies. A head beyond its bounds is a httpx.RemoteProtocolError."""

    def __init__(self, *, verify: ssl.SSLContext, limits: httpx.Limits) -> None:
        super().__init__(verify=verify, limits=limits, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=verify,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection: what is written is the next request, and what is read then is its answer."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._heads = Heads()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(min(max_bytes, _READ_BYTES_MAX), timeout)
        try:
            self._heads.add(data)
        except HeadBeyondBounds as error:
            raise httpcore.RemoteProtocolError(str(error)) from None
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._heads = Heads()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
