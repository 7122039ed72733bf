"""Schemas for JSON values as three kinds of text: Spark's DDL, Spark's schema as JSON, and JSON Schema. All become one
Arrow struct.
"""

import json
from typing import Any

import pyarrow as pa

from bmq_spark.values.ddl import DEPTH, SIMPLE, read_ddl
from bmq_spark.values.json_schema_parts import REMEDY
from bmq_spark.values.json_schema_types import columns_of_schema
from bmq_spark.values.schema_files import SchemaFile


def read_json_schema(source: SchemaFile) -> pa.DataType:
    """The struct of the values; fields that have to be there are not nullable. Raises ConfigurationError."""
    struct = _read(source)
    if (path := _keyed_by_others(struct, "value")) is not None:
        raise source.broken(
            f"{path}: a map whose keys are no strings: a JSON object has no others", "write map<string, …>"
        )
    return struct


def _keyed_by_others(arrow_type: pa.DataType, path: str) -> str | None:
    """Where a map is whose keys are no strings; None where there is none."""
    if pa.types.is_map(arrow_type):
        return path if arrow_type.key_type != pa.string() else _keyed_by_others(arrow_type.item_type, f"{path}[]")
    if pa.types.is_list(arrow_type):
        return _keyed_by_others(arrow_type.value_type, f"{path}[]")
    parts = arrow_type if pa.types.is_struct(arrow_type) else ()
    return next(
        (found for field in parts if (found := _keyed_by_others(field.type, f"{path}.{field.name}")) is not None), None
    )


def _read(source: SchemaFile) -> pa.DataType:
    text = source.text
    if not text.lstrip().startswith("{"):
        return read_ddl(source)
    try:
        schema = json.loads(text)
    except ValueError as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise source.broken(f"not JSON ({str(error).partition(': line')[0]})", REMEDY, position=position) from error
    except RecursionError as error:
        raise source.broken("nested too deep", REMEDY) from error
    if schema.get("type") == "struct" and isinstance(schema.get("fields"), list):
        return _spark_type(source, schema, "value", 0)
    return columns_of_schema(source, schema)


def _spark_type(source: SchemaFile, written: Any, path: str, depth: int) -> pa.DataType:
    """Spark's StructType.json()."""
    try:
        match written:
            case str():
                return (
                    SIMPLE[written]
                    if written in SIMPLE
                    else read_ddl(SchemaFile(name=source.name, content=f"x {written}".encode())).field(0).type
                )
            case _ if depth > DEPTH:
                raise source.broken(f"{path}: more than {DEPTH} types within one another", REMEDY)
            case {"type": "struct", "fields": fields}:
                return pa.struct(
                    [
                        pa.field(
                            field["name"],
                            _spark_type(source, field["type"], f"{path}.{field['name']}", depth + 1),
                            nullable=field.get("nullable", True),
                        )
                        for field in fields
                    ]
                )
            case {"type": "array", "elementType": element}:
                return pa.list_(_spark_type(source, element, f"{path}[]", depth + 1))
            case {"type": "map", "keyType": key, "valueType": value}:
                return pa.map_(
                    _spark_type(source, key, f"{path}.key", depth + 1),
                    _spark_type(source, value, f"{path}.value", depth + 1),
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise source.broken(f"{path}: not a type as Spark writes it ({error!r})", REMEDY) from error
    raise source.broken(f"{path}: type {json.dumps(written)[:80]} is not known", REMEDY)
