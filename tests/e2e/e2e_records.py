"""A million records whose content follows from partition and offset, so that a table of them is compared without keeping them.

`python e2e_records.py FILE...` (by an interpreter with DuckDB) compares Parquet files with what was written; what differs is on standard output.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 10
"""Two for each codec. One producer writes to a partition, so that the offset of a record is its number."""
FIRST_MS: Final = 1_893_456_000_000
LATE_MS: Final = 3 * 24 * 3600 * 1000

EXPECTED: Final = f"""
    SELECT p::INTEGER AS partition, o::BIGINT AS "offset",
           CASE WHEN o % 10 = 3 THEN NULL ELSE encode('key-' || p || '-' || o % 1000) END AS key,
           CASE WHEN o % 17 = 5 THEN NULL ELSE encode(p || ':' || o || ':' || repeat('x', (o % 100)::INTEGER)) END AS value,
           CASE WHEN o % 3 = 0 THEN [{{'key': 'number', 'value': encode(o::VARCHAR)}}, {{'key': 'nothing', 'value': NULL}}] ELSE [] END AS headers,
           {FIRST_MS} + o * 10 - CASE WHEN o % 7 = 0 THEN {LATE_MS} ELSE 0 END AS timestamp_ms
    FROM range({PARTITIONS}) AS partitions(p), range($count) AS offsets(o)
"""


def produce(servers: str, topic: str, *, first: int, count: int) -> None:
    """Writes the records `first` to `first + count` of each partition, by five producers, and waits until all are acknowledged."""
    from confluent_kafka import Producer

    failed: list[str] = []
    settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    producers = [Producer({**settings, "compression.type": codec}) for codec in CODECS]

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for offset in range(first, first + count):
        for partition in range(PARTITIONS):
            record = written(partition, offset)
            producer = producers[partition % len(CODECS)]
            while True:
                try:
                    producer.produce(topic, partition=partition, on_delivery=told, **record)
                    break
                except BufferError:
                    producer.poll(0.1)
        if offset % 100 == 0:
            for producer in producers:
                producer.poll(0)
    unsent = sum(producer.flush(120) for producer in producers)
    assert (unsent, failed[:3]) == (0, [])


def written(partition: int, offset: int) -> dict[str, Any]:
    """The record at a place; EXPECTED says the same in SQL."""
    return {
        "key": None if offset % 10 == 3 else b"key-%d-%d" % (partition, offset % 1000),
        "value": None if offset % 17 == 5 else b"%d:%d:%s" % (partition, offset, b"x" * (offset % 100)),
        "headers": [("number", b"%d" % offset), ("nothing", None)] if offset % 3 == 0 else None,
        "timestamp": FIRST_MS + offset * 10 - (LATE_MS if offset % 7 == 0 else 0),
    }


def compared(files: Sequence[str], count: int) -> dict[str, int]:
    """How many rows there are, and how many of them are there twice, missing, more than were written, different, or in another partition's folder."""
    import duckdb

    database = duckdb.connect()
    database.execute(
        """
        CREATE TABLE found AS SELECT partition, "offset", key, value, coalesce(headers, []) AS headers, epoch_ms(timestamp) AS timestamp_ms,
               strftime(make_timestamp(epoch_us(timestamp)), '%Y-%m-%d %H') = date || ' ' || hour AS placed
        FROM read_parquet($files, hive_partitioning = true, hive_types = {'date': VARCHAR, 'hour': VARCHAR})
        """,
        {"files": list(files)},
    )
    database.execute(f"CREATE TABLE expected AS {EXPECTED}", {"count": count})
    figures = database.execute(
        """
        SELECT (SELECT count(*) FROM found) AS rows,
               (SELECT count(*) - count(DISTINCT (partition, "offset")) FROM found) AS twice,
               count(*) FILTER (f.partition IS NULL) AS missing,
               count(*) FILTER (e.partition IS NULL) AS more,
               count(*) FILTER (f.partition IS NOT NULL AND e.partition IS NOT NULL AND (
                   f.key IS DISTINCT FROM e.key OR f.value IS DISTINCT FROM e.value OR f.headers IS DISTINCT FROM e.headers
                   OR f.timestamp_ms IS DISTINCT FROM e.timestamp_ms)) AS different,
               count(*) FILTER (NOT f.placed) AS misplaced
        FROM expected e FULL OUTER JOIN found f ON e.partition = f.partition AND e."offset" = f."offset"
        """
    )
    names = [column[0] for column in figures.description]
    [row] = figures.fetchall()
    return dict(zip(names, row, strict=True))


if __name__ == "__main__":
    print(json.dumps(compared(sys.argv[2:], int(sys.argv[1]))))
