"""One request over HTTP, by httpx: connections, time limits, and what its errors mean.

A token goes to the address that it was given for: redirects are not followed.
"""

import ipaddress
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from bmq_admin.answers import Answered, Collected, read
from bmq_admin.attempts import Outcome
from bmq_admin.errors import AdminError, NotReached, TimedOut
from bmq_admin.requests import Request

CONNECTIONS_MAX: Final = 8
KEPT_MAX: Final = 4
KEPT_S: Final = 3.0
"""How long a connection is kept: nodes close theirs five seconds after the last answer, and a request would meet that
end."""
_ERRORS: Final = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)


class Connections:
    """Connections to one cluster from an event loop, to which they are bound by the first request. No proxy of the
    environment is used.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        answer_bytes_max: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_s),
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_MAX, keepalive_expiry=KEPT_S
            ),
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def send(self, url: str, request: Request[Any]) -> Outcome:
        """What comes of it."""
        collected = Collected(url, bytes_max=self._answer_bytes_max)
        try:
            async with self._client.stream(
                request.method, url + request.target, content=request.content, headers=request.headers
            ) as reply:
                async for piece in reply.aiter_bytes():
                    collected.add(piece)
            return _read(url, request, reply, collected)
        except AdminError as error:
            return error
        except _ERRORS as error:
            return _not_reached(url, error)


class BlockingConnections:
    """The same for who may wait: a connection for each request, by the environment's proxy where it names one, which is
    never asked for this machine's own addresses.
    """

    def __init__(self, *, headers: Mapping[str, str], timeout_s: float, answer_bytes_max: int) -> None:
        self._headers = headers
        self._timeout = httpx.Timeout(timeout_s)
        self._answer_bytes_max = answer_bytes_max
        self._trusted = ssl.create_default_context()

    def send(self, url: str, request: Request[Any]) -> Outcome:
        """What comes of it."""
        collected = Collected(url, bytes_max=self._answer_bytes_max)
        try:
            with (
                self._client(url) as client,
                client.stream(
                    request.method, url + request.target, content=request.content, headers=request.headers
                ) as reply,
            ):
                for piece in reply.iter_bytes():
                    collected.add(piece)
            return _read(url, request, reply, collected)
        except AdminError as error:
            return error
        except _ERRORS as error:
            return _not_reached(url, error)

    def _client(self, url: str) -> httpx.Client:
        return httpx.Client(
            headers=self._headers,
            timeout=self._timeout,
            verify=self._trusted,
            trust_env=not _is_this_machine(urlsplit(url).hostname or ""),
        )


def _read(url: str, request: Request[Any], reply: httpx.Response, collected: Collected) -> Answered:
    return read(url, request, status=reply.status_code, reason=reply.reason_phrase, data=collected.all())


def _not_reached(url: str, error: Exception) -> AdminError:
    if isinstance(error, httpx.TimeoutException):
        failure: AdminError = TimedOut(url)
    else:
        cause = _of_the_system(error)
        no_http = isinstance(error, httpx.RemoteProtocolError) or isinstance(cause, ConnectionResetError)
        failure = NotReached(url, str(error) or type(error).__name__, no_http=no_http, cause=cause)
    failure.__cause__ = error
    return failure


def _of_the_system(error: BaseException) -> OSError | None:
    """The error that the system gave, which httpx and httpcore wrap."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__cause__ or seen.__context__
    return seen


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
