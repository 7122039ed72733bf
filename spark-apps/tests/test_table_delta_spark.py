"""Spark's own Delta, in a session of its own, reads what the jobs publish."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from compat_server import ROOT
from delta_by_spark import FILTERS
from table_widened import FIRST, NARROW, READ, SECOND, WIDE, add_typed

from bmq_spark.locations import Location
from bmq_spark.table import Table, delta
from bmq_spark.table.delta import publish

NAN = SECOND | {"single": math.nan, "count": math.nan}


def published(folder: Path, *values: tuple[pa.DataType, dict[str, Any]]) -> Path:
    table = Table.create(Location.parse(str(folder)), {"id": "x", "partition-by": "hour"})
    for number, (kind, value) in enumerate(values or [(NARROW, FIRST), (WIDE, SECOND)]):
        add_typed(table, number, kind, value)
        publish(table)
    return folder


@pytest.mark.timeout(900)
def test_sparks_own_delta_reads_widened_columns_and_filters_by_its_log_and_by_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = published(tmp_path / "logged")
    nan = published(tmp_path / "nan", (NARROW, FIRST | {"single": math.nan}), (WIDE, NAN), (WIDE, SECOND))
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 1)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", 0)
    pointed = published(tmp_path / "pointed")
    assert (
        sorted(path.name for path in (pointed / "_delta_log").iterdir())[0] == "00000000000000000001.checkpoint.parquet"
    )
    subprocess.run([ROOT / "tools" / "get", "delta-jars"], check=True, timeout=600)
    command = [
        sys.executable,
        Path(__file__).with_name("delta_by_spark.py"),
        ROOT / ".cache" / "tools" / "delta-jars",
        logged,
        pointed,
        nan,
    ]
    said = subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE, text=True).stdout
    told = [json.loads(line) for line in said.splitlines()]
    found = [each["rows"] for each in told[:2]]
    plain = json.loads(json.dumps([value | {"map": dict(value["map"])} for value in READ], default=str))
    assert [[row["value"] for row in rows] for rows in found] == [plain, plain]
    assert found[0] == found[1] and [(row["date"], row["hour"]) for row in found[0]] == [("2026-01-01", 0)] * 2
    by_filter = [dict(zip(FILTERS, zip(each["found"], each["right"], strict=True), strict=True)) for each in told]
    assert {name: counts for each in by_filter for name, counts in each.items() if counts[0] != counts[1]} == {}
    assert by_filter[0]["offset = 1"] == by_filter[1]["value.single > 2"] == (1, 1)
    assert by_filter[2]["isnan(value.single)"] == (2, 2) and by_filter[2]["value.single > 2"] == (3, 3)
