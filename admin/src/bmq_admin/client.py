"""The client of an event loop, the operator's: nothing waits but who asked."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar

import httpx

from bmq_admin.attempts import Outcome, Pause, Send, attempts
from bmq_admin.connections import Connections
from bmq_admin.errors import AdminUnreachable
from bmq_admin.requests import Listing, PathPart, Request, request_for, sendable, token_headers

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
ANSWER_S_MAX: Final = 3 * TIMEOUT_S
ANSWER_BYTES_MAX: Final = 1 << 20
"""A cluster of seven thousand nodes tells of itself in as much, and pages have less."""
PAGES_MAX: Final = 250
"""A quarter of a million topics, or partitions of one."""


class AdminClient:
    """One cluster's API. Not bound to an event loop until the first request; close it when the cluster is gone.

    Anybody may answer in the cluster's place: no answer is held that is larger than bmq's are, none has more fields
    than its document, and lists end.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 0.0,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`patience_s`: how long it asks again while nobody leads, or the leader is new and knows too little yet."""
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._sendable = sendable(token)
        self._connections = Connections(
            headers=token_headers(token) if self._sendable else {},
            timeout_s=timeout_s,
            answer_s_max=max(ANSWER_S_MAX, timeout_s),
            answer_bytes_max=answer_bytes_max,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"AdminClient({self.url})"

    async def close(self) -> None:
        """Closes the connections."""
        await self._connections.close()

    async def get(self, *path: PathPart, **query: object) -> Any:
        """The JSON of the page at `path`. Raises AdminProblem, AdminUnreachable, as all of these do."""
        return await self.ask(request_for("GET", path, query=query))

    async def items(self, *path: PathPart, **query: object) -> AsyncIterator[Any]:
        """All items of a list, page by page."""
        listing: Listing[Any] = Listing(path=path, query=query)
        async for item in self.all(listing):
            yield item

    async def post(
        self, *path: PathPart, body: Mapping[str, object] | None = None, version: str | None = None, **query: object
    ) -> Any:
        """Asks for something; what is answered."""
        return await self.ask(request_for("POST", path, body=body, version=version, query=query))

    async def put(self, *path: PathPart, body: Mapping[str, object], version: str | None = None) -> Any:
        """Puts what is to be there."""
        return await self.ask(request_for("PUT", path, body=body, version=version))

    async def patch(
        self, *path: PathPart, body: Mapping[str, object], version: str | None = None, **query: object
    ) -> Any:
        """Changes what the body names."""
        return await self.ask(request_for("PATCH", path, body=body, version=version, query=query))

    async def delete(self, *path: PathPart, version: str | None = None) -> None:
        """Deletes."""
        await self.ask(request_for("DELETE", path, version=version))

    async def all(self, listing: Listing[T]) -> AsyncIterator[T]:
        """Its items, page by page."""
        pages = listing.pages(pages_max=PAGES_MAX)
        request = next(pages)
        while True:
            page = await self.ask(request)
            for item in page["items"]:
                yield item
            try:
                request = pages.send(page)
            except StopIteration:
                return

    async def ask(self, request: Request[T]) -> T:
        """What is answered."""
        if not self._sendable:
            raise AdminUnreachable(
                f"{self.url} is not asked: its admin token has characters that are not printable ASCII"
            )
        course = attempts((self.url,), patience_s=self._patience_s)
        outcome: Outcome | None = None
        while True:
            try:
                step = course.send(outcome)
            except StopIteration as done:
                answer: T = done.value.document
                return answer
            match step:
                case Send(url=url):
                    outcome = await self._connections.send(url, request)
                case Pause(seconds=seconds):
                    outcome = None
                    await asyncio.sleep(seconds)
