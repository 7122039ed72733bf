"""Pages of lists: a limit of items and one of bytes, and a token that says where the next page begins. Pure.

The token holds the last item's sorting key, so that items that come and go in between neither repeat nor hide others.
"""

import base64
import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from bmq_controller.api.problems import Refused

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 512 << 10
"""What the items of a page have as JSON; one that has more is a page by itself. As many as one address may ask for at a
time are within its part of large answers (`front`), so none is made in vain."""

T = TypeVar("T")
R = TypeVar("R")
Key = tuple[Any, ...]

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many items at most")]
Continue = Annotated[
    str | None,
    Query(alias="continue", description="The `continue` of the page before: goes on after it", max_length=2_000),
]


class Page(BaseModel, Generic[R]):
    """A part of a list."""

    items: list[R]
    next_token: str | None = Field(
        default=None,
        serialization_alias="continue",
        description="Give it as `continue` for what follows; null: this was the last page",
    )


def page(
    items: Iterable[T], *, key: Callable[[T], Key], view: Callable[[T], R], limit: int, after: str | None, kind: str
) -> Page[R]:
    """The `limit` items of the lowest keys above the token's; fewer where their views are JSON of more than
    PAGE_BYTES_MAX. `kind` names the list: tokens of others are refused. O(items).
    """
    start = None if after is None else _decoded(after, kind)
    try:
        candidates = items if start is None else (item for item in items if key(item) > start)
        found = heapq.nsmallest(limit + 1, candidates, key=key)
    except TypeError:
        raise _bad_token() from None
    return _made(found, key=key, view=view, limit=limit, kind=kind)


def ordered_page(
    items_after: Callable[[Key | None], Iterable[T]],
    *,
    key: Callable[[T], Key],
    view: Callable[[T], R],
    limit: int,
    after: str | None,
    kind: str,
) -> Page[R]:
    """The same of a long list that can be read in order: `items_after` gives those above a key (None: all), and is read
    no further than need be.

    It raises TypeError or ValueError for a key that is none of the list's.
    """
    start = None if after is None else _decoded(after, kind)
    try:
        found = list(islice(items_after(start), limit + 1))
    except (TypeError, ValueError):
        raise _bad_token() from None
    return _made(found, key=key, view=view, limit=limit, kind=kind)


def numbered_page(count: int, *, view: Callable[[int], R], limit: int, after: str | None, kind: str) -> Page[R]:
    """The same of the numbers from 0 on, of which none is looked at that is not on the page."""

    def above(start: Key | None) -> range:
        (last,) = (-1,) if start is None else start
        if start is not None and last < 0:
            raise ValueError(f"no page ends with {last}")
        return range(last + 1, count)

    return ordered_page(above, key=lambda number: (number,), view=view, limit=limit, after=after, kind=kind)


def as_json(view: Callable[[T], BaseModel]) -> Callable[[T], bytes]:
    """What `view` shows, as JSON: a page of it is bounded by its bytes."""
    return lambda item: view(item).model_dump_json(by_alias=True).encode()


def encode_page(listed: Page[bytes]) -> bytes:
    """A page of JSON, as JSON."""
    return b'{"items":[%b],"continue":%b}' % (b",".join(listed.items), msgspec.json.encode(listed.next_token))


def _made(found: list[T], *, key: Callable[[T], Key], view: Callable[[T], R], limit: int, kind: str) -> Page[R]:
    items: list[R] = []
    size_bytes = 0
    for item in found[:limit]:
        shown = view(item)
        size_bytes += len(shown) if isinstance(shown, bytes) else 0
        if items and size_bytes > PAGE_BYTES_MAX:
            break
        items.append(shown)
    more = len(found) > len(items)
    return Page(items=items, next_token=_encoded(kind, key(found[len(items) - 1])) if more else None)


def _encoded(kind: str, key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((kind, key))).decode().rstrip("=")


def _decoded(token: str, kind: str) -> Key:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        of, key = msgspec.msgpack.decode(raw, type=tuple[str, tuple[str | int, ...]])
    except (ValueError, UnicodeError, msgspec.DecodeError):
        raise _bad_token() from None
    if of != kind or not key:
        raise _bad_token()
    return key


def _bad_token() -> Refused:
    return Refused("InvalidContinue", "the continue token is not one of this list", "begin again without it")
