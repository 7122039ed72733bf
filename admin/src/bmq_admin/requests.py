"""What is asked of a cluster, as HTTP has it. Pure."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from bmq_admin.documents import Kind, page_of
from bmq_admin.errors import AdminUnreachable

T = TypeVar("T")

PathPart = str | int
PAGE_ITEMS: Final = 1_000
"""How many items of a list are asked for at once."""
PAGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[T]):
    """One request, which is answered by a T. It says what is wanted, not what is to be done once more: it may be sent
    again.
    """

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    content: bytes | None = None
    raw: bool = False
    """Whether the answer is wanted as it is; else it has to be JSON."""
    document: Kind = Any
    """Which shape that has to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """A list of T, which comes page by page."""

    path: tuple[PathPart, ...]
    query: Mapping[str, object] = field(default_factory=dict)
    item: Kind = Any

    def page(self, after: str | None) -> "Request[Any]":
        """The page that follows the token of the one before; None: the first."""
        query = {"limit": PAGE_ITEMS, **self.query, "continue": after}
        return request_for("GET", self.path, query=query, document=page_of(self.item))

    def pages(self, *, pages_max: int = PAGES_MAX) -> "Generator[Request[Any], Any, None]":
        """What to ask for, one request after the other; each page is sent in return. Raises AdminUnreachable where they
        do not end.
        """
        after: str | None = None
        for _ in range(pages_max):
            page = yield self.page(after)
            after = page["continue"]
            if after is None:
                return
            if not page["items"]:
                raise AdminUnreachable(f"/v1/{'/'.join(map(str, self.path))}: an empty page that is not the last")
        raise AdminUnreachable(f"/v1/{'/'.join(map(str, self.path))}: a list of more than {pages_max} pages")


def request_for(
    method: str,
    path: tuple[PathPart, ...],
    *,
    query: Mapping[str, object] | None = None,
    body: Mapping[str, object] | None = None,
    version: str | None = None,
    raw: bool = False,
    document: Kind = Any,
) -> Request[Any]:
    """Asks for the page of the API at `path`, whose parts are quoted. `version`: of this version alone, else a problem
    with status 412. What the query has as None is left out. `document`: which shape the answer has to have.
    """
    headers = {"accept": "application/json"}
    if body is not None:
        headers["content-type"] = "application/json"
    if version is not None:
        headers["if-match"] = f'"{version}"'
    return Request(
        method=method,
        target="/v1/" + "/".join(quote(str(part), safe="") for part in path) + _query_text(query or {}),
        headers=headers,
        content=None if body is None else json.dumps(body).encode(),
        raw=raw,
        document=document,
    )


def own_metrics() -> Request[bytes]:
    """What the node that is asked measures, also while nobody leads."""
    return Request(method="GET", target="/metrics", headers={}, raw=True)


def token_headers(token: str) -> dict[str, str]:
    """What presents a token."""
    return {"authorization": f"Bearer {token}"} if token else {}


def sendable(token: str) -> bool:
    """Whether a header can carry it."""
    return token.isascii() and token.isprintable()


def _query_text(query: Mapping[str, object]) -> str:
    text = urlencode({name: _text(value) for name, value in query.items() if value is not None})
    return f"?{text}" if text else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
