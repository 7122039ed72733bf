"""A cluster's admin REST API (docs/admin-api.md) as the operator uses it: one request and its answer.

Owns connections, the token, time limits and what a refusal means. Decides nothing. The token is in no text that it
makes: it is sent to the cluster's own address alone, redirects are not followed, and a proxy of the environment is not
used.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx

PAGE_ITEMS: Final = 1_000
PAGES_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 64 << 20
TIMEOUT_S: Final = 10.0
KEPT_S: Final = 3.0
"""How long a connection is kept: nodes close theirs five seconds after the last answer, and a request would meet that
end."""
_PASSING: Final = frozenset((429, 502, 503, 504))


class AdminError(Exception):
    """Something that was asked of a cluster and not had."""


class AdminUnreachable(AdminError):
    """Nobody answers, or not as bmq does. What was asked for may have been done."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class AdminProblem(AdminError):
    """The cluster's refusal, as it says it."""

    def __init__(self, *, status: int, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}. {remedy}")
        self.status, self.code, self.what, self.why, self.remedy = status, code, what, why, remedy

    @property
    def passes(self) -> bool:
        """Whether it is likely to be better in a moment: nobody leads just now, or a node does not answer."""
        return self.status in _PASSING

    @property
    def missing(self) -> bool:
        """Whether it does not exist."""
        return self.status == 404


class AdminClient:
    """One cluster's API. Not bound to an event loop until the first request; close it when the cluster is gone."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._sendable = token.isascii() and token.isprintable()
        headers = {"accept": "application/json"} | (
            {"authorization": f"Bearer {token}"} if token and self._sendable else {}
        )
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4, keepalive_expiry=KEPT_S),
            trust_env=False,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"AdminClient({self.url})"

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def get(self, *path: str, **query: object) -> Any:
        """The JSON of the page at `path`, whose parts are quoted. Raises AdminProblem, AdminUnreachable, as all of
        these do.
        """
        return await self._ask("GET", path, query=query)

    async def items(self, *path: str, **query: object) -> AsyncIterator[Any]:
        """All items of a list, page by page."""
        after: str | None = None
        for _ in range(PAGES_MAX):
            page = await self.get(*path, **{"limit": PAGE_ITEMS, **query, "continue": after})
            for item in page["items"]:
                yield item
            after = page["continue"]
            if after is None:
                return
        raise AdminUnreachable(f"{self.url}: a list of more than {PAGES_MAX} pages")

    async def post(
        self, *path: str, body: Mapping[str, object] | None = None, if_match: str | None = None, **query: object
    ) -> Any:
        """Asks for something; what is answered. `if_match`: of this version alone, else a problem with status 412; so
        in all of these.
        """
        return await self._ask("POST", path, body=body, if_match=if_match, query=query)

    async def put(self, *path: str, body: Mapping[str, object], if_match: str | None = None) -> Any:
        """Puts what is to be there."""
        return await self._ask("PUT", path, body=body, if_match=if_match)

    async def patch(self, *path: str, body: Mapping[str, object], if_match: str | None = None, **query: object) -> Any:
        """Changes what the body names."""
        return await self._ask("PATCH", path, body=body, if_match=if_match, query=query)

    async def delete(self, *path: str, if_match: str | None = None) -> None:
        """Deletes."""
        await self._ask("DELETE", path, if_match=if_match)

    async def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        body: Mapping[str, object] | None = None,
        if_match: str | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        if not self._sendable:
            raise AdminUnreachable(
                f"{self.url} is not asked: its admin token has characters that are not printable ASCII"
            )
        target = "/v1/" + "/".join(quote(part, safe="") for part in path)
        headers = {} if if_match is None else {"if-match": f'"{if_match}"'}
        parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            async with self._http.stream(method, target, params=parameters, json=body, headers=headers) as reply:
                data = await self._read(reply)
        except httpx.TimeoutException as error:
            raise AdminUnreachable(f"{self.url} does not answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise AdminUnreachable(f"{self.url} is not reached: {str(error) or type(error).__name__}") from error
        if not reply.is_success:
            raise self._problem(reply.status_code, data)
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise AdminUnreachable(
                f"{self.url} does not answer as bmq does: the answer to {method} {target} is not JSON"
            ) from error

    async def _read(self, reply: httpx.Response) -> bytes:
        data = bytearray()
        async for piece in reply.aiter_bytes():
            data += piece
            if len(data) > ANSWER_BYTES_MAX:
                raise AdminUnreachable(
                    f"{self.url} does not answer as bmq does: an answer of more than {ANSWER_BYTES_MAX} bytes"
                )
        return bytes(data)

    def _problem(self, status: int, data: bytes) -> AdminError:
        try:
            problem = json.loads(data)
            return AdminProblem(
                status=status, **{name: str(problem[name]) for name in ("code", "what", "why", "remedy")}
            )
        except (ValueError, KeyError, TypeError):
            return AdminUnreachable(f"{self.url} answers {status}, and not as bmq does")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
