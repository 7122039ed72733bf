"""JSON values by a schema: msgspec checks types while it parses, and Arrow takes the objects that it gives.

pyarrow's own reader of JSON lines is no faster here, and ends the process on some malformed input.
"""

import ctypes
import datetime
import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, NotRequired, Required, TypedDict

import msgspec
import pyarrow as pa

from bmq_spark.values.decoded import RecordDecoder, Unfit, reason
from bmq_spark.values.json_schema_types import JSON_TEXT
from bmq_spark.values.made_values import SLICE_VALUES, Counter, made_by, require_few

JSON_REFUSES: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_EXACT: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): bool,
    pa.float32(): float,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): datetime.date,
    JSON_TEXT: msgspec.Raw,
}
_KEEP_UTF8: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyUnicode_AsUTF8AndSize", ctypes.pythonapi)
)
"""It caches what it gives in the string, by Python's documentation."""
_DIGITS: Final = decimal.Context(
    prec=100, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow, decimal.Clamped]
)
FLOAT_MAX: Final = float.fromhex("0x1.fffffefffffffp+127")
"""The largest number that rounds to a float of 32 bits: what is above becomes infinite."""
_NUMBER_BEGINS: Final = frozenset(bytes([octet]) for octet in b"-0123456789")
_KINDS: Final = {b'"': "str", b"{": "object", b"[": "array", b"t": "bool", b"f": "bool", b"n": "null"}
"""As msgspec calls JSON's values, by how they begin."""
_INTEGERS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


@dataclass(frozen=True, eq=False)
class JsonDecoder(RecordDecoder):
    """Values that are JSON objects of a given schema: types are held to, fields that the schema does not have are left
    out.
    """

    schema: pa.DataType
    """A struct; fields that are not nullable have to be there. JSON_TEXT may stand for any part."""

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """The schema with every field nullable."""
        return columns_of(self.schema)

    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """An object of the schema for each value, None for null and for those that do not fit: their positions with
        reasons. It may stop before the end where it has made much.
        """
        decode, finish = self._parser
        each, count = self._made
        made = 0
        objects: list[Any] = []
        unfit: dict[int, str] = {}
        for position, value in enumerate(values):
            if made > SLICE_VALUES:
                break
            made += each
            if value is None:
                objects.append(None)
                continue
            try:
                found = decode(value)
                if count is not None:
                    items = count(found)
                    require_few(items, len(value))
                    made += items
                objects.append(finish(found))
            except (Unfit, *JSON_REFUSES) as error:
                objects.append(None)
                unfit[position] = "not the JSON of the schema: " + reason(error)
        return objects, unfit

    @cached_property
    def _parser(self) -> tuple[Callable[[bytes], Any], Callable[[Any], Any]]:
        return msgspec.json.Decoder(python_type(self.schema)).decode, finisher(self.schema) or _as_it_is

    @cached_property
    def _made(self) -> tuple[int, Counter | None]:
        return made_by(self.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema}


def columns_of(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the columns: every field nullable, JSON text as string."""
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, columns_of(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(arrow_type.key_type, columns_of(arrow_type.item_type))
    if pa.types.is_list(arrow_type):
        return pa.list_(columns_of(arrow_type.value_type))
    return pa.string() if arrow_type == JSON_TEXT else arrow_type


def python_type(arrow_type: pa.DataType) -> Any:
    """What msgspec decodes to and checks. A struct's objects become dicts, which Arrow takes as they are."""
    if pa.types.is_struct(arrow_type):
        return TypedDict("Fields", {_findable(field.name): _field_type(field) for field in arrow_type})  # type: ignore[operator]
    if pa.types.is_map(arrow_type):
        return dict[str, _optional(arrow_type.item_type)]  # type: ignore[misc]
    if pa.types.is_list(arrow_type):
        return list[_optional(arrow_type.value_type)]  # type: ignore[misc]
    if arrow_type in _INTEGERS:
        bound = 1 << (_INTEGERS[arrow_type] - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    if pa.types.is_timestamp(arrow_type):
        return datetime.datetime
    if pa.types.is_decimal(arrow_type):
        return msgspec.Raw  # to a Decimal msgspec takes text as well, and its own way with exponents
    return _EXACT[arrow_type]


def _field_type(field: pa.Field) -> Any:
    """msgspec (0.22) gives Raw to no field that is required: that such a one is there, the finisher checks."""
    if field.nullable or (found := python_type(field.type)) is msgspec.Raw:
        return NotRequired[_optional(field.type)]
    return Required[found]


def _findable(name: str) -> str:
    """The name with its UTF-8 kept beside it: msgspec (0.22) finds no field of a TypedDict by a name without, unless it
    is of ASCII alone.
    """
    _KEEP_UTF8(name, None)
    return name


def _optional(arrow_type: pa.DataType) -> Any:
    """Raw holds null too."""
    found = python_type(arrow_type)
    return found if found is msgspec.Raw else found | None


def finisher(arrow_type: pa.DataType, path: str = "$", *, nullable: bool = True) -> Callable[[Any], Any] | None:
    """What has still to be done to an object of the type before Arrow takes it, in place where that can be; None where
    nothing is.

    `nullable`: whether it may be null, which msgspec does not check where it leaves the JSON as it is.
    """
    if arrow_type == JSON_TEXT:
        return json_text
    if pa.types.is_decimal(arrow_type):
        return _decimal_finisher(arrow_type, path, nullable=nullable)
    if arrow_type == pa.float32():
        return _float_finisher(path)
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is None:
        return _without_zone
    if pa.types.is_struct(arrow_type):
        parts = {
            field.name: finisher(field.type, f"{path}.{field.name}", nullable=field.nullable) for field in arrow_type
        }
        needed = [field.name for field in arrow_type if not field.nullable and python_type(field.type) is msgspec.Raw]
        return _fields_finisher({name: finish for name, finish in parts.items() if finish is not None}, needed, path)
    if pa.types.is_map(arrow_type):
        items = finisher(arrow_type.item_type, f"{path}[...]")
        return (
            (lambda found: list(found.items()))
            if items is None
            else lambda found: [(key, item if item is None else items(item)) for key, item in found.items()]
        )
    if pa.types.is_list(arrow_type):
        element = finisher(arrow_type.value_type, f"{path}[...]")
        return None if element is None else lambda found: [each if each is None else element(each) for each in found]
    return None


def json_text(raw: msgspec.Raw) -> str | None:
    """A string's content, nothing for null, and the JSON text of anything else."""
    content = bytes(raw)
    if content[:1] == b'"':
        return msgspec.json.decode(content, type=str)
    return None if content == b"null" else content.decode("utf-8")


def _fields_finisher(
    finishers: dict[str, Callable[[Any], Any]], needed: Sequence[str], path: str
) -> Callable[[Any], Any] | None:
    if not finishers:
        return None

    def finish(fields: dict[str, Any]) -> dict[str, Any]:
        for name in needed:
            if name not in fields:
                raise ValueError(f"Object missing required field `{name}` - at `{path}`")
        for name, each in finishers.items():
            value = fields.get(name)
            if value is not None:
                fields[name] = each(value)
        return fields

    return finish


def _decimal_finisher(
    arrow_type: pa.DataType, path: str, *, nullable: bool
) -> Callable[[msgspec.Raw], decimal.Decimal | None]:
    """Takes a JSON number alone, whose every digit has to fit; msgspec has held it to JSON's grammar.

    Arrow is not asked: an exponent like 1e-999999999 ends the process there (pyarrow 26).
    """
    unit, bound = decimal.Decimal(1).scaleb(-arrow_type.scale), arrow_type.precision - arrow_type.scale

    def finish(raw: msgspec.Raw) -> decimal.Decimal | None:
        content = bytes(raw)
        if content[:1] not in _NUMBER_BEGINS:
            if content == b"null" and nullable:
                return None
            raise ValueError(f"Expected `decimal`, got `{_KINDS[content[:1]]}` - at `{path}`")
        try:
            fitted = decimal.Decimal(content.decode()).quantize(unit, context=_DIGITS)
        except decimal.DecimalException:
            fitted = None
        if fitted is None or not fitted.is_finite() or (fitted and fitted.adjusted() >= bound):
            raise ValueError(
                f"decimal({arrow_type.precision},{arrow_type.scale}) does not hold all digits of the number - at "
                f"`{path}`"
            )
        return fitted

    return finish


def _float_finisher(path: str) -> Callable[[float], float]:
    """Digits may be lost, as everywhere with floats; a number that would become infinite does not fit."""

    def finish(number: float) -> float:
        if abs(number) > FLOAT_MAX:
            raise ValueError(f"float does not hold {number!r} - at `{path}`")
        return number

    return finish


def _without_zone(time: datetime.datetime) -> datetime.datetime:
    if time.tzinfo is not None:
        raise ValueError("a time zone where the schema has timestamp_ntz")
    return time


def _as_it_is(value: Any) -> Any:
    return value
