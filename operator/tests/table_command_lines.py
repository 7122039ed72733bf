"""Every kind of command line that the operator may give a job: of all tables that the API server accepts, out of the
parts below.

`python table_command_lines.py` prints them as JSON, a list for each job, for the test of the jobs' own parsers
(spark-apps/tests): they are in another environment. What `bmq_resources.checks` refuses is left out, as the API server
would refuse it.
"""

import json
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from bmq_operator.tables.arguments import compact_arguments, write_arguments, write_file
from bmq_operator.tables.jobs import jobs_of_sink
from bmq_resources.checks import check
from bmq_resources.cluster import Cluster
from bmq_resources.parquet_sink import ParquetSink

_IN_HADOOP: Final = {"table": "lake.shop.orders", "warehouse": "s3a://warehouse/lake"}
_IN_REST: Final = {"table": "_a.b.c.d", "catalogType": "rest", "catalogUri": "http://rest:8181", "maintain": False}
PLACES: Final[list[dict[str, Any]]] = [
    {"output": "s3a://warehouse/tables"},
    {"output": "", "iceberg": _IN_HADOOP},
    {"output": "", "iceberg": _IN_REST},
]
CATALOGS: Final[list[dict[str, Any]]] = [
    {"output": "", "iceberg": {**_IN_HADOOP, "catalogUri": "http://rest:8181"}},
    *(
        {"output": "", "iceberg": {**_IN_HADOOP, "catalogType": kind, "catalogUri": uri}}
        for kind in ("rest", "sql")
        for uri in ("", "http://rest:8181", "https://rest", "rest:8181", "jdbc:postgresql://db/lake")
    ),
    {
        "output": "",
        "iceberg": {"table": "lake.shop.orders", "catalogType": "sql", "catalogUri": "jdbc:postgresql://db/lake"},
    },
    *({"output": "", "iceberg": {**_IN_HADOOP, "table": table}} for table in ("a-b.c.d", "1.b.c", "spark_catalog.a.b")),
]
KEYS: Final = ("", "key", "-id", "id")
"""Of upserts, where the place is Iceberg's."""
RUNS: Final[list[dict[str, Any]]] = [{"schedule": "0 * * * *"}, {"continuous": {"trigger": "30s"}}]
VALUES: Final[list[dict[str, Any]]] = [
    {"format": "bytes"},
    {"format": "string", "keyFormat": "string"},
    {"format": "json"},
    {"format": "json", "schema": {"text": "id BIGINT"}},
    {"format": "json", "registry": "http://registry"},
    {"format": "avro", "registry": "http://registry"},
    {"format": "avro", "schema": {"uri": "s3a://warehouse/order.avsc"}},
    {"format": "protobuf", "message": "shop.Order", "schema": {"configMapKeyRef": {"name": "schemas"}}},
    {"format": "protobuf", "registry": "http://registry"},
]
FOLDERS: Final[list[dict[str, Any]]] = [
    {"partitionBy": by, "retention": retention} for by in ("hour", "date", "none") for retention in ("", "30d")
]
OTHERS: Final[list[dict[str, Any]]] = [
    {},
    {
        "targetFileSize": "1GiB",
        "checkpoint": "s3a://warehouse/places",
        "startingOffsets": "latest",
        "maxRecordsPerBatch": 1,
        "lane": "dev",
    },
    {"group": "-group", "topics": ["-orders", "a.b_c"], "oneTable": True, "acceptLoss": True, "source": "bmq"},
    *(
        {"consumerConfig": {name: "=1"}}
        for name in ("fetch.max.bytes", "kafka.fetch.max.bytes", "group.id", "kafka.group.id", "a=b", " ", "-a")
    ),
    {"compact": {"mode": "Always", "minFiles": 2, "olderThan": "1d", "vacuumOlderThan": "90m"}},
]
CLUSTER: Final = Cluster.model_validate(
    {"metadata": {"name": "bmq", "namespace": "shop"}, "spec": {"store": {"url": "s3://bmq/data"}}}
)


def specs() -> Iterator[dict[str, Any]]:
    """Of ParquetSinks, accepted or not."""
    base = {"topics": ["orders"]}
    for place, key, values, folders in product(PLACES, KEYS, VALUES, FOLDERS):
        if "iceberg" in place:
            yield {**base, **place, **RUNS[0], **values, **folders, "iceberg": {**place["iceberg"], "upsertKey": key}}
        elif not key:
            yield {**base, **place, **RUNS[1], **values, **folders}
    for place, run, other in product([*PLACES, *CATALOGS], RUNS, OTHERS):
        yield {**base, **place, **run, **other}


def command_lines() -> dict[str, list[list[str]]]:
    """By job: parquet, iceberg, compact. None twice."""
    found: dict[str, dict[tuple[str, ...], None]] = {"parquet": {}, "iceberg": {}, "compact": {}}
    for spec in specs():
        sink = check(
            ParquetSink,
            {"apiVersion": "bmq.io/v1alpha1", "kind": "ParquetSink", "metadata": {"name": "lake"}, "spec": spec},
        )
        for job in jobs_of_sink(sink, CLUSTER) if isinstance(sink, ParquetSink) else ():
            found[write_file(job).rpartition("/")[2].removesuffix(".py")][tuple(write_arguments(job))] = None
            if job.compacted:
                found["compact"][tuple(compact_arguments(job))] = None
    return {name: [list(line) for line in lines] for name, lines in found.items()}


if __name__ == "__main__":
    json.dump(command_lines(), sys.stdout)
