"""Tables whose columns follow a subject of a registry, while one run goes on and from run to run, of both kinds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hurried import TRIES, hurried
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession
from registered_batches import SUBJECT, Followed, framed, iceberg_table, order, parquet_table, register
from value_registry import RegistryServer, met_anew

from bmq_spark.jobs import newest_version
from bmq_spark.values import registry as registries
from bmq_spark.values.registry import RegistryUnavailable
from bmq_spark.values.unknown_ids import FEW

LATEST = f"/subjects/{SUBJECT}/versions/latest"
ONE, TWO, THREE = order(), order(coupon="string"), order(note="string")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PATIENCE", hurried())
    with met_anew() as server:
        yield server


@pytest.fixture(params=["parquet", "iceberg", "upserts"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Tables:
    """Makes one of the kind, when the registry has what the run begins with."""

    def __init__(self, spark: SparkSession, sql: Opened, folder: Path, kind: str, registry: RegistryServer) -> None:
        self._made = spark, sql, folder, kind, registry

    def open(self, *more: str) -> Followed:
        spark, sql, folder, kind, registry = self._made
        if kind == "parquet":
            return parquet_table(spark, folder, registry, *more)
        name = f"by_registry_{folder.name}_{kind}".replace("-", "_")
        upserts = ["--upsert-key", "id"] if kind == "upserts" else []
        return iceberg_table(spark, sql, name, registry, *(more or ("--format", "avro")), *upserts)


@pytest.fixture
def tables(spark: SparkSession, sql: Opened, tmp_path: Path, kind: str, registry: RegistryServer) -> Tables:
    return Tables(spark, sql, tmp_path, kind, registry)


def test_ids_that_a_registry_does_not_have_are_found_out_once_for_a_batch_and_anew_for_the_next(
    tables: Tables, registry: RegistryServer
) -> None:
    one = register(registry, ONE)
    table = tables.open()
    table.add(framed(one, ONE, {"id": 1}))
    garbage = [b"\x00" + (50 + number).to_bytes(4, "big") + b"garbage" for number in range(300)]
    registry.asked.clear()
    added = table.add(*garbage, framed(one, ONE, {"id": 2}))
    assert (added.rows, added.dead_letters) == (1, len(garbage))
    workers, asked = 2, len([path for path in registry.asked if path.startswith("/schemas/ids/")])
    assert asked <= workers * (2 * FEW + 2)
    two = register(registry, TWO)
    added = table.add(*garbage, framed(two, TWO, {"id": 3, "coupon": "SAVE"}))
    assert (added.rows, added.dead_letters) == (1, len(garbage))
    assert table.values()[-1] == {"id": 3, "coupon": "SAVE"}


def test_a_run_that_goes_on_has_the_columns_and_values_that_one_has_which_begins_with_each_batch(
    tables: Tables, registry: RegistryServer
) -> None:
    one = register(registry, ONE)
    table = tables.open()
    table.add(framed(one, ONE, {"id": 1}))
    two = register(registry, TWO)
    added = table.add(framed(one, ONE, {"id": 2}), framed(two, TWO, {"id": 3, "coupon": "SAVE"}))
    assert (added.rows, added.dead_letters, added.left_out) == (2, 0, 0)
    nothing = {"coupon": None}
    rows = [{"id": 1, **nothing}, {"id": 2, **nothing}, {"id": 3, "coupon": "SAVE"}]
    assert table.values() == rows
    three = register(registry, THREE)
    table.add(framed(two, TWO, {"id": 4, "coupon": "LATE"}), framed(three, THREE, {"id": 5, "note": "n"}))
    rows = [{**row, "note": None} for row in [*rows, {"id": 4, "coupon": "LATE"}]]
    rows.append({"id": 5, "coupon": None, "note": "n"})
    assert table.values() == rows
    table.restart()
    table.add(framed(two, TWO, {"id": 6, "coupon": "LAST"}))
    assert table.values() == [*rows, {"id": 6, "coupon": "LAST", "note": None}]


def test_the_registry_is_asked_once_for_what_a_batch_brings_and_never_again(
    tables: Tables, registry: RegistryServer
) -> None:
    one = register(registry, ONE)
    table = tables.open()
    table.add(*[framed(one, ONE, {"id": each}) for each in range(50)])
    assert registry.asked.count(LATEST) == 1, "at the start alone"
    two = register(registry, TWO)
    new = [framed(two, TWO, {"id": each, "coupon": "x"}) for each in range(50)]
    table.add(framed(one, ONE, {"id": 1}), *new)
    table.add(framed(one, ONE, {"id": 1}), *new)
    strange = [framed(900 + each, ONE, {"id": each}) for each in range(20)]
    assert table.add(*strange, *new).dead_letters == 20
    assert registry.asked.count(LATEST) == 2, "ids that the registry does not know are no new version"


def test_a_field_that_the_newest_version_has_not_either_is_left_out_and_counted(
    tables: Tables, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_version, "AGAIN_S", 1_000_000.0)
    one = register(registry, ONE)
    table = tables.open()
    table.add(framed(one, ONE, {"id": 1}))
    two, _ = register(registry, TWO), register(registry, ONE | {"doc": "as before"})
    for number in (2, 3):
        added = table.add(framed(two, TWO, {"id": number, "coupon": "gone"}), framed(one, ONE, {"id": -number}))
        assert (added.rows, added.dead_letters, added.left_out) == (2, 0, 1)
    assert table.values() == [{"id": each} for each in (1, 2, -2, 3, -3)]
    assert registry.asked.count(LATEST) == 2


def test_a_wider_type_and_a_new_symbol_of_a_newer_version_fit_while_the_run_goes_on(
    tables: Tables, registry: RegistryServer
) -> None:
    def version(kind: str, *symbols: str) -> dict[str, Any]:
        fields = order(state={"type": "enum", "name": "State", "symbols": list(symbols)})
        fields["fields"].append({"name": "size", "type": kind})
        return fields

    small, large = version("int", "OPEN"), version("long", "OPEN", "SHUT")
    one = register(registry, small)
    table = tables.open()
    table.add(framed(one, small, {"id": 1, "state": "OPEN", "size": 1}))
    two = register(registry, large)
    added = table.add(framed(two, large, {"id": 2, "state": "SHUT", "size": 2**40}))
    assert (added.rows, added.dead_letters) == (1, 0)
    rows = [{"id": 1, "state": "OPEN", "size": 1}, {"id": 2, "state": "SHUT", "size": 2**40}]
    assert table.values() == rows


def test_a_newest_version_that_the_table_cannot_take_stops_no_run_that_goes_on(
    tables: Tables, registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    breaking = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "string"}]}
    one = register(registry, ONE)
    table = tables.open()
    table.add(framed(one, ONE, {"id": 1}))
    two = register(registry, breaking)
    for number in (2, 3):
        added = table.add(framed(one, ONE, {"id": number}), framed(two, breaking, {"id": "x"}))
        assert (added.rows, added.dead_letters) == (1, 1)
    told = [line for line in capsys.readouterr().err.splitlines() if "the columns stay as they are" in line]
    assert len(told) == 1 and "field id: the table has int" in told[0]


def test_a_registry_that_is_down_when_a_new_schema_comes_stops_the_batch_which_comes_again_whole(
    tables: Tables, registry: RegistryServer
) -> None:
    one = register(registry, ONE)
    table = tables.open()
    table.add(framed(one, ONE, {"id": 1}))
    two = register(registry, TWO)
    batch = table.batch(framed(two, TWO, {"id": 2, "coupon": "SAVE"}))
    known = registry.answer
    down = {"asked": 0}

    def answer(path: str, authorization: str | None) -> tuple[int, Any]:
        if path == LATEST:
            down["asked"] += 1
            return 503, {}
        return known(path, authorization)

    registry.answer = answer  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailable, match=LATEST):
        table.add_batch(batch)
    assert down["asked"] == TRIES
    registry.answer = known  # type: ignore[method-assign]
    assert table.add_batch(batch).rows == 1
    assert table.values() == [{"id": 1, "coupon": None}, {"id": 2, "coupon": "SAVE"}]


def test_columns_of_a_schema_that_was_given_stay_as_they_are(
    tables: Tables, registry: RegistryServer, tmp_path: Path
) -> None:
    (tmp_path / "one.avsc").write_text(json.dumps(ONE))
    one = register(registry, ONE)
    table = tables.open("--format", "avro", "--schema", str(tmp_path / "one.avsc"))
    table.add(framed(one, ONE, {"id": 1}))
    two = register(registry, TWO)
    added = table.add(framed(two, TWO, {"id": 2, "coupon": "SAVE"}))
    assert (added.rows, added.left_out) == (1, 0)
    assert table.values() == [{"id": 1}, {"id": 2}] and LATEST not in registry.asked


PROTO = 'syntax = "proto3"; message Order {{ int32 id = 1; {} }}'


def test_protobuf_s_new_fields_become_columns_while_the_run_goes_on(tables: Tables, registry: RegistryServer) -> None:
    one = registry.register(SUBJECT, PROTO.format(""), kind="PROTOBUF")
    table = tables.open("--format", "protobuf")
    table.add(b"\x00" + one.to_bytes(4, "big") + b"\x00\x08\x01")
    two = registry.register(SUBJECT, PROTO.format("optional string coupon = 2;"), kind="PROTOBUF")
    added = table.add(b"\x00" + two.to_bytes(4, "big") + b"\x00\x08\x02\x12\x04SAVE")
    assert (added.rows, added.dead_letters, added.left_out) == (1, 0, 0)
    assert table.values() == [{"id": 1, "coupon": None}, {"id": 2, "coupon": "SAVE"}]


def test_a_protobuf_field_that_a_newer_version_drops_is_read_while_the_run_goes_on(
    tables: Tables, registry: RegistryServer
) -> None:
    """Also where that one brings columns, and after a restart: the table has it."""
    one = registry.register(SUBJECT, PROTO.format("optional string coupon = 2;"), kind="PROTOBUF")
    table = tables.open("--format", "protobuf")
    old = b"\x00" + one.to_bytes(4, "big") + b"\x00\x08\x01\x12\x04SAVE"
    two = registry.register(SUBJECT, PROTO.format(""), kind="PROTOBUF")
    assert table.add(old, b"\x00" + two.to_bytes(4, "big") + b"\x00\x08\x02").left_out == 0
    assert table.values() == [{"id": 1, "coupon": "SAVE"}, {"id": 2, "coupon": None}]
    three = registry.register(SUBJECT, PROTO.format("optional string note = 3;"), kind="PROTOBUF")
    late = [old.replace(b"\x08\x01", b"\x08" + number) for number in (b"\x04", b"\x05")]
    assert table.add(b"\x00" + three.to_bytes(4, "big") + b"\x00\x08\x03\x1a\x01n", late[0]).left_out == 0
    table.restart()
    assert table.add(late[1]).left_out == 0
    assert table.values()[2:] == [
        {"id": 3, "coupon": None, "note": "n"},
        {"id": 4, "coupon": "SAVE", "note": None},
        {"id": 5, "coupon": "SAVE", "note": None},
    ]


def test_protobuf_numbers_and_names_are_what_their_writer_meant(tables: Tables, registry: RegistryServer) -> None:
    def version(fields: str) -> bytes:
        return b"\x00" + registry.register(SUBJECT, PROTO.format(fields), kind="PROTOBUF").to_bytes(4, "big") + b"\x00"

    one = version("int64 cents = 2; int32 delta = 3; string mail = 4;")
    table = tables.open("--format", "protobuf")

    def old(number: int) -> bytes:
        return one + bytes([8, number]) + b"\x10\x80\xe4\x97\xd0\x12\x18\xfb" + b"\xff" * 8 + b"\x01\x22\x01m"

    table.add(old(1))
    two = version("int32 cents = 2; sint64 delta = 3; string phone = 4;")
    added = table.add(old(2), two + b"\x08\x03\x10\x07\x18\x09\x22\x01p", old(4))
    assert (added.rows, added.dead_letters) == (3, 0)
    meant = {"cents": 5_000_000_000, "delta": -5, "mail": "m"}
    assert table.values() == [
        {"id": 1, **meant, "phone": None},
        {"id": 2, **meant, "phone": ""},
        {"id": 3, "cents": 7, "delta": -5, "mail": None, "phone": "p"},
        {"id": 4, **meant, "phone": ""},
    ]
