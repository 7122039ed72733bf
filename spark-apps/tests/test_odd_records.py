"""Records that clients seldom send, through whole jobs: by Spark's Kafka source and from the bucket the table has the
same.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import crc32c
import pyarrow as pa
import pytest
from compat_server import Bmq
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from iceberg_catalogs import Opened
from parquet_jobs import arguments, rows
from pyspark.sql import SparkSession
from tests.bare_client import BareClient

from bmq.wire.batches import Record, build_batch
from bmq_spark.jobs import iceberg
from bmq_spark.jobs.parquet import parse, run

TIME_MS = 1_763_870_000_000
LATEST = 253_402_300_799_999
EARLIEST = -2_177_452_800_000
"""1901-01-01."""
OLD = [-2_208_988_900_000, -2_500_000_000_000, -12_219_292_800_001, -50_000_000_000_000, -62_135_596_800_000, -(2**52)]
"""1899, 1890, the last day of the Julian calendar, 385, 1, and before."""


class Odd(NamedTuple):
    topic: str
    source: tuple[str, ...]
    """Options of the job that say by which source it is read."""


def produce_raw(servers: str, topic: str, batch: bytes) -> None:
    """As it is: client libraries would not send some of it. Produce version 7."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    with BareClient(servers) as client:
        answer = client.ask(0, 7, {"acks": 1, "timeout_ms": 10_000, "topic_data": data})
    assert answer.responses[0].partition_responses[0].error_code == 0


def changed(batch: bytes, old: bytes, new: bytes) -> bytes:
    data = bytearray(batch.replace(old, new))
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.fixture(scope="module", params=["kafka", "bmq"])
def odd(bmq: Bmq, request: pytest.FixtureRequest) -> Odd:
    """Times and headers that clients seldom send. Spark's Kafka connector stops at a time beyond 64 bits of
    microseconds, and says so.
    """
    wide = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    topic = f"odd-{request.param}"
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.create_topics([NewTopic(topic, 1, config=wide)])[topic].result(30)
    microseconds = TIME_MS * 1000  # what somebody took for milliseconds
    times = [TIME_MS, microseconds, 0, 5, -5, -1, 2**62 if request.param == "bmq" else 2**52]
    times += [EARLIEST, EARLIEST - 1, *OLD]
    produce_raw(
        bmq.servers,
        topic,
        build_batch([Record(offset, at_ms, None, b"%d" % offset) for offset, at_ms in enumerate(times)]),
    )
    produce_raw(bmq.servers, topic, build_batch([Record(0, -1, None, b"without")]))
    headers = [("XXXX", b"1"), ("", None), ("twice", b""), ("twice", b"2")]
    produce_raw(
        bmq.servers,
        topic,
        changed(build_batch([Record(0, TIME_MS, None, b"headers", headers)]), b"XXXX", b"\xff\xfe\xfd\xfc"),
    )
    return Odd(
        topic, ("--source", "bmq", "--store", (bmq.log.parent / "data").as_uri()) if request.param == "bmq" else ()
    )


AT = [TIME_MS, LATEST, 0, 5, -5, -1, LATEST, *[EARLIEST] * (2 + len(OLD)), -1, TIME_MS]
HEADERS = [
    {"key": "\ufffd" * 4, "value": b"1"},
    {"key": "", "value": None},
    {"key": "twice", "value": b""},
    {"key": "twice", "value": b"2"},
]


def test_odd_times_and_header_keys_come_into_the_table_alike(
    bmq: Bmq, odd: Odd, spark: SparkSession, tmp_path: Path
) -> None:
    assert run(parse([*arguments(bmq.servers, tmp_path / "t", odd.topic), *odd.source]), spark).rows == len(AT)
    found = rows(tmp_path / "t", 'value, epoch_ms("timestamp"), headers')
    values = [*(b"%d" % number for number in range(len(AT) - 2)), b"without", b"headers"]
    assert found == [
        (value, at_ms, HEADERS if value == b"headers" else []) for value, at_ms in zip(values, AT, strict=True)
    ]
    folders = {
        path.parent.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").glob("date=*/**/*.parquet")
    }
    assert folders == {
        "date=2025-11-23/hour=03",
        "date=9999-12-31/hour=23",
        "date=1901-01-01/hour=00",
        "date=1970-01-01/hour=00",
        "date=1969-12-31/hour=23",
    }
    by_delta = DeltaTable(str(tmp_path / "t")).to_pyarrow_table(columns=["offset", "timestamp"]).sort_by("offset")
    assert by_delta.column("timestamp").cast(pa.int64()).to_pylist() == [at_ms * 1000 for at_ms in AT]


def test_odd_times_and_header_keys_come_into_an_iceberg_table_alike(
    bmq: Bmq, odd: Odd, spark: SparkSession, sql: Opened
) -> None:
    name = sql.table(odd.topic.replace("-", "_"))
    assert sql.catalog.warehouse and sql.catalog.uri
    catalog = [
        "--catalog-type",
        "sql",
        "--catalog-uri",
        sql.catalog.uri,
        "--warehouse",
        sql.catalog.warehouse,
        "--table",
        str(name),
    ]
    options = iceberg.parse(["--bootstrap-servers", bmq.servers, "--topic", odd.topic, "--once", *catalog, *odd.source])
    assert isinstance(options, iceberg.IcebergOptions)
    assert iceberg.run(options, spark).rows == len(AT)
    found = sql.load(name).scan().to_arrow().sort_by("offset")
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [at_ms * 1000 for at_ms in AT]
    assert found.column("headers").to_pylist() == [[]] * (len(AT) - 1) + [HEADERS]
