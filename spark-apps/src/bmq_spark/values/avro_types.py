"""What an Avro schema is as columns: the Arrow type that its values are read into, the one of the table, and what is done to values between."""

import datetime
import decimal
import uuid
from collections.abc import Callable
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
_DIGITS: Final = decimal.Context(prec=100)
_DECIMAL_BYTES: Final = 40
"""No decimal of 38 digits is longer, sign bytes of careless writers included; a number of a megabyte would take minutes to convert."""
_BRANCHES: Final = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}

COLUMNS_MAX: Final = 20_000
"""Parts of a schema with every named type where it is used: thirty lines that each use the one before twice would be a billion columns."""

Finish = Callable[[Any], Any]


class NoColumn(Exception):
    """The schema says something that no column can be; the message has the path."""


@dataclass(frozen=True)
class AvroColumn:
    """`read` is what pa.array is told, `finish` comes before it (None: nothing to do), and a cast gives `written`."""

    read: pa.DataType
    finish: Finish | None = None

    @property
    def written(self) -> pa.DataType:
        """Timestamps in microseconds, as Spark has them."""
        return _microseconds(self.read)


def column_of(schema: Any) -> AvroColumn:
    """The column of a parsed schema (fastavro.parse_schema). Raises NoColumn."""
    return _Columns().of(schema, "value", ())


def plain(schema: Any, *, with_times: bool = False) -> Any:
    """The schema with logical types as what they are stored as: fastavro would make Python's objects only for Arrow to take them apart.

    `with_times` leaves dates and timestamps to fastavro.
    """
    match schema:
        case dict():
            kept = with_times and schema.get("logicalType") in _TIMES
            return {
                name: plain(part, with_times=with_times) if name in ("type", "items", "values", "fields") else part
                for name, part in schema.items()
                if not name.startswith("__") and (name != "logicalType" or kept)
            }
        case list():
            return [plain(part, with_times=with_times) for part in schema]
    return schema


def times_of(schema: Any) -> set[str]:
    """The logical types of times that a schema has anywhere: numbers of two units must not be taken for one another."""
    match schema:
        case dict():
            here = {schema["logicalType"]} & _TIMES.keys() if isinstance(schema.get("logicalType"), str) else set()
            return here.union(*(times_of(schema[name]) for name in ("type", "items", "values", "fields") if name in schema))
        case list():
            return set().union(*map(times_of, schema))
    return set()


class _Columns:
    """One walk over a schema; named types are defined once and referred to by name."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._count = 0

    def of(self, schema: Any, path: str, within: tuple[str, ...]) -> AvroColumn:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise NoColumn(f"more than {COLUMNS_MAX} columns")
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            return AvroColumn(_PRIMITIVES[schema]) if schema in _PRIMITIVES else self._of_named(self._named[schema], path, within)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, path, within)
        if kind in ("record", "error", "enum", "fixed"):
            self._named[schema["name"]] = schema
            return self._of_named(schema, path, within)
        logical = schema.get("logicalType")
        if kind == "array":
            items = self.of(schema["items"], f"{path}[]", within)
            if _may_be_empty(schema["items"], self._named):
                raise NoColumn(f"{path}: an array whose items take no bytes: a few bytes could claim any number of them")
            return self._array(items)
        if kind == "map":
            return self._map(self.of(schema["values"], f"{path}.value", within))
        if logical in _TIMES and kind in ("int", "long"):
            return AvroColumn(_TIMES[logical])
        if logical == "decimal" and kind == "bytes":
            return _decimal(schema, path)
        return self.of(kind, path, within)

    def _of_named(self, schema: Any, path: str, within: tuple[str, ...]) -> AvroColumn:
        name = schema["name"]
        if name in within:
            raise NoColumn(f"{path}: {name} is within itself, which no column can be")
        if schema["type"] == "enum":
            return AvroColumn(pa.string())
        if schema["type"] == "fixed":
            if schema.get("logicalType") == "decimal":
                return _decimal(schema, path)
            is_uuid = schema.get("logicalType") == "uuid" and schema["size"] == 16
            return AvroColumn(pa.string(), lambda octets: str(uuid.UUID(bytes=octets))) if is_uuid else AvroColumn(pa.binary())
        columns = {field["name"]: self.of(field["type"], f"{path}.{field['name']}", (*within, name)) for field in schema["fields"]}
        if not columns:
            raise NoColumn(f"{path}: {name} is a record without fields")
        finishers = {field: column.finish for field, column in columns.items() if column.finish is not None}
        return AvroColumn(pa.struct([(field, column.read) for field, column in columns.items()]), _in_fields(finishers) if finishers else None)

    def _union(self, branches: list[Any], path: str, within: tuple[str, ...]) -> AvroColumn:
        """Null and one other: that other. int and long, float and double: the wider. Else a struct with a member for each.

        Members are called after their types, as Spark's stable identifiers are: a branch that is put before the others, or
        takes another's place, is another column, and no row of a table is read as what it is not.
        """
        kinds = [branch for branch in branches if branch != "null"]
        for narrow, wide in (("int", "long"), ("float", "double")):
            if narrow in kinds and wide in kinds:
                kinds.remove(narrow)
        if len(kinds) <= 1:
            return self._single(self.of(kinds[0], path, within)) if kinds else AvroColumn(pa.string())
        names = _member_names(kinds, path)
        members = [self.of(kind, f"{path}.{name}", within) for name, kind in zip(names, kinds, strict=True)]
        deciders = [self._decider(kind) for kind in kinds]

        def finish(value: Any) -> dict[str, Any]:
            name, inner = value if isinstance(value, tuple) else (None, value)
            for called, fits, member in zip(names, deciders, members, strict=True):
                if fits(name, inner):
                    return {called: inner if member.finish is None else member.finish(inner)}
            raise ValueError(f"{path}: no branch of the union holds {type(inner).__name__}")

        return AvroColumn(pa.struct([(called, member.read) for called, member in zip(names, members, strict=True)]), finish)

    def _decider(self, branch: Any) -> Callable[[str | None, Any], bool]:
        """Named types come from fastavro with their names, others are told by what Python has for them."""
        kind = branch if isinstance(branch, str) else branch["type"]
        if kind in _BRANCHES:
            expected = (
                _BRANCHES[kind],
                *((datetime.date, datetime.datetime) if isinstance(branch, dict) and branch.get("logicalType") in _TIMES else ()),
            )
            return lambda name, inner: name is None and type(inner) in expected
        full_name = branch if isinstance(branch, str) else branch.get("name")
        return lambda name, _: name == full_name

    @staticmethod
    def _single(column: AvroColumn) -> AvroColumn:
        """With return_named_type a branch comes as a pair of its name and the value, unless its type has no name."""
        finish = column.finish

        def unwrap(value: Any) -> Any:
            inner = value[1] if isinstance(value, tuple) else value
            return inner if finish is None else finish(inner)

        return AvroColumn(column.read, unwrap)

    @staticmethod
    def _array(items: AvroColumn) -> AvroColumn:
        finish = items.finish
        each = None if finish is None else lambda values: [None if value is None else finish(value) for value in values]
        return AvroColumn(pa.list_(items.read), each)

    @staticmethod
    def _map(items: AvroColumn) -> AvroColumn:
        finish = items.finish
        each = None if finish is None else lambda pairs: {key: None if value is None else finish(value) for key, value in pairs.items()}
        return AvroColumn(pa.map_(pa.string(), items.read), each)


def _member_names(branches: list[Any], path: str) -> list[str]:
    """Raises NoColumn where two are called alike."""
    full = [branch if isinstance(branch, str) else str(branch.get("name", branch["type"])) for branch in branches]
    names = [f"member_{name.rpartition('.')[2].lower()}" for name in full]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise NoColumn(f"{path}: {full[names.index(name)]} and {full[index]} of a union would be one column, {name}: rename one of them")
    return names


def has_choices(schema: Any) -> bool:
    """Whether some union has more than null and one other: only then has fastavro to tell which branch it read."""
    match schema:
        case list():
            return len([branch for branch in schema if branch != "null"]) > 1 or any(map(has_choices, schema))
        case dict():
            return any(has_choices(schema[name]) for name in ("type", "items", "values", "fields") if name in schema)
    return False


def _in_fields(finishers: dict[str, Finish]) -> Finish:
    def finish(record: dict[str, Any]) -> dict[str, Any]:
        for name, each in finishers.items():
            if (value := record.get(name)) is not None:
                record[name] = each(value)
        return record

    return finish


def _decimal(schema: Any, path: str) -> AvroColumn:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise NoColumn(f"{path}: decimal({precision},{scale}) has more than the 38 digits that Parquet's readers take, or no such scale")

    def finish(octets: bytes) -> decimal.Decimal:
        if len(octets) > _DECIMAL_BYTES:
            raise ValueError(f"{path}: a decimal of {len(octets)} bytes")
        return _DIGITS.scaleb(decimal.Decimal(int.from_bytes(octets, "big", signed=True)), -scale)

    return AvroColumn(pa.decimal128(precision, scale), finish)


def _may_be_empty(schema: Any, named: dict[str, Any]) -> bool:
    match schema:
        case str():
            return schema == "null" or (schema in named and _may_be_empty(named[schema], {key: each for key, each in named.items() if key != schema}))
        case {"type": "record", "fields": fields}:
            return all(_may_be_empty(field["type"], named) for field in fields)
        case {"type": "fixed", "size": size}:
            return bool(size == 0)
        case {"type": inner}:
            return _may_be_empty(inner, named)
    return False


def _microseconds(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _microseconds(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(_microseconds(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return pa.map_(arrow_type.key_type, _microseconds(arrow_type.item_type))
    return pa.timestamp("us", tz=arrow_type.tz) if pa.types.is_timestamp(arrow_type) else arrow_type
