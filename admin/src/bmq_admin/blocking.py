"""The client of who may wait, the commands'."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bmq_admin.attempts import Outcome, Pause, Send, attempts
from bmq_admin.requests import Listing, PathPart, Request, own_metrics, request_for, token_headers

if TYPE_CHECKING:
    from bmq_admin.connections import BlockingConnections

T = TypeVar("T")

Sleep = Callable[[float], None]

RAW_BYTES_MAX: Final = 256 << 20
"""As much as the whole image of a large cluster has."""
DOCUMENT_BYTES_MAX: Final = 64 << 20
"""What is read as JSON takes up to twenty times as much of memory."""


class BlockingAdminClient:
    """One cluster's API, by the first of several addresses that answers: any node of a cluster will do."""

    def __init__(
        self, urls: Sequence[str], *, token: str = "", timeout_s: float, patience_s: float = 0.0, sleep: Sleep
    ) -> None:
        """`patience_s`: how long it asks again while nobody leads, or the leader is new and knows too little yet.
        `token`: printable ASCII.
        """
        self.urls = tuple(url.rstrip("/") for url in urls)
        self.timeout_s = timeout_s
        self._token = token
        self._patience_s = patience_s
        self._sleep = sleep
        self._connections: BlockingConnections | None = None

    def get(self, *path: PathPart, **query: object) -> Any:
        """The JSON of the page at `path`. Raises AdminProblem, AdminUnreachable, as all of these do."""
        return self.ask(request_for("GET", path, query=query))

    def items(self, *path: PathPart, **query: object) -> Iterator[Any]:
        """All items of a list, page by page."""
        listing: Listing[Any] = Listing(path=path, query=query)
        return self.all(listing)

    def post(
        self, *path: PathPart, body: Mapping[str, object] | None = None, version: str | None = None, **query: object
    ) -> Any:
        """Asks for something; what is answered."""
        return self.ask(request_for("POST", path, body=body, version=version, query=query))

    def put(self, *path: PathPart, body: Mapping[str, object], version: str | None = None) -> Any:
        """Puts what is to be there."""
        return self.ask(request_for("PUT", path, body=body, version=version))

    def patch(self, *path: PathPart, body: Mapping[str, object], version: str | None = None, **query: object) -> Any:
        """Changes what the body names."""
        return self.ask(request_for("PATCH", path, body=body, version=version, query=query))

    def delete(self, *path: PathPart, version: str | None = None) -> None:
        """Deletes."""
        self.ask(request_for("DELETE", path, version=version))

    def bytes_of(self, *path: PathPart, **query: object) -> bytes:
        """What the page at `path` has, as it is."""
        data: bytes = self.ask(request_for("GET", path, query=query, raw=True))
        return data

    def own_metrics(self) -> bytes:
        """What the node that is asked measures."""
        data: bytes = self.ask(own_metrics())
        return data

    def all(self, listing: Listing[T]) -> Iterator[T]:
        """Its items, page by page."""
        pages = listing.pages()
        request = next(pages)
        while True:
            page = self.ask(request)
            yield from page["items"]
            try:
                request = pages.send(page)
            except StopIteration:
                return

    def ask(self, request: Request[T]) -> T:
        """What is answered."""
        course = attempts(self.urls, patience_s=self._patience_s)
        outcome: Outcome | None = None
        while True:
            try:
                step = course.send(outcome)
            except StopIteration as done:
                answer: T = done.value.document
                return answer
            match step:
                case Send(url=url):
                    outcome = self._connected().send(url, request)
                case Pause(seconds=seconds):
                    outcome = None
                    self._sleep(seconds)

    def _connected(self) -> "BlockingConnections":
        if self._connections is None:
            from bmq_admin.connections import (
                BlockingConnections,  # a tenth of a second of a command's start, and few need it
            )

            self._connections = BlockingConnections(
                headers=token_headers(self._token),
                timeout_s=self.timeout_s,
                raw_bytes_max=RAW_BYTES_MAX,
                document_bytes_max=DOCUMENT_BYTES_MAX,
            )
        return self._connections
