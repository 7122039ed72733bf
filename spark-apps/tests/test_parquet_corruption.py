import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_server import Bmq
from crc32c import crc32c
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.parquet import parse, run

FIRST_BATCH = 97
"""Where the batches of a segment begin (docs/formats/segment.md)."""
RECORDS = 3000


@pytest.fixture
def own_bmq(tmp_path: Path) -> Iterator[Bmq]:
    """One that may be stopped, and whose folder may be spoilt."""
    server = Bmq(["--data", str(tmp_path / "data")], log=tmp_path / "bmq.log")
    server.start()
    yield server
    server.stop()


def third_batch(segment: bytes) -> tuple[int, int]:
    """Position and length of it."""
    position = FIRST_BATCH
    for _ in range(2):
        position += 12 + int(struct.unpack_from(">i", segment, position + 8)[0])
    return position, 12 + int(struct.unpack_from(">i", segment, position + 8)[0])


def flipped(batch: bytearray) -> None:
    """One bit of the records."""
    batch[len(batch) // 2] ^= 1


def of_an_unknown_codec(batch: bytearray) -> None:
    """Compressed by codec 6, which nobody knows, with a checksum that is right."""
    batch[22] = batch[22] & ~7 | 6
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


@pytest.mark.parametrize(
    ("spoil", "where"), [(flipped, "offset 1000"), (of_an_unknown_codec, "within offsets 1000 to 1499")]
)
def test_a_batch_that_cannot_be_read_stops_the_job_and_keeps_its_place(
    own_bmq: Bmq, spark: SparkSession, tmp_path: Path, spoil: Callable[[bytearray], None], where: str
) -> None:
    topic = topic_of(own_bmq.servers, partitions=1)
    produce(
        own_bmq.servers,
        topic,
        (os.urandom(1000) for _ in range(RECORDS)),
        settings={"batch.num.messages": 500, "linger.ms": 1000},
    )
    own_bmq.stop()  # rolls what is in memory as a segment
    segment = max(
        (file for file in (tmp_path / "data" / "topics").rglob("*") if file.is_file()),
        key=lambda file: file.stat().st_size,
    )
    whole = segment.read_bytes()
    position, length = third_batch(whole)
    spoilt = bytearray(whole[position : position + length])
    spoil(spoilt)
    segment.write_bytes(whole[:position] + spoilt + whole[position + length :])
    own_bmq.start()
    options = parse([*arguments(own_bmq.servers, tmp_path / "t", topic), "--max-records-per-batch", "500"])
    with pytest.raises(JobStopped) as stopped:
        run(options, spark)
    line = str(stopped.value)
    assert line.startswith(f"topic {topic} partition 0, {where}: a batch cannot be read: "), line
    assert "bmq store check" in line
    assert [offset for (offset,) in rows(tmp_path / "t", '"offset"')] == list(range(1000))
    own_bmq.stop()
    segment.write_bytes(whole)
    own_bmq.start()
    run(options, spark)
    assert [offset for (offset,) in rows(tmp_path / "t", '"offset"')] == list(range(RECORDS))
