import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.evolution import changes, ddl, statements

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


def test_new_fields_are_added_at_once_and_wider_types_one_by_one() -> None:
    wanted = pa.schema(
        [
            ("value", pa.struct([("id", pa.int64()), ("points", pa.list_(pa.struct([("x", pa.int64()), ("odd `name`", pa.int8())])))])),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("seen", pa.timestamp("us")),
        ]
    )
    assert statements(changes(TABLE, wanted, table="t"), "c.db.t") == [
        "ALTER TABLE c.db.t ADD COLUMNS (`value`.`points`.`element`.`odd ``name``` int, `seen` timestamp_ntz)",
        "ALTER TABLE c.db.t ALTER COLUMN `value`.`id` TYPE bigint",
        "ALTER TABLE c.db.t ALTER COLUMN `value`.`points`.`element`.`x` TYPE bigint",
    ]


def test_a_type_that_cannot_become_the_other_stops_with_both_names() -> None:
    with pytest.raises(JobStopped, match=r"^table t: field value\.id: the table has .* and the new schema .*: write the new schema to another table"):
        changes(TABLE, pa.schema([("value", pa.struct([("id", pa.string())]))]), table="t")


def test_columns_are_written_as_iceberg_keeps_them() -> None:
    schema = pa.schema([("a b", pa.int8()), ("v", pa.struct([("x", pa.list_(pa.int16()))])), ("at", pa.timestamp("us", tz="UTC"))])
    assert ddl(schema) == "`a b` int, `v` struct<`x`: array<int>>, `at` timestamp"
