"""Records that clients seldom send, through whole jobs: by Spark's Kafka source and from the bucket the table has the same."""

import socket
import struct
from pathlib import Path

import crc32c
import pytest
from compat_server import Bmq
from confluent_kafka.admin import AdminClient, NewTopic
from parquet_jobs import arguments, rows
from pyspark.sql import SparkSession

from bmq.wire.batches import Record, build_batch
from bmq_spark.jobs.parquet import parse, run

TIME_MS = 1_763_870_000_000
LATEST = 253_402_300_799_999


def produce_raw(servers: str, topic: str, batch: bytes) -> None:
    """As it is: client libraries would not send some of it. Produce version 7."""
    host, port = servers.split(":")

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    asked = struct.pack(">hhi", -1, 1, 10_000) + struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    request = struct.pack(">hhi", 0, 7, 1) + text("test") + asked
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        answer = connection.recv(size, socket.MSG_WAITALL)
    assert struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4) == (0,)


def changed(batch: bytes, old: bytes, new: bytes) -> bytes:
    data = bytearray(batch.replace(old, new))
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize("source", ["kafka", "bmq"])
def test_odd_times_and_header_keys_come_into_the_table_alike(bmq: Bmq, spark: SparkSession, tmp_path: Path, source: str) -> None:
    topic = f"odd-{source}"
    wide = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.create_topics([NewTopic(topic, 1, config=wide)])[topic].result(30)
    microseconds = TIME_MS * 1000  # what somebody took for milliseconds
    produce_raw(bmq.servers, topic, build_batch([Record(0, TIME_MS, None, b"good"), Record(1, microseconds, None, b"micros")]))
    odd = changed(build_batch([Record(0, TIME_MS, None, b"header", [("XXXX", b"1")])]), b"XXXX", b"\xff\xfe\xfd\xfc")
    produce_raw(bmq.servers, topic, odd)
    more = ["--source", "bmq", "--store", (bmq.log.parent / "data").as_uri()] if source == "bmq" else []
    assert run(parse([*arguments(bmq.servers, tmp_path / "t", topic), *more]), spark).rows == 3
    found = rows(tmp_path / "t", 'value, epoch_ms("timestamp"), headers')
    assert found == [(b"good", TIME_MS, []), (b"micros", LATEST, []), (b"header", TIME_MS, [{"key": "\ufffd" * 4, "value": b"1"}])]
    folders = {path.parent.relative_to(tmp_path / "t").as_posix() for path in (tmp_path / "t").glob("date=*/**/*.parquet")}
    assert folders == {"date=2025-11-23/hour=03", "date=9999-12-31/hour=23"}
