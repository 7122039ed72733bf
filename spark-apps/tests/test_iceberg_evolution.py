import pyarrow as pa
import pytest
from iceberg_batches import RECORDS, typing
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from bmq_spark.batches.buried import Buried
from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.evolution import Change, changes, columns, ddl, spark_columns
from bmq_spark.iceberg.writing import LETTER, Rows
from bmq_spark.values.evolution import FieldMissing

POINT = StructType([StructField("x", IntegerType())])
TABLE = StructType(
    [
        StructField("key", StringType()),
        StructField("value", StructType([StructField("id", IntegerType()), StructField("points", ArrayType(POINT))])),
        StructField("tags", MapType(StringType(), LongType())),
    ]
)


def test_nothing_is_done_for_rows_that_fit() -> None:
    narrower = pa.schema([("value", pa.struct([("id", pa.int16())])), ("tags", pa.map_(pa.string(), pa.int32()))])
    assert changes(TABLE, narrower, table="t") == []


def test_new_fields_are_added_and_types_widen_at_any_depth() -> None:
    wanted = pa.schema(
        [
            (
                "value",
                pa.struct(
                    [
                        ("id", pa.int64()),
                        ("points", pa.list_(pa.struct([("x", pa.int64()), ("odd `name`", pa.int8())]))),
                    ]
                ),
            ),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("seen", pa.timestamp("us")),
        ]
    )
    assert changes(TABLE, wanted, table="t") == [
        Change(path=("value", "id"), type=LongType(), added=False),
        Change(path=("value", "points", "element", "x"), type=LongType(), added=False),
        Change(path=("value", "points", "element", "odd `name`"), type=IntegerType(), added=True),
        Change(path=("seen",), type=TimestampNTZType(), added=True),
    ]


def test_keys_of_a_map_stay_as_they_are() -> None:
    table = StructType([StructField("m", MapType(IntegerType(), StringType()))])
    assert changes(table, pa.schema([("m", pa.map_(pa.int16(), pa.string()))]), table="t") == []
    with pytest.raises(JobStopped, match="field m: the table has it as a map by int and the new schema by bigint"):
        changes(table, pa.schema([("m", pa.map_(pa.int64(), pa.string()))]), table="t")


def test_a_type_that_cannot_become_the_other_stops_with_both_names() -> None:
    with pytest.raises(
        JobStopped,
        match=r"^table t: field value\.id: the table has .* and the new schema .*: write the new schema to another "
        r"table",
    ):
        changes(TABLE, pa.schema([("value", pa.struct([("id", pa.string())]))]), table="t")


def test_columns_are_written_as_iceberg_keeps_them() -> None:
    schema = pa.schema(
        [("a b", pa.int8()), ("v", pa.struct([("x", pa.list_(pa.int16()))])), ("at", pa.timestamp("us", tz="UTC"))]
    )
    assert ddl(schema) == "`a b` int, `v` struct<`x`: array<int>>, `at` timestamp"


def test_a_row_is_made_only_of_columns_that_have_a_place_for_each_of_its_fields() -> None:
    how = typing("json", "a int, b string")
    record = {"key": b"k", "value": b'{"a":1,"b":"x"}', "headers": [], "topic": "t", "partition": 0, "offset": 0}
    records = pa.RecordBatch.from_pylist([record], schema=RECORDS)
    have = spark_columns(how.schema)
    wider = columns(StructType([StructField("by another", LongType()), *have.fields]))
    (made,) = Rows(typing=how, columns=wider, buried=Buried(), settled=True)([records])
    assert (
        made.to_pylist()[0] | {"key": "k", "value": {"a": 1, "b": "x"}, "by another": None, "offset": 0, LETTER: None}
        == made.to_pylist()[0]
    )
    for gone in [name for name in how.schema.names if name != "value"]:
        with pytest.raises(FieldMissing, match=f"field {gone}: the rows have it and the table does not"):
            list(
                Rows(typing=how, columns=wider.remove(wider.get_field_index(gone)), buried=Buried(), settled=True)(
                    [records]
                )
            )
    renamed = wider.set(
        wider.get_field_index("value"), pa.field("value", pa.struct([("a", pa.int32()), ("c", pa.string())]))
    )
    with pytest.raises(FieldMissing, match=r"field value\.b: the rows have it and the table does not"):
        list(Rows(typing=how, columns=renamed, buried=Buried(), settled=True)([records]))
