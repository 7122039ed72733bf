"""A record is a row or a dead letter, whatever its schema registry and the tables' owners do meanwhile."""

import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession
from value_registry import serving

from bmq_spark.batches.buried import Buried
from bmq_spark.batches.records import DEAD_LETTERS, Typing
from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.iceberg.writing import LETTER, Rows
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.values import decoder

FIRST = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
SECOND = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}]}
)


def wire(number: int, schema: str, value: dict[str, Any]) -> bytes:
    """In the registry's wire format."""
    content = io.BytesIO()
    fastavro.schemaless_writer(content, json.loads(schema), value)
    return b"\0" + struct.pack(">I", number) + content.getvalue()


def offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())


@pytest.mark.parametrize("upsert_key", ["", "key"])
def test_a_schema_that_the_registry_learns_while_a_batch_is_added_loses_no_record(
    spark: SparkSession, sql: Opened, upsert_key: str
) -> None:
    name = sql.table(f"learns_{upsert_key or 'none'}")
    with serving() as registry:
        one, two = registry.register("orders-value", FIRST), registry.register("other", SECOND)
        late, known, looks = registry.by_id.pop(two), registry.answer, []

        def answer(path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
            found = known(path, authorization)
            looks.append(path)
            if looks.count(f"/schemas/ids/{two}") == 2:  # it is asked for twice, and there from the second look on
                registry.by_id[two] = late
            return found

        registry.answer = answer  # type: ignore[method-assign]
        value = decoder("avro", registry=registry.url, subject="orders-value")
        typed = Typing(key=decoder("string"), value=value, columns=value.arrow_type)
        sink = IcebergSink(
            spark, name, typed, settings(partition_by="none" if upsert_key else "hour", upsert_key=upsert_key)
        )
        values = [wire(one, FIRST, {"id": 1}), wire(two, SECOND, {"id": 2, "note": "x"})]
        added = sink.add(
            batch(
                spark,
                0,
                [Record(offset=offset, value=value, key=b"%d" % offset) for offset, value in enumerate(values)],
            )
        )
    assert (added.rows, added.dead_letters) == (1, 1)
    assert offsets(spark, name) == [0]
    assert offsets(spark, name.dead_letters) == [1]
    assert [bytes(row["value"]) for row in spark.table(name.dead_letters.sql).collect()] == values[1:]


@pytest.mark.parametrize("column", ["reason", "note"])
def test_a_column_that_somebody_adds_to_the_table_stops_no_batch(spark: SparkSession, sql: Opened, column: str) -> None:
    name = sql.table(f"gets_{column}")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"fits")]))
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN {column} string")
    added = sink.add(batch(spark, 1, [Record(offset=1, value=b"fits"), Record(offset=2, value=b"\xff")]))
    assert (added.rows, added.dead_letters) == (1, 1)
    assert (offsets(spark, name), offsets(spark, name.dead_letters)) == ([0, 1], [2])


@pytest.mark.parametrize("change", ["RENAME COLUMN reason TO why", "DROP COLUMN headers"])
def test_a_column_that_somebody_takes_from_the_dead_letters_is_added_again(
    spark: SparkSession, sql: Opened, change: str
) -> None:
    name = sql.table(f"dead_{change.split(maxsplit=1)[0].lower()}")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"\xff")]))
    spark.sql(f"ALTER TABLE {name.dead_letters.sql} {change}")
    assert sink.add(batch(spark, 1, [Record(offset=1, value=b"\xff", headers=(("trace", b"1"),))])).dead_letters == 1
    (found,) = spark.table(name.dead_letters.sql).where("offset = 1").collect()
    assert found["reason"].startswith("not UTF-8") and found["headers"][0]["key"] == "trace"


def test_a_worker_tells_of_each_record_once_whether_it_is_a_row_or_a_dead_letter() -> None:
    values = [b"fits", b"\xff", None, b"\xfe"]
    records = pa.RecordBatch.from_pylist(
        [
            {
                "key": b"k",
                "value": value,
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "timestamp": 0,
                "lane": "",
            }
            for offset, value in enumerate(values)
        ],
        schema=pa.schema([*DEAD_LETTERS][:-1]),
    )
    rows = Rows(
        typing=typing(),
        columns=typing().schema,
        buried=Buried(places={"orders": {0: 2}}, offsets={("orders", 0): frozenset({1})}),
        settled=True,
    )
    (made,) = rows([records])
    told = [
        (row["offset"], row["value"], row[LETTER] and (row[LETTER]["offset"], row[LETTER]["value"]))
        for row in made.to_pylist()
    ]
    assert told == [(0, "fits", None), (2, None, None), (3, None, (3, b"\xfe"))]
