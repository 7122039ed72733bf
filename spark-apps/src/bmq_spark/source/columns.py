"""The columns of a record, the same whatever the source: those of Spark's Kafka connector, and the lane. Owns their
Spark and Arrow types.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from bmq_spark.errors import ConfigurationError

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "lane": pa.string(),
}
SPARK_TYPES: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "lane": "string",
}
ALL: Final = tuple(ARROW_TYPES)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns, in their order."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def spark_schema(columns: Sequence[str]) -> str:
    """The same as Spark's DDL."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)


def parse_columns(text: str) -> tuple[str, ...]:
    """The option `columns`: names with commas between. Raises ConfigurationError."""
    by_name = {name.lower(): name for name in ALL}
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown or not names or len(set(names)) != len(names):
        raise ConfigurationError(f"option columns={text!r}: name some of {', '.join(ALL)}, each once")
    return tuple(by_name[name.lower()] for name in names)
