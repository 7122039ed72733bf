"""What an Avro schema is as columns, what its logical types mean, and where its named types are. Pure."""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.ddl import UTC_TIMESTAMP

_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": UTC_TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_CLOCKS: Final = ("time", "timestamp", "local-timestamp")
_RECORDS: Final = ("record", "error")
_NO_BRANCH: Final = "a union without branches, which no value is of"

COLUMNS_MAX: Final = 20_000
"""Parts of a schema with every named type where it is used: thirty lines that each use the one before twice would be a
billion columns."""
_TOO_MANY: Final = f"more than {COLUMNS_MAX} columns"
PARTS_MAX: Final = 5 * COLUMNS_MAX
"""What a writer's schema has of parts where each is read as the reader's columns need it: a type may be read in several
ways."""


class NoColumn(Exception):
    """The schema says something that no column can be; the message has the path."""


@dataclass(frozen=True, slots=True)
class Logical:
    """What a stored number, text or bytes mean: of `kind`, so many to the unit: 10^scale of a decimal, parts of a
    second of a time.
    """

    kind: str
    parts: int = 1


def column_of(schema: Any, named: dict[str, Any] | None = None, path: str = "value") -> pa.DataType:
    """What pa.array is told for values of a parsed schema (fastavro.parse_schema): numbers of a time are in the
    schema's unit. Raises NoColumn.
    """
    return _Columns(named or {}).of(schema, path, ())


def require_readable(schema: Any) -> None:
    """That bytes of a parsed schema can be read over, whether or not columns can be made of them. Raises NoColumn."""
    sizes: dict[str, int] = {}

    def size(part: Any, path: str) -> int:
        """Its parts, with every named type where it is used; 1 for one within itself."""
        inner = 0
        match part:
            case []:
                raise NoColumn(f"{path}: {_NO_BRANCH}")
            case list():
                inner = sum(size(branch, path) for branch in part)
            case str():
                return sizes.get(part, 1)
            case {"type": "record" | "error", "name": name, "fields": fields}:
                sizes[name] = 1
                inner = sum(size(field["type"], f"{path}.{field['name']}") for field in fields)
                sizes[name] = 1 + inner
            case {"type": "fixed"}:
                _require_size(part, path)
            case {"type": "array" | "map" as kind}:
                inner = size(part["items" if kind == "array" else "values"], f"{path}[]")
            case {"type": dict() | list() as wrapped}:
                inner = size(wrapped, path)
        if inner >= COLUMNS_MAX:
            raise NoColumn(_TOO_MANY)
        return 1 + inner

    size(schema, "value")


def in_table(read: pa.DataType) -> pa.DataType:
    """That type in a table: timestamps in microseconds, as Spark has them."""
    if pa.types.is_struct(read):
        return pa.struct([(field.name, in_table(field.type)) for field in read])
    if pa.types.is_list(read):
        return pa.list_(in_table(read.value_type))
    if pa.types.is_map(read):
        return pa.map_(read.key_type, in_table(read.item_type))
    return pa.timestamp("us", tz=read.tz) if pa.types.is_timestamp(read) else read


def named_types(schema: Any) -> dict[str, Any]:
    """The records, enums and fixed of a schema whose named types are spelled out where they are first used."""
    found: dict[str, Any] = {}

    def look(part: Any) -> None:
        if isinstance(part, list):
            for each in part:
                look(each)
        elif isinstance(part, dict):
            if "name" in part and part.get("type") in (*_RECORDS, "enum", "fixed"):
                found[part["name"]] = part
            for name in ("type", "items", "values"):
                look(part.get(name))
            for field in part.get("fields", ()):
                look(field["type"])

    look(schema)
    return found


def numbered(name: str, number: int) -> str:
    """A full name that no schema has, for a type that is spelled out more than once; its last part is the same."""
    return f"{number}.{named_as(name)}"


def named_as(name: str) -> str:
    """The full name that the schema's author gave a type, which may be `numbered` since."""
    number, _, own = name.partition(".")
    return own if number.isdecimal() else name


def spelled(schema: Any, named: dict[str, Any]) -> Any:
    """The schema without wrappings: a list for a union, else a dict whose type is Avro's own word."""
    while True:
        match schema:
            case str() if schema in _PRIMITIVES:
                return {"type": schema}
            case str():
                schema = named[schema]
            case {"type": dict() | list() as inner}:
                schema = inner
            case {"type": str() as kind} if kind in named and "name" not in schema:
                schema = named[kind]
            case {"type": "error"}:
                return schema | {"type": "record"}
            case _:
                return schema


def logical_of(schema: Any) -> Logical | None:
    """What a schema as `spelled` gives it means beyond how it is stored. A logical type that is unknown or on the wrong
    type means nothing.
    """
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(logical, str):
        return None
    if kind in ("int", "long"):
        clock, _, unit = logical.rpartition("-")
        if logical == "date":
            return Logical("date")
        return Logical(clock, _PER_SECOND[unit]) if clock in _CLOCKS and unit in _PER_SECOND else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return Logical("decimal", 10 ** schema.get("scale", 0))
    if logical == "uuid" and (kind == "string" or (kind == "fixed" and schema["size"] == 16)):
        return Logical("uuid")
    return Logical("duration") if logical == "duration" and kind == "fixed" and schema["size"] == 12 else None


def members(union: list[Any], path: str) -> list[str | None]:
    """The member of a union's struct that each of its branches goes to. All are None where the union is no struct, or
    the branch is null.

    Null and one other: that other. int and long, float and double: the wider. Else a struct with a member for each.

    Members are called after their types, as Spark's stable identifiers are: a branch that is put before the others, or
    takes another's place, is another column, and no row of a table is read as what it is not. Raises NoColumn where two
    would be called alike.
    """
    kinds = _kinds(union)
    if len(kinds) <= 1:
        return [None] * len(union)
    full = [branch if isinstance(branch, str) else str(branch.get("name", branch["type"])) for branch in kinds]
    names = [f"member_{name.rpartition('.')[2].lower()}" for name in full]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise NoColumn(
                f"{path}: {full[names.index(name)]} and {full[index]} of a union would be one column, {name}: "
                "rename one of them"
            )
    wider = {"int": "member_long", "float": "member_double"}
    return [
        None if branch == "null" else names[kinds.index(branch)] if branch in kinds else wider[branch]
        for branch in union
    ]


def _kinds(union: list[Any]) -> list[Any]:
    """The branches that become columns."""
    kinds = [branch for branch in union if branch != "null"]
    for narrow, wide in (("int", "long"), ("float", "double")):
        if narrow in kinds and wide in kinds:
            kinds.remove(narrow)
    return kinds


class _Columns:
    """One walk over a schema; named types are defined once and referred to by name."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = dict(named)
        self._count = 0

    def of(self, schema: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise NoColumn(_TOO_MANY)
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self._of_named(self._named[schema], path, within)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, path, within)
        if kind in (*_RECORDS, "enum", "fixed"):
            self._named[schema["name"]] = schema
            return self._of_named(schema, path, within)
        logical = schema.get("logicalType")
        if kind == "array":
            items = self.of(schema["items"], f"{path}[]", within)
            if _may_be_empty(schema["items"], self._named):
                raise NoColumn(
                    f"{path}: an array whose items take no bytes: a few bytes could claim any number of them"
                )
            return pa.list_(items)
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{path}.value", within))
        if logical in _TIMES and kind in ("int", "long"):
            return _TIMES[logical]
        if logical == "decimal" and kind == "bytes":
            return _decimal(schema, path)
        return self.of(kind, path, within)

    def _of_named(self, schema: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
        name = schema["name"]
        if name in within:
            raise NoColumn(f"{path}: {name} is within itself, which no column can be")
        if schema["type"] == "enum":
            return pa.string()
        if schema["type"] == "fixed":
            _require_size(schema, path)
            if schema.get("logicalType") == "decimal":
                return _decimal(schema, path)
            return pa.string() if logical_of(schema) == Logical("uuid") else pa.binary()
        columns = [
            (field["name"], self.of(field["type"], f"{path}.{field['name']}", (*within, name)))
            for field in schema["fields"]
        ]
        if not columns:
            raise NoColumn(f"{path}: {name} is a record without fields")
        return pa.struct(columns)

    def _union(self, branches: list[Any], path: str, within: tuple[str, ...]) -> pa.DataType:
        if not branches:
            raise NoColumn(f"{path}: {_NO_BRANCH}")
        kinds = _kinds(branches)
        if len(kinds) <= 1:
            return self.of(kinds[0], path, within) if kinds else pa.string()
        names = dict.fromkeys(
            name for branch, name in zip(branches, members(branches, path), strict=True) if branch in kinds
        )
        return pa.struct(
            [(name, self.of(kind, f"{path}.{name}", within)) for name, kind in zip(names, kinds, strict=True)]
        )


def _require_size(fixed: Any, path: str) -> None:
    size = fixed["size"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise NoColumn(f"{path}: {fixed['name']} is a fixed of the size {size!r:.40}, which is no number of bytes")


def _decimal(schema: Any, path: str) -> pa.DataType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise NoColumn(
            f"{path}: decimal({precision},{scale}) has more than the 38 digits that Parquet's readers take, or no "
            "such scale"
        )
    return pa.decimal128(precision, scale)


def _may_be_empty(schema: Any, named: dict[str, Any]) -> bool:
    match schema:
        case str():
            return schema == "null" or (
                schema in named
                and _may_be_empty(named[schema], {key: each for key, each in named.items() if key != schema})
            )
        case {"type": "record", "fields": fields}:
            return all(_may_be_empty(field["type"], named) for field in fields)
        case {"type": "fixed", "size": size}:
            return bool(size == 0)
        case {"type": inner}:
            return _may_be_empty(inner, named)
    return False
