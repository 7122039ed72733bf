"""That readers really take what the rules of Parquet allow: one file of the old types and one of the new, read together
by Spark and DuckDB.
"""

import datetime
import decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bmq_spark.values import merge_types, parquet_rules, read_ddl
from bmq_spark.values.schema_files import SchemaFile

TYPES: dict[str, Any] = {
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "bigint": 4,
    "float": 1.5,
    "double": 2.5,
    "decimal(5,2)": decimal.Decimal("1.25"),
    "decimal(12,2)": decimal.Decimal("2.25"),
    "decimal(25,2)": decimal.Decimal("3.25"),
    "boolean": True,
    "string": "x",
    "binary": b"x",
    "date": datetime.date(2026, 11, 22),
    "timestamp": datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC),
    "timestamp_ntz": datetime.datetime(2026, 11, 22),
}


def test_spark_and_duckdb_read_old_and_new_files_of_every_widening_that_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new, merged, expected = {}, {}, {}, {}
    for old_name, old_value in TYPES.items():
        for new_name, new_value in TYPES.items():
            old_type, new_type = (
                read_ddl(SchemaFile(name="x", content=f"x {name}".encode())).field(0).type
                for name in (old_name, new_name)
            )
            allowed = parquet_rules(old_type, new_type)
            if allowed is None or old_type == new_type:
                continue
            column = f"c{len(old)}"
            for values, value, arrow_type in ((old, old_value, old_type), (new, new_value, new_type)):
                values[column] = pa.array([value], type=arrow_type)
                values[f"{column}s"] = pa.array([{"x": value}], type=pa.struct([("x", arrow_type)]))
                merged[column], merged[f"{column}s"] = (
                    allowed,
                    merge_types(pa.struct([("x", old_type)]), pa.struct([("x", new_type)])),
                )
            expected[column] = {old_value, new_value}
    assert len(expected) > 10, "integers, floats, decimals, integers as doubles, both ways"
    pq.write_table(pa.table(old), tmp_path / "old.parquet")
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    by_spark = spark.read.schema(from_arrow_schema(pa.schema(list(merged.items())))).parquet(str(tmp_path)).collect()
    by_duckdb = (
        duckdb.sql(f"select * from read_parquet('{tmp_path}/*.parquet', union_by_name=true)")
        .to_arrow_table()
        .to_pylist()
    )
    for column, values in expected.items():
        for rows in (by_spark, by_duckdb):
            assert {row[column] for row in rows} == values
            assert {row[f"{column}s"]["x"] for row in rows} == values
