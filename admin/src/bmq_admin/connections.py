"""One request over HTTP, by httpx: connections, time limits, and what its errors mean.

A token goes to the address that it was given for: redirects are not followed.
"""

import asyncio
import functools
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
from bmq_admin.transport import BoundedTransport

CONNECTIONS_MAX: Final = 8
KEPT_MAX: Final = 4
KEPT_S: Final = 3.0
"""How long a connection is kept: nodes close theirs five seconds after the last answer, and a request would meet that
end."""
PIECES_IN_A_TURN: Final = 16
"""After so many chunks of an answer others have a turn of the loop."""
_AS_IT_IS: Final = {"accept-encoding": "identity"}
"""So that as much is read as was sent."""
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
        answer_s_max: float,
        answer_bytes_max: int,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`timeout_s`: how long nothing may come; `answer_s_max`: until all has."""
        self._answer_s_max = answer_s_max
        self._answer_bytes_max = answer_bytes_max
        if transport is None:
            limits = httpx.Limits(
                max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_MAX, keepalive_expiry=KEPT_S
            )
            transport = BoundedTransport(verify=_trusted(), limits=limits)
        self._client = httpx.AsyncClient(
            headers={**headers, **_AS_IT_IS},
            timeout=httpx.Timeout(timeout_s),
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def send(self, url: str, request: Request[Any]) -> Outcome:
        """What comes of it; an error holds nothing of what was answered."""
        try:
            async with asyncio.timeout(self._answer_s_max):
                reply, data = await self._answer(url, request)
            return _read(url, request, reply, data, whole=False)
        except AdminError as error:
            return error.with_traceback(None)
        except TimeoutError:
            return TimedOut(url)
        except _ERRORS as error:
            return _not_reached(url, error.with_traceback(None))

    async def _answer(self, url: str, request: Request[Any]) -> tuple[httpx.Response, bytes]:
        async with self._client.stream(
            request.method, url + request.target, content=request.content, headers=request.headers
        ) as reply:
            collected = Collected(url, encoding=_encoding(reply), bytes_max=self._answer_bytes_max)
            async for piece in reply.aiter_bytes():
                collected.add(piece)
                if collected.pieces % PIECES_IN_A_TURN == 0:
                    await asyncio.sleep(0)  # all chunks that one read brought come without a pause
            return reply, collected.all()


class BlockingConnections:
    """The same for who may wait: a connection for each request, by the environment's proxy where it names one, which is
    never asked for this machine's own addresses.
    """

    def __init__(
        self, *, headers: Mapping[str, str], timeout_s: float, raw_bytes_max: int, document_bytes_max: int
    ) -> None:
        self._headers = {**headers, **_AS_IT_IS}
        self._timeout = httpx.Timeout(timeout_s)
        self._raw_bytes_max = raw_bytes_max
        self._document_bytes_max = document_bytes_max

    def send(self, url: str, request: Request[Any]) -> Outcome:
        """What comes of it; documents are whole."""
        bytes_max = self._raw_bytes_max if request.raw else self._document_bytes_max
        try:
            with (
                self._client(url) as client,
                client.stream(
                    request.method, url + request.target, content=request.content, headers=request.headers
                ) as reply,
            ):
                collected = Collected(url, encoding=_encoding(reply), bytes_max=bytes_max)
                for piece in reply.iter_bytes():
                    collected.add(piece)
            return _read(url, request, reply, collected.all(), whole=True)
        except AdminError as error:
            return error
        except _ERRORS as error:
            return _not_reached(url, error)

    def _client(self, url: str) -> httpx.Client:
        return httpx.Client(
            headers=self._headers,
            timeout=self._timeout,
            verify=_trusted(),
            trust_env=not _is_this_machine(urlsplit(url).hostname or ""),
        )


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Whom the system trusts: half a megabyte, which all connections share."""
    return ssl.create_default_context()


def _encoding(reply: httpx.Response) -> str:
    return str(reply.headers.get("content-encoding", "")).strip().lower()


def _read(url: str, request: Request[Any], reply: httpx.Response, data: bytes, *, whole: bool) -> Answered:
    return read(url, request, status=reply.status_code, reason=reply.reason_phrase, data=data, whole=whole)


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
