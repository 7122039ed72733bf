"""What a reader's defaults are as values of its columns: those that its schema gives to fields that a writer did not
have. Pure.

A default is JSON of the field's type: of a union the first branch that it is one of, text whose characters are the
octets for bytes and fixed, an object for a record, whose fields that are left out have their own defaults. What is none
of its type is refused when the schema is read.
"""

import math
import struct
from typing import Any, Final

import pyarrow as pa

from bmq_spark.values.avro_meanings import meant
from bmq_spark.values.avro_types import NoColumn, column_of, in_table, members, named_types, spelled
from bmq_spark.values.decoded import ARROW_REFUSES, Unfit
from bmq_spark.values.times import require_calendar

NO_DEFAULT: Final = object()
_BITS: Final = {"int": 31, "long": 63}


class _Illegal(Exception):
    """It is no value of the type."""


class Defaults:
    """The defaults of one reader's schema, as parse_avro gives it."""

    def __init__(self, reader: Any) -> None:
        self._named = named_types(reader)

    def of(self, field: Any, path: str) -> Any:
        """A field's default as pa.array takes it for the field's column, or NO_DEFAULT. Raises NoColumn."""
        if "default" not in field:
            return NO_DEFAULT
        try:
            value = self._value(field["type"], field["default"], path)
            read = column_of(field["type"], self._named)
            require_calendar(pa.array([value], type=read).cast(in_table(read)))
        except (_Illegal, Unfit, *ARROW_REFUSES) as error:
            raise NoColumn(
                f"{path}: the default {field['default']!r} is no value of the field's type ({error})"
            ) from error
        return value

    def _value(self, schema: Any, default: Any, path: str) -> Any:
        schema = spelled(schema, self._named)
        if isinstance(schema, list):
            return self._branch(schema, default, path)
        kind = schema["type"]
        match kind, default:
            case "null", None:
                return None
            case "boolean", bool():
                return default
            case "int" | "long", int() if (
                not isinstance(default, bool) and -(1 << _BITS[kind]) <= default < 1 << _BITS[kind]
            ):
                return default
            case "float" | "double", int() | float() if not isinstance(default, bool):
                return _number(kind, default)
            case "string", str():
                return _text(default)
            case "bytes" | "fixed", str():
                convert = meant(schema, schema, path)
                octets = _octets(schema, default)
                return octets if convert is None else convert(octets)
            case "enum", str() if default in schema["symbols"]:
                return default
            case "array", list():
                return [self._value(schema["items"], each, f"{path}[]") for each in default]
            case "map", dict():
                return {
                    _text(key): self._value(schema["values"], each, f"{path}.value") for key, each in default.items()
                }
            case "record", dict():
                return {
                    field["name"]: self._field(field, default, f"{path}.{field['name']}") for field in schema["fields"]
                }
        raise _Illegal(f"{path} is {schema.get('name', kind)}")

    def _field(self, field: Any, record: dict[str, Any], path: str) -> Any:
        if field["name"] in record:
            return self._value(field["type"], record[field["name"]], path)
        if "default" not in field:
            raise _Illegal(f"{path} is not there and has no default")
        return self._value(field["type"], field["default"], path)

    def _branch(self, union: list[Any], default: Any, path: str) -> Any:
        for branch, member in zip(union, members(union, path), strict=True):
            try:
                value = self._value(branch, default, path)
            except _Illegal:
                continue
            return value if member is None or value is None else {member: value}
        raise _Illegal(f"{path} is a union without a branch for it")


def require_legal_defaults(reader: Any) -> None:
    """Raises NoColumn for the first default that is no value of its field."""
    defaults = Defaults(reader)

    def look(schema: Any, path: str) -> None:
        match schema:
            case list():
                for branch in schema:
                    look(branch, path)
            case {"fields": list() as fields}:
                for field in fields:
                    defaults.of(field, f"{path}.{field['name']}")
                    look(field["type"], f"{path}.{field['name']}")
            case dict():
                for part in ("type", "items", "values"):
                    look(schema.get(part), path)

    look(reader, "value")


def _number(kind: str, default: float) -> float:
    try:
        number = float(default)
        if kind == "float":
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError as error:
        raise _Illegal(f"{default!r} is beyond what {kind} holds") from error
    if not math.isfinite(number):
        raise _Illegal(f"{default!r} is no number of JSON")
    return number


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _Illegal("it has half of a character") from error
    return text


def _octets(schema: Any, default: str) -> bytes:
    try:
        octets = default.encode("latin-1")
    except UnicodeEncodeError as error:
        raise _Illegal("its characters stand for octets and have to be below 256") from error
    if schema["type"] == "fixed" and len(octets) != schema["size"]:
        raise _Illegal(f"{len(octets)} octets, not {schema['size']}")
    return octets
