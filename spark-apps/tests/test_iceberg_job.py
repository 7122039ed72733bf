"""The whole job as a user starts it: `bmq up`, spark-apps/iceberg.py, a catalog in SQLite."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compat_server import ROOT, Bmq
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from parquet_jobs import produce, topic_of
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.waiting import until

RECORDS, PARTITIONS = 3000, 2
BATCHES_MIN = 2
WAIT_S = 400


@pytest.mark.timeout(4 * WAIT_S)
def test_a_job_that_is_killed_twice_has_every_record_once(bmq: Bmq, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=PARTITIONS)
    values = [b"broken" if number % 100 == 7 else json.dumps({"id": number}).encode() for number in range(RECORDS)]
    produce(bmq.servers, topic, values)
    (tmp_path / "schema.ddl").write_text("id int")
    command = [
        sys.executable,
        str(ROOT / "spark-apps" / "iceberg.py"),
        "--bootstrap-servers",
        bmq.servers,
        "--topic",
        topic,
        "--once",
    ]
    command += [
        "--table",
        "lake.db.orders",
        "--catalog-type",
        "sql",
        "--catalog-uri",
        f"jdbc:sqlite:{tmp_path}/catalog.db",
    ]
    command += [
        "--warehouse",
        f"{tmp_path}/warehouse",
        "--format",
        "json",
        "--schema",
        f"{tmp_path}/schema.ddl",
        "--max-records-per-batch",
        "400",
    ]
    batches = 0
    for _ in range(2):
        _kill_after(command, tmp_path, batches := batches + BATCHES_MIN)
        batches = _batches(_table(tmp_path))
    ended = subprocess.run(
        [*command, "--maintain"], check=False, env=_environment(), capture_output=True, text=True, timeout=WAIT_S
    )
    assert ended.returncode == 0, ended.stderr
    assert "records did not fit and are in lake.db.orders_dead_letters" in ended.stderr

    table = _table(tmp_path)
    assert table is not None
    connection = table.scan().to_duckdb("orders")
    assert connection.sql(
        'SELECT count(*), count(DISTINCT (partition, "offset")), count(DISTINCT value.id) FROM orders'
    ).fetchall() == [(RECORDS - 30, RECORDS - 30, RECORDS - 30)]
    found = table.scan().to_arrow().column("value").to_pylist()
    assert sorted(row["id"] for row in found) == [number for number in range(RECORDS) if number % 100 != 7]
    letters = _table(tmp_path, "orders_dead_letters")
    assert letters is not None and letters.scan().to_arrow().column("value").to_pylist() == [b"broken"] * 30
    told = _offsets_of_group(bmq.servers, f"iceberg-{topic}")
    assert len(told) == PARTITIONS and sum(told.values()) == RECORDS, told


def _kill_after(command: list[str], folder: Path, batches: int) -> None:
    """Kills the job, with its JVM, as soon as the table has so many batches."""
    log = (folder / "job.log").open("ab")
    job = subprocess.Popen(command, env=_environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        until(
            lambda: _batches(_table(folder)),
            f"{batches} batches in the table",
            WAIT_S,
            holds=lambda found: found >= batches,
            unless=lambda: job.poll() is not None,
            shows=(folder / "job.log").read_text,
        )
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _offsets_of_group(servers: str, group: str) -> dict[int, int]:
    # held until it has answered: one that is collected meanwhile never does
    admin = AdminClient({"bootstrap.servers": servers})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(timeout=30)
    return {found.partition: found.offset for found in answer.topic_partitions}


def _table(folder: Path, name: str = "orders") -> Table | None:
    if not (folder / "catalog.db").exists():
        return None
    try:
        return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", init_catalog_tables="false").load_table(
            f"db.{name}"
        )
    except (NoSuchTableError, _operational_error()):
        return None


def _operational_error() -> type[Exception]:
    """While the job makes the catalog's database."""
    from sqlalchemy.exc import OperationalError

    return OperationalError


def _batches(table: Table | None) -> int:
    return 0 if table is None else sum("bmq.batch-id" in (snapshot.summary or {}) for snapshot in table.snapshots())  # type: ignore[operator]


def _environment() -> dict[str, str]:
    return dict(os.environ) | {"SPARK_MASTER": "local[2]"}
