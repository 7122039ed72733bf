"""Whether what was answered has the shape of a document, field by field. Pure; knows of no document.

Whoever answers may say anything, so nothing is taken for granted: a document goes only as deep as its kind does, a
number is one that a log could hold, and what is sent back as it came is what a request can carry.
"""

import functools
import types
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Kind: TypeAlias = Any
"""A TypedDict, a list or dict of kinds, one that may be null, text, a number, true or false; PageOf; Any: it is as it
is. Annotated with a Within or a Printable."""
_INTEGER_MAX: Final = (1 << 63) - 1
_TOKEN_CHARS_MAX: Final = 2_000
"""Of what says where the next page begins: as many as the API takes."""
_SCALARS: Final = {str: "text", bool: "true or false", int: "a number"}


class Misfit(Exception):
    """It has another shape; where, and which, in words."""


@dataclass(frozen=True, slots=True)
class Within:
    """From `least` to `most`."""

    least: int
    most: int

    def check(self, value: int, where: str) -> None:
        """Raises Misfit."""
        if not self.least <= value <= self.most:
            raise Misfit(f"{where} is not within {self.least} and {self.most}")


@dataclass(frozen=True, slots=True)
class Printable:
    """Characters of ASCII that can be seen, and blanks: what a header or an address can carry."""

    chars_max: int

    def check(self, value: str, where: str) -> None:
        """Raises Misfit."""
        if len(value) > self.chars_max or not (value.isascii() and value.isprintable()):
            raise Misfit(f"{where} is no printable text of at most {self.chars_max} characters")


@dataclass(frozen=True, slots=True)
class PageOf:
    """A page of a list of these."""

    item: Kind


_Token: TypeAlias = Annotated[str, Printable(_TOKEN_CHARS_MAX)]


def fitted(value: Any, kind: Kind, where: str = "") -> Any:
    """What of it the kind has, and nothing else. Raises Misfit; `where`: how the value is called there."""
    if kind is Any:
        return value
    if isinstance(kind, PageOf):
        return _page(value, kind)
    if is_typeddict(kind):
        return _document(value, kind, where)
    if kind in _SCALARS:
        return _scalar(value, kind, where)
    origin: Any = get_origin(kind)
    of = get_args(kind)
    if origin is Annotated:
        found = fitted(value, of[0], where)
        for limit in of[1:]:
            limit.check(found, where)
        return found
    if origin is list:
        return [fitted(one, of[0], f"{where}[{index}]") for index, one in enumerate(_of_type(value, list, where))]
    if origin is dict:
        return {name: fitted(one, of[1], f"a value of {where}") for name, one in _of_type(value, dict, where).items()}
    assert origin in (Union, types.UnionType) and of[1:] == (type(None),), f"no kind: {kind}"
    return None if value is None else fitted(value, of[0], where)


def _page(value: Any, kind: PageOf) -> dict[str, Any]:
    page = _of_type(value, dict, "")
    items, after = page.get("items"), fitted(page.get("continue"), _Token | None, "continue")
    if after is not None and not items:
        raise Misfit("a page has no items, and is not the last")
    return {"items": fitted(items, list[kind.item], "items"), "continue": after}  # type: ignore[name-defined]


def _document(value: Any, kind: Kind, where: str) -> dict[str, Any]:
    document, found = _of_type(value, dict, where), {}
    for name, of in _fields(kind).items():
        path = f"{where}.{name}".lstrip(".")
        if name in document:
            found[name] = fitted(document[name], of, path)
        elif name in kind.__required_keys__:
            raise Misfit(f"{path} is missing")
    return found


def _scalar(value: Any, kind: type, where: str) -> Any:
    if type(value) is not kind or (isinstance(value, int) and abs(value) > _INTEGER_MAX):
        raise Misfit(f"{where or 'it'} is not {_SCALARS[kind]}")
    return value


def _of_type(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise Misfit(f"{where or 'it'} is no {'list' if kind is list else 'object'}")
    return value


@functools.cache
def _fields(kind: Kind) -> dict[str, Kind]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(of)[0] if get_origin(of) is NotRequired else of for name, of in hints.items()}
