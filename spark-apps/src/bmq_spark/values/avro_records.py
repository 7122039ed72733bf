"""Avro values: plain binary of one schema, or in Confluent's wire format, where each record names the schema that it
was written with.

A record is read with its writer's schema and resolved to the reader's, which makes the columns. What the reader does
not have is read over, though it could be no column.
"""

import decimal
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from bmq_spark.errors import ConfigurationError
from bmq_spark.values.avro_defaults import require_legal_defaults
from bmq_spark.values.avro_kept import reader_with_kept
from bmq_spark.values.avro_resolution import resolved
from bmq_spark.values.avro_strict import StrictAvro
from bmq_spark.values.avro_types import NoColumn, column_of, in_table, require_readable
from bmq_spark.values.by_schema_id import BySchemaId
from bmq_spark.values.decoded import Build, Unfit, reason
from bmq_spark.values.made_values import SLICE_VALUES, width
from bmq_spark.values.registered import RegisteredDecoder, with_kept
from bmq_spark.values.registry import RegisteredSchema, Registry, schema_id
from bmq_spark.values.schema_files import SchemaFile

AVRO_REFUSES: Final = (
    EOFError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError, StopIteration,
    AssertionError, MemoryError, decimal.DecimalException,
)  # fmt: skip
_SCHEMA_REFUSES: Final = (
    SchemaParseException,
    UnknownType,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    OverflowError,
)


@dataclass(frozen=True, eq=False)
class AvroDecoder(RegisteredDecoder):
    """`reader` is a schema as parse_avro gives it. With a registry values are in the wire format, without one they are
    all of the reader's schema. See RegisteredDecoder for the others.
    """

    reader: Any
    registry: Registry | None = None
    version: int | None = None
    kept: pa.DataType | None = None

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct of the record's fields, and of those that are kept."""
        return in_table(self._column)

    @property
    def own_type(self) -> pa.DataType:
        """A struct of the record's fields alone."""
        return in_table(column_of(self.reader))

    def reads_as(self, other: RegisteredDecoder) -> bool:
        """Whether both are of the same schema."""
        return isinstance(other, AvroDecoder) and bool(other.reader == self.reader)

    def refused_by(self, newer: RegisteredDecoder) -> str:
        """Why the newer one would refuse records of the newest version that this one knows; empty: it would not."""
        assert isinstance(newer, AvroDecoder)
        try:
            return resolved(self.reader, newer.reader).refuses
        except NoColumn as error:
            return str(error)

    def leaves_out(self, number: int) -> bool:
        """Whether records of the schema with that id have fields that become no column. Raises RegistryUnavailable."""
        try:
            return self._by_id(number).leaves_out
        except Unfit:
            return False

    def array(self, objects: list[Any]) -> pa.Array:
        """The objects as an array of `arrow_type`. Raises what ARROW_REFUSES names."""
        array = pa.array(objects, type=self._column)
        return array if array.type == self.arrow_type else array.cast(self.arrow_type)

    def parts(self) -> Sequence[tuple[pa.Field, Build]]:
        """As `RecordDecoder.parts`: numbers of a time are in the schema's unit."""
        return [(field, partial(_column, read)) for field, read in zip(self.arrow_type, self._column, strict=True)]

    def parse(self, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
        """A record for each value, None for null and for those that do not fit: their positions with reasons. It may
        stop before the end where it has made much. Raises RegistryUnavailable.
        """
        read, start, made = self._plain, 0, 0
        objects: list[Any] = []
        unfit: dict[int, str] = {}
        for position, value in enumerate(values):
            if made > SLICE_VALUES:
                break
            made += self._width
            if value is None:
                objects.append(None)
                continue
            try:
                if self.registry is not None:
                    read, start = self._by_id(schema_id(value)), 5
                made += read.strict.check(value, start)
                content = io.BytesIO(value)
                content.seek(start)
                objects.append(read.record(content))
            except Unfit as error:
                objects.append(None)
                unfit[position] = reason(error)
            except AVRO_REFUSES as error:
                objects.append(None)
                unfit[position] = f"not Avro of the schema: {type(error).__name__} {reason(error)}"
        return objects, unfit

    def _reader_of(self, number: int, registered: RegisteredSchema) -> "_Read":
        """What reads records of that schema. Raises Unfit, SchemaUnknown, RegistryUnavailable."""
        assert self.registry is not None
        try:
            writer = registered_avro(self.registry, registered)
            require_readable(writer)
            if writer == self.reader:
                return self._plain
            kept = self.kept
            return _read_by(writer, self.reader if kept is None else reader_with_kept(writer, self.reader, kept))
        except (NoColumn, *_SCHEMA_REFUSES) as error:
            raise Unfit(f"schema id {number}: {reason(error)}") from error

    @cached_property
    def _column(self) -> pa.DataType:
        return with_kept(column_of(self.reader), self.kept)

    def _knows(self, number: int) -> bool:
        return self._by_id.learnt(number)

    @cached_property
    def _width(self) -> int:
        return width(self._column)

    @cached_property
    def _plain(self) -> "_Read":
        return _read_by(self.reader, self.reader)

    @cached_property
    def _by_id(self) -> BySchemaId["_Read"]:
        assert self.registry is not None
        return BySchemaId(
            self.registry, kind="AVRO", learn=self._reader_of, version=self.version, unknown=self._unknown
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": self.reader, **self._sent()}


def _column(read: pa.Field, records: list[Any]) -> pa.Array:
    made = pa.array([None if record is None else record.get(read.name) for record in records], type=read.type)
    return made.cast(in_table(read.type))


class _Read(NamedTuple):
    """How records of one writer's schema are read."""

    strict: StrictAvro
    record: Callable[[io.BytesIO], Any]
    leaves_out: bool = False
    """Whether they have fields that become no column."""


def read_avro_schema(source: SchemaFile) -> Any:
    """A parsed record schema. Raises ConfigurationError."""
    try:
        written = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else None
        raise source.broken(
            f"not JSON ({str(error).partition(': line')[0]})", "give an Avro schema (.avsc)", position=position
        ) from error
    try:
        return checked_avro(parse_avro(written))
    except (NoColumn, *_SCHEMA_REFUSES) as error:
        raise source.broken(
            f"not an Avro schema of a table: {reason(error)}",
            "give an Avro record's schema (.avsc), its named types included",
        ) from error


def registered_reader(registry: Registry, registered: RegisteredSchema, name: str) -> Any:
    """A parsed record schema out of a registry. Raises ConfigurationError, SchemaUnknown, RegistryUnavailable."""
    try:
        return checked_avro(registered_avro(registry, registered))
    except (NoColumn, *_SCHEMA_REFUSES) as error:
        raise ConfigurationError(
            f"schema {name}: not an Avro schema of a table: {reason(error)}: register a record's schema"
        ) from error


def registered_avro(registry: Registry, registered: RegisteredSchema) -> Any:
    """The parsed schema of a registry, what it refers to included. Raises what parse_avro raises, SchemaUnknown,
    RegistryUnavailable.
    """
    named: dict[str, Any] = {}
    for _, text in registry.referred(registered):
        parse_avro(json.loads(text), named)
    return parse_avro(json.loads(registered.text), named)


def parse_avro(written: Any, named: dict[str, Any] | None = None) -> Any:
    """fastavro's form of the schema with every named type spelled out where it is first used."""
    parsed = fastavro.parse_schema(written, named_schemas=named, expand=False, _ignore_default_error=True)
    return _spelled_out(parsed, dict(named or {}), set())


def checked_avro(schema: Any) -> Any:
    """The schema, when it is a record that can be columns and its defaults are values of them. Raises NoColumn."""
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        raise NoColumn("the schema is not of a record")
    column_of(schema)
    require_legal_defaults(schema)
    return schema


def _spelled_out(schema: Any, named: dict[str, Any], defined: set[str]) -> Any:
    match schema:
        case str() if schema in named and schema not in defined:
            return _spelled_out(named[schema], named, defined)
        case dict():
            if schema.get("type") in ("record", "enum", "fixed", "error"):
                defined.add(schema["name"])
            return {
                name: _spelled_out(part, named, defined) if name in ("type", "items", "values", "fields") else part
                for name, part in schema.items()
                if not name.startswith("__")
            }
        case list():
            if any(isinstance(part, list) for part in schema):
                raise NoColumn("a union within a union, which Avro does not have: write all branches in one")
            return [_spelled_out(part, named, defined) for part in schema]
    return schema


def _read_by(writer: Any, reader: Any) -> _Read:
    wire, convert, leaves_out, _ = resolved(writer, reader)
    parsed, read = fastavro.parse_schema(wire), fastavro.schemaless_reader
    if convert is None:
        return _Read(StrictAvro(writer, reader), lambda content: read(content, parsed, None), leaves_out)
    return _Read(StrictAvro(writer, reader), lambda content: convert(read(content, parsed, None)), leaves_out)
