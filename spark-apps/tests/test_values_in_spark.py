"""That what is decoded is what Spark's workers make of it, and what Spark and DuckDB read from Parquet, whichever the
format.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from test_values_avro import EVERYTHING, RECORD, written
from test_values_protobuf import COMMON, ORDERS

from bmq_spark.values import Decoder, SchemaFile, decoder
from bmq_spark.values.protobuf_files import compiled

JSON_COLUMNS = (
    "flag boolean, tiny tinyint, small smallint, number int, big bigint, single float, double double, text string, "
    "octets binary, day date, time timestamp, local timestamp_ntz, price decimal(10,2), list array<struct<x: "
    "int>>, pairs map<string, struct<y: double>>, nested struct<`odd name`: struct<z: array<array<int>>>>"
)
JSON_VALUE = {
    "flag": True, "tiny": 1, "small": 2, "number": 3, "big": 2**62, "single": 1.5, "double": 2.5, "text": "ä", "octets": "AP8=", "day": "2026-11-22",
    "time": "2026-11-22T10:00:00.123456Z", "local": "2026-11-22T10:00:00", "price": 12.5, "list": [{"x": 1}, None],
    "pairs": {"a": {"y": 1}, "b": None},
    "nested": {"odd name": {"z": [[1], [], None]}},
}  # fmt: skip


def by_json() -> tuple[Decoder, bytes]:
    return decoder("json", schema=SchemaFile(name="x.ddl", content=JSON_COLUMNS.encode())), json.dumps(
        JSON_VALUE
    ).encode()


def by_avro() -> tuple[Decoder, bytes]:
    return decoder("avro", schema=SchemaFile(name="x.avsc", content=json.dumps(EVERYTHING).encode())), written(
        EVERYTHING, RECORD
    )


def by_protobuf() -> tuple[Decoder, bytes]:
    descriptors = compiled(
        {"shop/common.proto": COMMON.encode(), "o.proto": ORDERS.encode()}, "o.proto", "x"
    ).SerializeToString()
    value = (
        b"\x08\x01\x10\x05\x29"
        + b"\xff" * 8
        + b"\x6a\x02\x08\x01\x72\x07\x0a\x01k\x12\x02\x08\x02\xa2\x01\x02\x08\x01\xca\x01\x00"
    )
    return decoder("protobuf", schema=SchemaFile(name="x.desc", content=descriptors), message="Order"), value


def by_string() -> tuple[Decoder, bytes]:
    return decoder("string"), "ä".encode()


def test_workers_and_readers_of_parquet_see_the_decoded_values(spark: SparkSession, tmp_path: Path) -> None:
    made = {"string": by_string(), "json": by_json(), "avro": by_avro(), "protobuf": by_protobuf()}
    values = {name: [value, b"\xff\xff\xff", None, value] for name, (_, value) in made.items()}
    schema = pa.schema(
        [
            field
            for name, (each, _) in made.items()
            for field in (pa.field(name, each.arrow_type), pa.field(f"{name}_reason", pa.string()))
        ]
    )

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            decoded = [each.decode(batch.column(name)) for name, (each, _) in made.items()]
            yield pa.RecordBatch.from_arrays(
                [column for each in decoded for column in (each.values, each.reasons)], schema=schema
            )

    binary = pa.record_batch({name: pa.array(column, type=pa.binary()) for name, column in values.items()})
    here = pa.Table.from_batches(decode([binary]))
    for name in made:
        assert here[name].is_null().to_pylist() == [False, True, True, False]
        assert here[f"{name}_reason"].is_valid().to_pylist() == [False, True, False, False]
    pq.write_table(here, tmp_path / "values.parquet")

    spark_schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    expected = spark.createDataFrame(here, spark_schema).collect()
    records = spark.createDataFrame(
        list(zip(*values.values(), strict=True)), ", ".join(f"{name} binary" for name in made)
    ).coalesce(1)
    assert records.mapInArrow(decode, spark_schema).collect() == expected
    assert spark.read.schema(spark_schema).parquet(str(tmp_path)).collect() == expected
    duckdb.sql("set timezone = 'UTC'")
    assert (
        duckdb.sql(f"select * from '{tmp_path}/values.parquet'").to_arrow_table().cast(schema).to_pylist()
        == here.to_pylist()
    )
