"""A million records whose content follows from partition and offset, so that a table of them is compared without
keeping them.

`python e2e_records.py COUNT FIRST_MS TABLE FOLDER`, by the interpreter of the Spark jobs, fetches the files of a table
into a folder, compares them with COUNT records of each partition, and prints how many differ.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 10
"""Two for each codec. One producer writes to a partition, so that the offset of a record is its number."""
APART_MS: Final = 10
LATE_MS: Final = 3 * 24 * 3600 * 1000

EXPECTED: Final = f"""
    SELECT p::INTEGER AS partition, o::BIGINT AS "offset",
           CASE WHEN o % 10 = 3 THEN NULL ELSE encode('key-' || p || '-' || o % 1000) END AS key,
           CASE WHEN o % 17 = 5 THEN NULL ELSE encode(p || ':' || o || ':' || repeat('x', (o % 100)::INTEGER)) END AS value,
           CASE WHEN o % 3 = 0 THEN [{{'key': 'number', 'value': encode(o::VARCHAR)}}, {{'key': 'nothing', 'value': NULL}}] ELSE [] END AS headers,
           $first_ms + o * {APART_MS} - CASE WHEN o % 7 = 0 THEN {LATE_MS} ELSE 0 END AS timestamp_ms
    FROM range({PARTITIONS}) AS partitions(p), range($count) AS offsets(o)
"""


def produce(servers: str, topic: str, *, first: int, count: int, first_ms: int) -> None:
    """Writes the records `first` to `first + count` of each partition, by five producers, and waits until all are
    acknowledged.

    `first_ms`: the timestamp of the records 0. A broker refuses what is of the future, and deletes what is older than
    the topic's retention.
    """
    from confluent_kafka import Producer

    failed: list[str] = []
    settings = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "linger.ms": 20,
        "queue.buffering.max.messages": 200_000,
    }
    producers = [Producer({**settings, "compression.type": codec}) for codec in CODECS]

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for offset in range(first, first + count):
        for partition in range(PARTITIONS):
            record = written(partition, offset, first_ms)
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
    assert (unsent, failed[:3]) == (0, []), failed[:3]


def written(partition: int, offset: int, first_ms: int) -> dict[str, Any]:
    """The record at a place; EXPECTED says the same in SQL."""
    return {
        "key": None if offset % 10 == 3 else b"key-%d-%d" % (partition, offset % 1000),
        "value": None if offset % 17 == 5 else b"%d:%d:%s" % (partition, offset, b"x" * (offset % 100)),
        "headers": [("number", b"%d" % offset), ("nothing", None)] if offset % 3 == 0 else None,
        "timestamp": first_ms + offset * APART_MS - (LATE_MS if offset % 7 == 0 else 0),
    }


def compared(files: Sequence[str], *, count: int, first_ms: int) -> dict[str, int]:
    """How many rows there are, and how many of them are there twice, missing, more than were written, different, or in
    another partition's folder.
    """
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
    database.execute(f"CREATE TABLE expected AS {EXPECTED}", {"count": count, "first_ms": first_ms})
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


def fetched(table: str, folder: Path) -> list[str]:
    """The files that a table has now, on this machine."""
    from bmq_spark.locations import Location
    from bmq_spark.table import files

    location = Location.parse(table)
    for uri in files(table):
        key = uri.partition(f"{table.partition('://')[2]}/")[2]
        file = folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(location.read(key))
    return [str(file) for file in folder.rglob("*.parquet")]


if __name__ == "__main__":
    print(
        json.dumps(compared(fetched(sys.argv[3], Path(sys.argv[4])), count=int(sys.argv[1]), first_ms=int(sys.argv[2])))
    )
