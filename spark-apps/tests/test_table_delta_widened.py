"""A column that was widened is one column to every reader of the published Delta log: old files are read by the new
type.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, QueryBuilder
from table_widened import FIRST, NARROW, READ, SECOND, WIDE, add_typed

from bmq_spark.locations import Location
from bmq_spark.table import Table
from bmq_spark.table.delta import publish


@pytest.fixture
def widened(tmp_path: Path) -> Path:
    table = Table.create(Location.parse(str(tmp_path / "t")), {"id": "x", "partition-by": "hour"})
    for number, (kind, value) in enumerate([(NARROW, FIRST), (WIDE, SECOND)]):
        add_typed(table, number, kind, value)
        publish(table)
    return tmp_path / "t"


def by_arrow(folder: Path) -> list[Any]:
    return (
        DeltaTable(str(folder))
        .to_pyarrow_table(columns=["offset", "value"])
        .sort_by("offset")
        .column("value")
        .to_pylist()
    )


def by_datafusion(folder: Path) -> list[Any]:
    found = (
        QueryBuilder()
        .register("t", DeltaTable(str(folder)))
        .execute('SELECT value FROM t ORDER BY "offset"')
        .read_all()
    )
    return [row.as_py() for row in found.column("value")]


def by_duckdb(folder: Path) -> list[Any]:
    connection = duckdb.connect()
    connection.register("t", DeltaTable(str(folder)).to_pyarrow_dataset())
    return [
        value | {"map": list(value["map"].items())}
        for (value,) in connection.sql('SELECT value FROM t ORDER BY "offset"').fetchall()
    ]


@pytest.mark.parametrize("read", [by_arrow, by_datafusion, by_duckdb])
def test_a_widened_column_is_read_from_old_and_new_files(widened: Path, read: Callable[[Path], list[Any]]) -> None:
    assert read(widened) == READ
