"""Which schemas may follow a table's schema: those by which its old files can still be read."""

import pyarrow as pa
from pyarrow import types

from bmq_spark.errors import CommitRefused
from bmq_spark.values.evolution import parquet_rules


def require_evolution(old: pa.Schema, new: pa.Schema) -> None:
    """Raises CommitRefused: one line that names the column."""
    _require_fields("", list(old), list(new))


def _require_fields(path: str, old: list[pa.Field], new: list[pa.Field]) -> None:
    by_name = {field.name: field for field in new}
    if len(by_name) != len(new):
        raise CommitRefused(f"schema: {path or 'the table'} has two columns of one name")
    for field in old:
        name = f"{path}{field.name}"
        later = by_name.pop(field.name, None)
        if later is None:
            raise CommitRefused(f"schema: column {name} is gone: columns are only added or widened")
        if field.nullable and not later.nullable:
            raise CommitRefused(f"schema: column {name} must stay nullable")
        _require_type(name, field.type, later.type)
    for field in by_name.values():
        if not field.nullable:
            raise CommitRefused(
                f"schema: column {path}{field.name} is new and has to be nullable: the old rows have none"
            )


def _require_type(name: str, old: pa.DataType, new: pa.DataType) -> None:
    if old == new or types.is_null(old):
        return
    if types.is_struct(old) and types.is_struct(new):
        _require_fields(f"{name}.", list(old.fields), list(new.fields))
    elif types.is_list(old) and types.is_list(new):
        _require_type(f"{name}.element", old.value_type, new.value_type)
    elif types.is_map(old) and types.is_map(new) and old.key_type == new.key_type:
        _require_type(f"{name}.value", old.item_type, new.item_type)
    elif types.is_nested(old) or types.is_nested(new) or parquet_rules(old, new) != new:
        raise CommitRefused(
            f"schema: column {name} is {old} and cannot become {new}: columns are only added or widened"
        )
