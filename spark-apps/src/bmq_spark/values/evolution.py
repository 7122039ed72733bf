"""How a table's columns may change: fields are added, types widen by rules, and nothing narrows or goes away."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from bmq_spark.errors import BmqError
from bmq_spark.values.ddl import write_ddl

Rules = Callable[[pa.DataType, pa.DataType], pa.DataType | None]
"""From what a column is and what is to go into it to what it becomes; None where that may not be. Types without parts
only."""


class SchemaBreaks(BmqError):
    """The new schema takes something away from the known one; the message names the field and both types."""


class FieldMissing(BmqError):
    """Rows have a field for which the table has no column: it would get lost."""


_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def parquet_rules(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """What Spark and DuckDB read across files of both types: Iceberg's promotions, and integers of up to 32 bits as
    double.
    """
    if known == pa.float64() and new in _INTEGERS[:3]:
        return known
    if new == pa.float64() and known in _INTEGERS[:3]:
        return new
    return iceberg_rules(known, new)


def iceberg_rules(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """What Iceberg's specification calls type promotion (schema evolution): int to long, float to double, a decimal's
    precision.
    """
    if known == new:
        return known
    if known in _INTEGERS and new in _INTEGERS:
        return max(known, new, key=_INTEGERS.index)
    if {known, new} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal(known) and pa.types.is_decimal(new) and known.scale == new.scale:
        return pa.decimal128(max(known.precision, new.precision), known.scale)
    return None


def json_rules(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """What columns do that no file has yet: integers become doubles beside fractions, and whatever else meets something
    other becomes JSON text.
    """
    if known == new:
        return known
    return pa.float64() if {known, new} == {pa.int64(), pa.float64()} else pa.string()


def merge(known: pa.Schema, new: pa.Schema, *, rules: Rules = parquet_rules) -> pa.Schema:
    """The known columns in their order, wider where `new` asks for it, then those that only `new` has; all nullable.

    Columns that only `known` has stay: their values are null from now on. Raises SchemaBreaks.
    """
    return pa.schema(list(merge_types(pa.struct(list(known)), pa.struct(list(new)), rules=rules)))


def merge_types(known: pa.DataType, new: pa.DataType, *, rules: Rules = parquet_rules, path: str = "") -> pa.DataType:
    """As `merge`, of types. Raises SchemaBreaks."""
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _structs(known, new, rules, path)
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(merge_types(known.value_type, new.value_type, rules=rules, path=f"{path}[]"))
    if pa.types.is_map(known) and pa.types.is_map(new):
        key = merge_types(known.key_type, new.key_type, rules=rules, path=f"{path}.key")
        if key != merge_types(known.key_type, known.key_type, rules=rules):
            raise SchemaBreaks(
                f"field {path or 'value'}: the table has it as a map by {_shown(known.key_type)} and the new "
                f"schema by {_shown(new.key_type)}, and a map's keys do not widen in tables: write the new schema "
                "to another table, or give the field another name"
            )
        return pa.map_(key, merge_types(known.item_type, new.item_type, rules=rules, path=f"{path}.value"))
    merged = known if pa.types.is_null(new) else new if pa.types.is_null(known) else rules(known, new)
    if merged is None:
        raise SchemaBreaks(
            f"field {path or 'value'}: the table has {_shown(known)} and the new schema {_shown(new)}, which it "
            "cannot become: write the new schema to another table, or give the field another name"
        )
    return merged


def conform(values: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Values of an older or a narrower schema as the wider one that `merge` made: missing fields are null.

    Raises FieldMissing where that has no place for a field of the values, and pyarrow's ArrowInvalid where it has none
    for a value.
    """
    if values.type == arrow_type:
        return values
    _require_fields(values.type, arrow_type, "")
    return values.cast(arrow_type)


def _structs(known: pa.DataType, new: pa.DataType, rules: Rules, path: str) -> pa.DataType:
    spellings = {field.name.lower(): field.name for field in known}
    types = {field.name: field.type for field in known}
    for field in new:
        inner = f"{path}.{field.name}" if path else field.name
        spelling = spellings.setdefault(field.name.lower(), field.name)
        if spelling != field.name:
            raise SchemaBreaks(
                f"field {inner}: the table has it as {spelling}, and Spark does not tell names apart by case: "
                f"write it as {spelling}"
            )
        types[field.name] = (
            merge_types(types[field.name], field.type, rules=rules, path=inner) if field.name in types else field.type
        )
    return pa.struct([pa.field(name, arrow_type) for name, arrow_type in types.items()])


def _require_fields(have: pa.DataType, want: pa.DataType, path: str) -> None:
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        types = {field.name: field.type for field in want}
        for field in have:
            inner = f"{path}.{field.name}" if path else field.name
            if field.name not in types:
                raise FieldMissing(
                    f"field {inner}: the rows have it and the table does not: run the job again: it adds what is "
                    "missing"
                )
            _require_fields(field.type, types[field.name], inner)
    elif pa.types.is_list(have) and pa.types.is_list(want):
        _require_fields(have.value_type, want.value_type, f"{path}[]")
    elif pa.types.is_map(have) and pa.types.is_map(want):
        _require_fields(have.key_type, want.key_type, f"{path}.key")
        _require_fields(have.item_type, want.item_type, f"{path}.value")


def _shown(arrow_type: pa.DataType) -> str:
    try:
        return f"struct<{write_ddl(arrow_type)}>" if pa.types.is_struct(arrow_type) else write_ddl(arrow_type)
    except KeyError:
        return str(arrow_type)
