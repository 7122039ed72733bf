"""Spark's own Delta, in a session of its own, reads what the jobs publish."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compat_server import ROOT
from table_widened import FIRST, NARROW, READ, SECOND, WIDE, add_typed

from bmq_spark.locations import Location
from bmq_spark.table import Table, delta
from bmq_spark.table.delta import publish


def published(folder: Path) -> Path:
    table = Table.create(Location.parse(str(folder)), {"id": "x", "partition-by": "hour"})
    for number, (kind, value) in enumerate([(NARROW, FIRST), (WIDE, SECOND)]):
        add_typed(table, number, kind, value)
        publish(table)
    return folder


def test_sparks_own_delta_reads_widened_columns_by_its_log_and_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = published(tmp_path / "logged")
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 1)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", 0)
    pointed = published(tmp_path / "pointed")
    assert sorted(path.name for path in (pointed / "_delta_log").iterdir())[0] == "00000000000000000001.checkpoint.parquet"
    subprocess.run([ROOT / "tools" / "get", "delta-jars"], check=True, timeout=600)
    command = [sys.executable, Path(__file__).with_name("delta_by_spark.py"), ROOT / ".cache" / "tools" / "delta-jars", logged, pointed]
    said = subprocess.run(command, check=True, timeout=280, stdout=subprocess.PIPE, text=True).stdout
    found = [json.loads(line) for line in said.splitlines()]
    plain = json.loads(json.dumps([value | {"map": dict(value["map"])} for value in READ], default=str))
    assert [[row["value"] for row in rows] for rows in found] == [plain, plain]
    assert found[0] == found[1] and [(row["date"], row["hour"]) for row in found[0]] == [("2026-01-01", 0)] * 2
