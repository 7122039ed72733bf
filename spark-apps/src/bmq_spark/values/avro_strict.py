"""Whether bytes are Avro of a schema to the letter, told before fastavro makes objects of them. Pure.

fastavro takes a negative index of an enum or a union from the end, any byte for true, and numbers of any length. And an
item of an array may take one byte and become hundreds of columns (null fields, defaults of the reader's): what is
claimed is counted, and bounded, before it is made. So is how deep a type is within itself, at which fastavro would end
the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bmq_spark.values.avro_types import PARTS_MAX, NoColumn, named_types
from bmq_spark.values.decoded import Unfit
from bmq_spark.values.made_values import require_few

_LONG_BYTES: Final = 10
_FIXED: Final = {"float": 4, "double": 8}
_LENGTHS: Final = ("string", "bytes")
_NUMBERS: Final = ("int", "long")

DEPTH_MAX: Final = 100
"""Levels of types within themselves."""

Walk = Callable[[bytes, int], int]
"""From where a value begins to behind it, perhaps behind the end. Raises Unfit, and IndexError where the bytes end
within it."""
_ITEM: Final = "[]"


@dataclass(slots=True, eq=False)
class _Part:
    """A part of what records become: the items of an array or a map, or what is beside them under another name."""

    width: int = 0
    """What each becomes, where these are items."""
    within: "dict[str, list[_Part]]" = field(default_factory=dict)
    """By every name that a writer may have for them."""

    def named(self, *names: str) -> "_Part":
        """A new part of that name, and of the others."""
        made = _Part()
        for name in dict.fromkeys(names):
            self.within.setdefault(name, []).append(made)
        return made


Parts = tuple[_Part, ...]


class StrictAvro:
    """The check of one writer's schema (parsed, named types spelled out where they are first used); `reader` is what
    its records become.
    """

    def __init__(self, writer: Any, reader: Any) -> None:
        self._named: dict[str, Any] = {}
        self._widths = _Widths(writer)
        self._around: dict[tuple[str, Parts], list[Walk]] = {}
        self._parts = 0
        self._depth = 0
        self._values = 0
        self._size_bytes = 0
        self._walk = self._of(writer, (), (_parts_of(reader),))

    def check(self, value: bytes, start: int) -> int:
        """How many values the items of its arrays and maps become. Raises Unfit."""
        self._depth, self._values, self._size_bytes = 0, 0, len(value)
        try:
            end = self._walk(value, start)
        except IndexError:
            end = len(value) + 1
        if end > len(value):
            raise Unfit(f"not Avro of the schema: it ends within a value, after {len(value) - start} bytes")
        if end < len(value):
            raise Unfit(f"not Avro of the schema: {len(value) - end} bytes are left over of {len(value) - start}")
        return self._values

    def _of(self, schema: Any, path: tuple[str, ...], parts: Parts) -> Walk:
        """`parts`: what it may become. Raises NoColumn where there are too many."""
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise NoColumn(f"more than {PARTS_MAX} parts, each as often as it is read")
        if isinstance(schema, list):
            return _union([self._of(branch, path, parts) for branch in schema], ".".join(path))
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._of(self._named[schema], path, parts)
        kind = schema["type"]
        if "name" in schema:
            self._named[schema["name"]] = schema
        match kind:
            case "record" | "error":
                return self._fields(schema, path, parts)
            case "enum":
                return _enum(schema["name"], len(schema["symbols"]))
            case "fixed":
                return _skip(schema["size"])
            case "array":
                return self._blocks(None, schema["items"], (*path, _ITEM), _within(parts, _ITEM))
            case "map":
                return self._blocks(_length, schema["values"], (*path, _ITEM), _within(parts, _ITEM))
        return self._of(kind, path, parts)

    def _fields(self, schema: Any, path: tuple[str, ...], parts: Parts) -> Walk:
        key = schema["name"], parts
        if key in self._around:
            return self._again(self._around[key], self._widths.of(schema))
        made = self._around[key] = []
        fields = [(each["type"], each["name"]) for each in schema["fields"]]
        made.append(_record([self._of(kind, (*path, name), _within(parts, name)) for kind, name in fields]))
        del self._around[key]
        return made[0]

    def _again(self, made: list[Walk], weight: int) -> Walk:
        """The walk that is being made, of a record within itself."""

        def walk(data: bytes, at: int) -> int:
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise Unfit(f"a record of it is within itself more than {DEPTH_MAX} times")
            self._claim(weight)
            at = made[0](data, at)
            self._depth -= 1
            return at

        return walk

    def _blocks(self, key: Walk | None, items: Any, path: tuple[str, ...], parts: Parts) -> Walk:
        item = self._of(items, path, parts)
        each = item if key is None else _record([key, item])
        weight = max(self._widths.of(items), *(part.width for part in parts), 0)

        def walk(data: bytes, at: int) -> int:
            while True:
                count, at = _number(data, at)
                if count == 0:
                    return at
                size, begin = None, at
                if count < 0:
                    count = -count
                    size, begin = _number(data, at)
                    at = begin
                if count > len(data) - at:
                    raise Unfit(f"not Avro of the schema: a block of {count} items in {len(data) - at} bytes")
                self._claim(count * weight)
                for _ in range(count):
                    at = each(data, at)
                if size is not None and at - begin != size:
                    raise Unfit(f"not Avro of the schema: a block of {at - begin} bytes says that it has {size}")

        return walk

    def _claim(self, values: int) -> None:
        self._values += values
        require_few(self._values, self._size_bytes)


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 7 * _LONG_BYTES:
            raise Unfit("not Avro of the schema: a number of more than 10 bytes")
    if number >> 64:
        raise Unfit("not Avro of the schema: a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _long(data: bytes, at: int) -> int:
    return at + 1 if data[at] < 0x80 else _number(data, at)[1]


def _length(data: bytes, at: int) -> int:
    byte = data[at]
    length, at = (byte >> 1 if not byte & 1 else -1, at + 1) if byte < 0x80 else _number(data, at)
    if length < 0:
        raise Unfit("not Avro of the schema: a text or bytes of a length below 0")
    return at + length


def _boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise Unfit(f"not Avro of the schema: a boolean of {data[at]}")
    return at + 1


def _skip(size: int) -> Walk:
    return lambda _, at: at + size


def _record(parts: list[Walk]) -> Walk:
    if len(parts) == 1:
        return parts[0]

    def walk(data: bytes, at: int) -> int:
        for part in parts:
            if part is _length:  # the most frequent ones without a call
                byte = data[at]
                at = at + 1 + (byte >> 1) if byte < 0x80 and not byte & 1 else _length(data, at)
            elif part is _long and data[at] < 0x80:
                at += 1
            else:
                at = part(data, at)
        return at

    return walk


def _union(branches: list[Walk], path: str) -> Walk:
    def walk(data: bytes, at: int) -> int:
        byte = data[at]
        index, at = (byte >> 1 if not byte & 1 else -1 - (byte >> 1), at + 1) if byte < 0x80 else _number(data, at)
        if not 0 <= index < len(branches):
            raise Unfit(f"not Avro of the schema: field {path}: its union has no branch {index}")
        return branches[index](data, at)

    return walk


def _enum(name: str, count: int) -> Walk:
    def walk(data: bytes, at: int) -> int:
        index, at = _number(data, at)
        if not 0 <= index < count:
            raise Unfit(f"not Avro of the schema: enum {name} has no symbol {index}")
        return at

    return walk


_PRIMITIVES: Final[dict[str, Walk]] = {
    "null": _skip(0),
    "boolean": _boolean,
    **dict.fromkeys(_LENGTHS, _length),
    **dict.fromkeys(_NUMBERS, _long),
    **{kind: _skip(size) for kind, size in _FIXED.items()},
}


class _Widths:
    """How many values one value of a schema becomes, without the items of arrays and maps in it, and without what is
    within itself.
    """

    def __init__(self, schema: Any) -> None:
        self._named = named_types(schema)
        self._known: dict[tuple[str, frozenset[str]], int] = {}

    def of(self, schema: Any, around: frozenset[str] = frozenset()) -> int:
        """The schema or a part of it, within the records `around`."""
        match schema:
            case list():
                return 1 + max(self.of(branch, around) for branch in schema)
            case str():
                return self.of(self._named[schema], around) if schema in self._named and schema not in around else 1
            case {"type": "record" | "error", "name": name, "fields": fields}:
                if (name, around) not in self._known:
                    within = around | {name}
                    self._known[name, around] = 1 + sum(self.of(field["type"], within) for field in fields)
                return self._known[name, around]
            case {"type": dict() | list() as inner}:
                return self.of(inner, around)
        return 1


def _within(parts: Parts, name: str) -> Parts:
    return tuple(dict.fromkeys(inner for part in parts for inner in part.within.get(name, ())))


def _parts_of(reader: Any) -> _Part:
    """What a reader's records become: each part under the name and the aliases of its field, for a writer's field
    becomes what it has the name or an alias of, as the two are resolved.
    """
    named: dict[str, Any] = {}
    widths = _Widths(reader)

    def look(schema: Any, part: _Part) -> None:
        match schema:
            case list():
                for branch in schema:
                    look(branch, part)
            case str() if schema in named:
                look(named[schema], part)
            case {"type": "record" | "error", "fields": fields}:
                named[schema["name"]] = schema
                names = {each["name"] for each in fields}
                for each in fields:
                    look(
                        each["type"],
                        part.named(each["name"], *(alias for alias in each.get("aliases", ()) if alias not in names)),
                    )
            case {"type": "array" | "map"}:
                items, inner = schema.get("items", schema.get("values")), part.named(_ITEM)
                look(items, inner)
                inner.width = widths.of(items)
            case {"type": dict() | list() as inner}:
                look(inner, part)

    whole = _Part()
    look(reader, whole)
    return whole
