"""A table whose columns were widened after the first batch: its old files have the narrow types."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
from table_records import covered_by, records

from bmq_spark.table import FileName, Layout, PartitionBy, Table, data_files, record_schema, write_batches

NARROW = pa.struct(
    [
        ("byte", pa.int8()),
        ("int", pa.int32()),
        ("single", pa.float32()),
        ("money", pa.decimal128(5, 2)),
        ("count", pa.int32()),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("in", pa.struct([("a", pa.int16())])),
    ]
)
WIDE = pa.struct(
    [
        ("byte", pa.int32()),
        ("int", pa.int64()),
        ("single", pa.float64()),
        ("money", pa.decimal128(20, 2)),
        ("count", pa.float64()),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("in", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("new", pa.string()),
    ]
)
FIRST = {
    "byte": 1,
    "int": 2,
    "single": 1.5,
    "money": Decimal("1.25"),
    "count": 3,
    "list": [4],
    "map": [("a", 5)],
    "in": {"a": 6},
}
SECOND = {
    "byte": 1000,
    "int": 2**40,
    "single": 1e300,
    "money": Decimal("123456789012345.25"),
    "count": 0.5,
    "list": [2**40],
    "map": [("a", 2**40)],
    "in": {"a": 2**40, "b": "x"},
    "new": "x",
}
READ: list[dict[str, Any]] = [FIRST | {"count": 3.0, "in": {"a": 6, "b": None}, "new": None}, SECOND]
"""What every reader is to find, by offset."""


def add_typed(table: Table, number: int, kind: pa.DataType, value: dict[str, Any]) -> None:
    """One record with this value, at offset `number`."""
    schema = record_schema()
    schema = schema.set(schema.get_field_index("value"), pa.field("value", kind))
    plain = records("orders", 0, number, 1)
    columns = [pa.array([value], kind) if field.name == "value" else plain.column(field.name) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    layout = Layout(location=table.location, schema=schema, partition_by=PartitionBy.HOUR)
    rows = list(write_batches([batch], layout, FileName(query_id="q", batch_id=number, task=0)))
    table.commit_batch(
        ("q", number), added=data_files(pa.Table.from_batches(rows)), offsets=covered_by([batch]), schema=schema
    )
