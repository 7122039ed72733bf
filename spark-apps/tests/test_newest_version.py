"""What a running job makes of a subject's newest version, without a table."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hurried import TRIES, hurried
from registered_batches import SUBJECT, framed, order, register
from value_cases import decode
from value_registry import RegistryServer, met_anew

from bmq_spark.batches.records import Typing
from bmq_spark.jobs import parquet
from bmq_spark.jobs.decoders import typing_of
from bmq_spark.jobs.newest_version import AGAIN_S, NewestVersion, left_out
from bmq_spark.values import registry as registries

LATEST = f"/subjects/{SUBJECT}/versions/latest"
ONE, TWO = order(), order(coupon="string")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PATIENCE", hurried())
    with met_anew() as server:
        yield server


class Run:
    """A job's columns from batch to batch, at a time that the test says."""

    def __init__(self, registry: RegistryServer, folder: Path, value_format: str = "avro") -> None:
        given = ["--topic", "orders", "--output", str(folder), "--registry", registry.url, "--format", value_format]
        self._options = parquet.parse(given)
        self.typing: Typing = typing_of(self._options)
        self._newest = NewestVersion(self._options, clock_s=lambda: self.now_s)
        self.now_s = 1000.0

    def batch(self, *writers: int) -> bool:
        """Of a record of each; whether the columns or what reads them changed."""
        found = self._newest.after(self.typing, dict.fromkeys(writers, 1), self.typing.schema)
        self.typing = found or self.typing
        return found is not None

    def left_out(self, *writers: int) -> int:
        return left_out(self.typing, dict.fromkeys(writers, 1))


def test_an_id_whose_fields_the_newest_version_gets_later_is_asked_for_again_after_a_while(
    registry: RegistryServer, tmp_path: Path
) -> None:
    """Another subject had that schema first: one schema has one id."""
    one = register(registry, ONE)
    run = Run(registry, tmp_path)
    two = register(registry, TWO, "returns-value")
    assert not run.batch(one, two) and run.left_out(one, two) == 1
    registry.subjects[SUBJECT].append(registry.subjects["returns-value"][0] | {"subject": SUBJECT, "version": 2})
    asked = registry.asked.count(LATEST)
    run.now_s += AGAIN_S - 1
    assert not any(run.batch(one, two) for _ in range(5)) and registry.asked.count(LATEST) == asked
    run.now_s += 2
    assert run.batch(one, two) and run.left_out(one, two) == 0
    run.now_s += 2 * AGAIN_S
    assert not run.batch(one, two) and registry.asked.count(LATEST) == asked + 1, "nothing is left out any more"


def test_one_request_a_while_is_what_fields_cost_that_stay_left_out_and_its_failure_stops_nothing(
    registry: RegistryServer, tmp_path: Path
) -> None:
    register(registry, ONE)
    run = Run(registry, tmp_path)
    two = register(registry, TWO, "returns-value")
    for _ in range(3):
        asked = registry.asked.count(LATEST)
        run.now_s += AGAIN_S + 1
        assert not any(run.batch(two) for _ in range(5)) and registry.asked.count(LATEST) == asked + 1
    run.now_s += AGAIN_S + 1
    registry.failures = [503] * TRIES
    assert not run.batch(two) and not run.batch(two) and not registry.failures


def test_a_version_that_the_table_cannot_take_is_told_once_whatever_ids_come(
    registry: RegistryServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(registry, ONE)
    run = Run(registry, tmp_path)
    others = [register(registry, order(coupon="string") | {"doc": str(each)}, "returns-value") for each in range(3)]
    registry.register(SUBJECT, json.dumps(ONE | {"fields": [{"name": "id", "type": "string"}]}))
    for other in others:
        run.now_s += AGAIN_S + 1
        assert not run.batch(other)
    told = capsys.readouterr().err
    assert told.count("the columns stay as they are") == 1 and "field id: the table has int" in told


FORWARD = {"type": "record", "name": "shop.Order", "fields": [*ONE["fields"], {"name": "size", "type": "int"}]}


def test_a_running_job_follows_no_version_that_refuses_what_writers_still_write(
    registry: RegistryServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = register(registry, ONE)
    run = Run(registry, tmp_path)
    two = register(registry, FORWARD)
    for _ in range(2):
        assert not run.batch(one, two)
        run.now_s += AGAIN_S + 1
    record = framed(one, ONE, {"id": 1})
    assert decode(run.typing.value, [record]) == ([{"id": 1}], [None])
    assert decode(run.typing.value, [framed(two, FORWARD, {"id": 2, "size": 3})]) == ([{"id": 2}], [None])
    told = capsys.readouterr().err
    assert told.count("warning: ") == 1 and "value: no field size, and it has no default" in told
    three = register(registry, order(size="int"))
    assert run.batch(three)
    assert decode(run.typing.value, [record]) == ([{"id": 1, "size": None}], [None])
    assert decode(run.typing.value, [framed(two, FORWARD, {"id": 2, "size": 3})]) == ([{"id": 2, "size": 3}], [None])


def test_a_symbol_that_is_gone_keeps_a_running_job_s_version(registry: RegistryServer, tmp_path: Path) -> None:
    def version(*symbols: str, **more: str) -> dict[str, Any]:
        return order(state={"type": "enum", "name": "State", "symbols": [*symbols], **more})

    register(registry, version("OPEN", "SHUT"))
    run = Run(registry, tmp_path)
    assert not run.batch(register(registry, version("OPEN", "LOST")))
    assert run.batch(register(registry, version("OPEN", "LOST", default="OPEN")))


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_protobuf_version_that_drops_a_field_is_taken_where_it_brings_a_symbol(
    registry: RegistryServer, tmp_path: Path, syntax: str
) -> None:
    def version(symbols: str, fields: str) -> int:
        text = f'syntax = "{syntax}"; enum S {{ A = 0; B = 1; {symbols} }} message O {{ optional int32 id = 1; {fields} optional S s = 3; }}'
        return registry.register(SUBJECT, text, kind="PROTOBUF")

    def read(number: int, message: bytes) -> Any:
        return decode(run.typing.value, [b"\x00" + number.to_bytes(4, "big") + b"\x00" + message])

    one = version("", "optional string coupon = 2;")
    run = Run(registry, tmp_path, "protobuf")
    assert not run.batch(version("", "reserved 2;")), "it brings nothing"
    assert read(one, b"\x08\x01\x12\x01c") == ([{"id": 1, "coupon": "c", "s": None}], [None])
    three = version("C = 2;", "reserved 2;")
    assert run.batch(three)
    assert read(three, b"\x08\x02\x18\x02") == ([{"id": 2, "s": "C", "coupon": None}], [None])
    assert read(one, b"\x08\x01\x12\x01c") == ([{"id": 1, "s": None, "coupon": "c"}], [None]), "the table has it"
    four = version("C = 2; D = 3;", "reserved 2;")
    assert run.batch(four)
    assert read(four, b"\x08\x02\x18\x03") == ([{"id": 2, "s": "D", "coupon": None}], [None])


def test_a_protobuf_symbol_that_is_gone_is_read_while_the_run_goes_on(registry: RegistryServer, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message O {{ enum S {{ A = 0; {} }} message P {{ map<string, S> s = 1; P p = 2; }} P p = 1; int32 id = 2; }}'
    registry.register(SUBJECT, text.format("B = 1;"), kind="PROTOBUF")
    run = Run(registry, tmp_path, "protobuf")
    assert not run.batch(registry.register(SUBJECT, text.format(""), kind="PROTOBUF"))
    assert run.batch(registry.register(SUBJECT, text.format("B = 1; C = 2;"), kind="PROTOBUF"))


def test_a_protobuf_version_too_deep_to_be_columns_stops_no_run_that_goes_on(
    registry: RegistryServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'syntax = "proto3"; message M0 {{ int32 id = 1; {} }}'
    registry.register(SUBJECT, text.format(""), kind="PROTOBUF")
    run = Run(registry, tmp_path, "protobuf")
    chain = "".join(f"message N{each} {{ N{each + 1} n = 1; }} " for each in range(300))
    deep = text.format(f"{chain} message N300 {{ int32 n = 1; }} N0 n = 2;")
    assert not run.batch(registry.register(SUBJECT, deep, kind="PROTOBUF"))
    assert "the columns stay as they are" in capsys.readouterr().err
