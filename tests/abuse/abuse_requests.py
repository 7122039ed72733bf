"""Requests that ask for as much as their schema lets: made from the schemas of all APIs that are served, so that a new
one is among them by itself.

For each array of a request: many times the same, many that are not there, many that are, many beneath one name that is
as long as may be. For each text and each run of bytes: its longest. Counts that lie, and requests that never come to
their end.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from uuid import UUID

from tests.bare_client import framed

from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.schemas import Field, api_schema

LARGE: Final = os.environ.get("ABUSE", "") == "large"
"""ABUSE=large: every version, and arrays as long as they may be."""
ELEMENTS: Final = int(os.environ.get("ABUSE_ELEMENTS", "39000" if LARGE else "5000"))
WIDE_PARTITIONS: Final = 5_000
MANY_TOPICS: Final = 500
TOPICS: Final = {"wide": WIDE_PARTITIONS, "one": 1, **{f"many-{n:04}": 1 for n in range(MANY_TOPICS)}}
"""What is there, with its number of partitions."""
TOPIC_IDS: Final[dict[str, UUID]] = {}
"""Their ids, once they are there: whoever makes them puts them in here."""
LONG_TEXT: Final = 32_000
LONG_CHARACTER: Final = "\x01"
"""Four where a message quotes it."""
LONG_BYTES: Final = 1 << 20

KINDS: Final = ("same", "unknown", "known")
_TEXTS: Final = {
    "topic": "wide",
    "name": "wide",
    "topic_name": "wide",
    "group_id": "g",
    "resource_name": "one",
    "key": "g",
    "member_id": "",
}
_NUMBERS: Final = {
    "resource_type": 2,
    "replication_factor": 1,
    "num_partitions": 1,
    "count": 1,
    "replica_id": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1_000,
    "timeout_ms": 100,
    "timestamp": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "acks": -1,
    "session_epoch": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "retention_time_ms": -1,
    "response_partition_limit": 2_000,
    "offset": 0,
}


@dataclass(frozen=True, slots=True)
class Abuse:
    """One request: its whole frame, and what is the matter with it."""

    api_key: int
    version: int
    what: str
    frame: bytes
    ends: bool = True
    """Whether it is whole, so that an answer or the connection's end may be expected at once."""


def versions(api_key: int) -> list[int]:
    """The newest, and one older one; with ABUSE=large all."""
    api = SERVED[api_key]
    every = list(range(api.version_min, api.version_max + 1))
    return every if LARGE else sorted({api.version_max, Random(api_key).choice(every)})


def abuses(api_key: int, version: int) -> Iterator[Abuse]:
    """All of an API's version."""
    schema = api_schema(api_key).request
    for path in arrays(schema, version):
        for kind in KINDS:
            message = _Shape(version, kind, blown=path).struct(schema)
            yield Abuse(api_key, version, f"{'.'.join(path)} × {ELEMENTS}: {kind}", framed(api_key, version, message))
    for path in _texts(schema, version):
        message = _Shape(version, "known", long=path).struct(schema)
        yield Abuse(api_key, version, f"{'.'.join(path)} at its longest", framed(api_key, version, message))
    for path, text in _beneath_texts(schema, version):
        message = _Shape(version, "unknown", blown=path, long=text).struct(schema)
        what = f"{'.'.join(path)} × {ELEMENTS} beneath {text[-1]} at its longest"
        yield Abuse(api_key, version, what, framed(api_key, version, message))
    plain = framed(api_key, version, _Shape(version, "known").struct(schema))
    rng = Random(api_key * 100 + version)
    for _ in range(100 if LARGE else 6):
        yield Abuse(api_key, version, "a count that lies", _lying(plain, rng))
    yield Abuse(api_key, version, "half of it", plain[: max(6, len(plain) // 2)], ends=False)


def small_ones(api_key: int, version: int, *, size_bytes: int) -> Iterator[Abuse]:
    """Those that say much in at most so many bytes: each array with as many as there fit, and with none for all that
    there are.
    """
    schema = api_schema(api_key).request
    for path in arrays(schema, version):
        fitting = [
            Abuse(api_key, version, f"{'.'.join(path)} × {count}", frame)
            for count in range(1, size_bytes)
            if len(frame := _with(api_key, version, path, count)) <= size_bytes
        ]
        yield from fitting[-1:]
    for field in schema:
        if field.array and field.in_version(version) and field.nullable_in(version):
            message = {**_Shape(version, "known").struct(schema), field.name: None}
            yield Abuse(api_key, version, f"{field.name}: all", framed(api_key, version, message))


def _with(api_key: int, version: int, path: tuple[str, ...], count: int) -> bytes:
    shape = _Shape(version, "known", blown=path, elements=count)
    return framed(api_key, version, shape.struct(api_schema(api_key).request))


def arrays(fields: tuple[Field, ...], version: int, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of each array, the outer ones first."""
    for field in fields:
        if field.in_version(version):
            path = (*above, field.name)
            if field.array:
                yield path
            yield from arrays(field.fields, version, path)


def _beneath_texts(fields: tuple[Field, ...], version: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each array with each text that stands once for all of its elements."""
    for path in arrays(fields, version):
        for text in _texts(fields, version):
            if len(text) <= len(path) and path[: len(text) - 1] == text[:-1]:
                yield path, text


def _texts(fields: tuple[Field, ...], version: int, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if field.in_version(version):
            path = (*above, field.name)
            if field.type in ("string", "bytes"):
                yield path
            yield from _texts(field.fields, version, path)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A message in which the array at `blown` has `elements`, and the text at `long` is as long as may be; everything
    else is there once.

    Of both paths, what is left below the field that is being made; None: it is not on the way.
    """

    version: int
    kind: str
    blown: tuple[str, ...] | None = None
    long: tuple[str, ...] | None = None
    elements: int | None = None
    """In the array that is blown up; None: ELEMENTS."""

    def struct(self, fields: tuple[Field, ...], number: int = 0) -> dict[str, Any]:
        return {
            field.name: self._below(field.name).value(field, number)
            for field in fields
            if field.in_version(self.version)
        }

    def value(self, field: Field, number: int) -> Any:
        if not field.array:
            is_left_out = field.type == "struct" and self.blown is None and field.nullable_in(self.version)
            return None if is_left_out else self.single(field, number, several=False)
        here = self.blown == ()
        return [
            self.single(field, n if here else number, several=here)
            for n in range((self.elements or ELEMENTS) if here else 1)
        ]

    def single(self, field: Field, number: int, *, several: bool) -> Any:
        """`several`: it is an element of the array that is blown up; then its names differ by `number`, but for the
        kind `same`.
        """
        own = number if self.kind != "same" else 0
        match field.type:
            case "struct":
                if several:
                    # Without tagged fields, of which few are taken: a request that is refused for them would not be
                    # worked on.
                    there = [one for one in field.fields if one.in_version(self.version) and one.tag is None]
                    return {one.name: _named(one, self.version, self.kind, own) for one in there}
                return self.struct(field.fields, number)
            case "string":
                if self.long == ():
                    return LONG_CHARACTER * LONG_TEXT
                if field.name == "group_id" and not several:
                    # lies of other versions may be in theirs for half an hour, which others then wait for
                    return f"g{self.version}"
                return _text(field.name, self.kind, own) if several else _TEXTS.get(field.name, "x")
            case "bytes":
                return bytes(LONG_BYTES if self.long == () else 4)
            case _:
                return _number(field, own if several else 0, self.kind)

    def _below(self, name: str) -> "_Shape":
        blown = self.blown[1:] if self.blown and self.blown[0] == name else None
        long = self.long[1:] if self.long and self.long[0] == name else None
        return _Shape(self.version, self.kind, blown, long, self.elements)


def _named(field: Field, version: int, kind: str, number: int) -> Any:
    if field.array:
        return None if field.nullable_in(version) else [_Shape(version, "same").single(field, 0, several=False)]
    if field.type == "string":
        return _text(field.name, kind, number)
    if field.type == "struct":
        return None if field.nullable_in(version) else _Shape(version, "same").struct(field.fields)
    if field.type == "bytes":
        return bytes(4)
    return _number(field, number, kind)


def _text(name: str, kind: str, number: int) -> str:
    if kind == "same":
        return _TEXTS.get(name, "x")
    if kind == "unknown":
        return f"no-{number}"
    return (
        f"many-{number % MANY_TOPICS:04}"
        if name in ("topic", "name", "topic_name", "resource_name", "topics")
        else f"g{number}"
    )


def _number(field: Field, number: int, kind: str) -> Any:
    if field.type == "uuid":
        name = {"same": "wide", "known": f"many-{number % MANY_TOPICS:04}" if number else "wide"}.get(kind, "")
        return TOPIC_IDS.get(name, UUID(int=number + 1))
    if field.type == "bool":
        return False
    if field.name in ("partition_index", "partition", "partition_indexes", "partitions", "index"):
        return number
    return _NUMBERS.get(field.name, 0)


def _lying(frame: bytes, rng: Random) -> bytes:
    """A count or a length of it, wherever there is one, says more than there is."""
    at = rng.randrange(8, len(frame))
    lie = rng.choice(
        (b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x00\x01\x86\x9f", b"\xa0\x8d\x06")
    )
    lying = frame[:at] + lie + frame[at + rng.choice((0, len(lie))) :]
    return struct.pack(">i", len(lying) - 4) + lying[4:]


API_KEYS: Final = sorted(SERVED, key=lambda key: (key in (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS), key))
