"""How a table's schema follows what is written to it: fields are added, numbers widened, nothing is taken away or
narrowed.

`bmq_spark.values` says what the columns become; this says which changes bring an Iceberg table there. Nothing here
talks to Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, ByteType, DataType, IntegerType, MapType, ShortType, StructField, StructType

from bmq_spark.errors import JobStopped
from bmq_spark.values import SchemaBreaks, iceberg_rules, merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A column or a field of one that is added, or whose type is widened."""

    path: tuple[str, ...]
    """Names from the top; `element` and `value` step into arrays and maps."""
    type: DataType
    added: bool


def storable(kind: DataType) -> DataType:
    """The type as Iceberg keeps it: it has no integers below 32 bits, and every field may be null."""
    match kind:
        case StructType():
            return storable_struct(kind)
        case ArrayType():
            return ArrayType(storable(kind.elementType))
        case MapType():
            return MapType(storable(kind.keyType), storable(kind.valueType))
        case ByteType() | ShortType():
            return IntegerType()
    return kind


def storable_struct(kind: StructType) -> StructType:
    """The struct as Iceberg keeps it: with the types that `storable` makes of its fields' types, each of which may be
    null.
    """
    return StructType([StructField(field.name, storable(field.dataType)) for field in kind.fields])


def columns(schema: StructType) -> pa.Schema:
    """The schema as Arrow has it; what rows have to be conformed to."""
    return to_arrow_schema(storable_struct(schema))


def spark_columns(schema: pa.Schema) -> StructType:
    """The schema as Spark and Iceberg have it: times without a zone stay so."""
    return storable_struct(from_arrow_schema(schema, prefer_timestamp_ntz=True))


def changes(have: StructType, want: pa.Schema, *, table: str) -> list[Change]:
    """What the table's schema lacks so that rows of `want` go in. Raises JobStopped where they never can."""
    known = storable_struct(have)
    try:
        merged = merge(columns(have), want, rules=iceberg_rules)
    except SchemaBreaks as error:
        raise JobStopped(f"table {table}: {error}") from error
    return list(_struct((), known, spark_columns(merged)))


def ddl(schema: pa.Schema) -> str:
    """The columns as CREATE TABLE has them."""
    return ", ".join(f"{quoted((field.name,))} {_type_ddl(field.dataType)}" for field in spark_columns(schema).fields)


def _struct(path: tuple[str, ...], have: StructType, want: StructType) -> Iterator[Change]:
    there = {field.name: field.dataType for field in have.fields}
    for field in want.fields:
        if field.name in there:
            yield from _type((*path, field.name), there[field.name], field.dataType)
        else:
            yield Change(path=(*path, field.name), type=field.dataType, added=True)


def _type(path: tuple[str, ...], have: DataType, want: DataType) -> Iterator[Change]:
    match have, want:
        case StructType(), StructType():
            yield from _struct(path, have, want)
        case ArrayType(), ArrayType():
            yield from _type((*path, "element"), have.elementType, want.elementType)
        case MapType(), MapType():
            yield from _type((*path, "value"), have.valueType, want.valueType)
        case _ if have != want:
            yield Change(path=path, type=want, added=False)


def quoted(path: tuple[str, ...]) -> str:
    """A column's path as statements have it."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def _type_ddl(kind: DataType) -> str:
    match kind:
        case StructType():
            fields = (f"{quoted((field.name,))}: {_type_ddl(field.dataType)}" for field in kind.fields)
            return f"struct<{', '.join(fields)}>"
        case ArrayType():
            return f"array<{_type_ddl(kind.elementType)}>"
        case MapType():
            return f"map<{_type_ddl(kind.keyType)}, {_type_ddl(kind.valueType)}>"
    return kind.simpleString()
