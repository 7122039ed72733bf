"""Typed values in the job itself, through Spark's workers, over a running bmq: what was written is what is read, and
the rest says why not.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from compat_server import Bmq
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from test_values_avro import EVERYTHING, READ, RECORD, written
from test_values_protobuf import COMMON, NOTHING_SET, ORDERS, message_class
from value_registry import RegistryServer, met_anew

from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.table import dataset
from bmq_spark.values.protobuf_files import compiled


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """Asked by the driver, which is this process, and by Spark's workers."""
    with met_anew() as server:
        yield server


def order(**fields: Any) -> dict[str, Any]:
    """An Avro schema of these fields."""
    return {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def framed(number: int, content: bytes) -> bytes:
    """In the registry's wire format."""
    return b"\x00" + number.to_bytes(4, "big") + content


def values_in(table: Path) -> list[Any]:
    """The column `value`, as pyarrow reads it, by offset."""
    return list(dataset(str(table)).to_table(columns=["offset", "value"]).sort_by("offset").column("value").to_pylist())


def letters_in(table: Path) -> list[tuple[bytes, str]]:
    return [(value, reason) for value, reason in rows(table / "_dead_letters", "value, reason")]


def assert_reasons(letters: Sequence[tuple[bytes, str]], *expected: tuple[bytes, str]) -> None:
    assert [value for value, _ in letters] == [value for value, _ in expected]
    for (_, reason), (value, why) in zip(letters, expected, strict=True):
        assert why in reason, (value, reason)


def test_avro_by_a_schema_file_becomes_the_rows_that_were_written(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    good = written(EVERYTHING, RECORD)
    produce(bmq.servers, topic, [good, b"\xff\xff", None, good[:-1], good + b"x", good])
    (tmp_path / "orders.avsc").write_text(json.dumps(EVERYTHING))
    options = parse(
        [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "avro", "--schema", str(tmp_path / "orders.avsc")]
    )
    assert run(options, spark).dead_letters == 3
    assert values_in(tmp_path / "t") == [READ, None, READ]
    assert_reasons(letters_in(tmp_path / "t"), (b"\xff\xff", "Avro"), (good[:-1], "Avro"), (good + b"x", "left over"))
    assert rows(tmp_path / "t", "count(*), count(value.price), sum(value.big::HUGEINT)", "ALL") == [(3, 2, 2**61)]


def test_avro_by_a_registry_follows_its_writers_and_grows_with_the_subject(
    bmq: Bmq, spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    first, second = order(id="int", name="string"), order(id="long", name="string", note=["null", "string"])
    second["fields"][2]["default"] = None
    one = registry.register(f"{topic}-value", json.dumps(first))
    other = registry.register("other", '{"type":"object"}', kind="JSON")
    given = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "avro", "--registry", registry.url]
    plain = written(first, {"id": 1, "name": "a"})
    bad = [b"no frame", framed(99, plain), framed(other, plain), framed(one, b"\x02")]
    produce(bmq.servers, topic, [framed(one, plain), *bad, None])
    assert run(parse(given), spark).dead_letters == 4
    assert values_in(tmp_path / "t") == [{"id": 1, "name": "a"}, None]
    whys = ["wire format", "Schema 99 not found", "is JSON in the registry", "Avro"]
    assert_reasons(letters_in(tmp_path / "t"), *zip(bad, whys, strict=True))
    two = registry.register(f"{topic}-value", json.dumps(second))
    produce(
        bmq.servers, topic, [framed(one, plain), framed(two, written(second, {"id": 2**40, "name": "b", "note": "n"}))]
    )
    assert run(parse(given), spark).dead_letters == 0
    found = rows(tmp_path / "t", "value.id, value.name")
    assert found == [(1, "a"), (None, None), (1, "a"), (2**40, "b")]
    assert values_in(tmp_path / "t")[2:] == [
        {"id": 1, "name": "a", "note": None},
        {"id": 2**40, "name": "b", "note": "n"},
    ]


@pytest.mark.parametrize("by", ["descriptor set", "registry"])
def test_protobuf_becomes_the_rows_that_were_written(
    bmq: Bmq, spark: SparkSession, registry: RegistryServer, tmp_path: Path, by: str
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    descriptors = compiled(
        {"shop/common.proto": COMMON.encode(), "orders.proto": ORDERS.encode()}, "orders.proto", "orders"
    )
    message = message_class(descriptors, "shop.Order")(
        number=-7, text="ä", lines=[{"count": 2, "notes": ["n"]}], pairs={"k": {"count": 3}}, street={"name": "s"}
    )
    plain = message.SerializeToString()
    given = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "protobuf", "--message", "shop.Order"]
    if by == "registry":
        registry.register("common", COMMON, kind="PROTOBUF")
        references = [{"name": "shop/common.proto", "subject": "common", "version": 1}]
        number = registry.register(f"{topic}-value", ORDERS, kind="PROTOBUF", references=references)
        good, empty = framed(number, b"\x00" + plain), framed(number, b"\x00")
        bad = {
            framed(number, b"\x02\x02" + plain): "holds shop.Refund",
            framed(77, b"\x00" + plain): "Schema 77 not found",
            plain: "wire format",
        }
        given += ["--registry", registry.url]
    else:
        (tmp_path / "orders.desc").write_bytes(descriptors.SerializeToString())
        good, empty = plain, b""
        bad = {b"\x08": "not a Protobuf message shop.Order", b'{"flag": true}': "not a Protobuf message shop.Order"}
        given += ["--schema", str(tmp_path / "orders.desc")]
    produce(bmq.servers, topic, [good, *bad, empty, None])
    assert run(parse(given), spark).dead_letters == len(bad)
    line = {"count": 2, "notes": ["n"]}
    told = NOTHING_SET | {
        "number": -7,
        "text": "ä",
        "lines": [line],
        "pairs": [("k", {"count": 3, "notes": []})],
        "street": {"name": "s"},
    }
    assert values_in(tmp_path / "t") == [told, NOTHING_SET, None]
    assert_reasons(letters_in(tmp_path / "t"), *bad.items())
    assert rows(tmp_path / "t", "value.pairs['k'].count, value.lines[1].notes") == [
        (3, ["n"]),
        (None, None),
        (None, None),
    ]


def test_a_file_s_schema_that_the_table_cannot_take_is_refused_before_a_record_is_read(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)

    def given(ddl: str) -> list[str]:
        schema = tmp_path / f"{ddl.replace(' ', '-')}.ddl"
        schema.write_text(ddl)
        return [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json", "--schema", str(schema)]

    produce(bmq.servers, topic, [b'{"a": 1}'])
    run(parse(given("a int")), spark)
    produce(bmq.servers, topic, [b'{"a": "one"}', b'{"a": 2, "b": 3}'])
    with pytest.raises(ConfigurationError) as refused:
        run(parse(given("a string")), spark)
    assert str(refused.value) == (
        f"--schema {tmp_path}/a-string.ddl: field a: the table has int and the new schema string, which it cannot "
        "become: write the new schema to another table, or give the field another name"
    )
    assert values_in(tmp_path / "t") == [{"a": 1}]
    assert run(parse(given("b bigint, a bigint")), spark).dead_letters == 1
    assert values_in(tmp_path / "t") == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    assert_reasons(letters_in(tmp_path / "t"), (b'{"a": "one"}', "a"))


def test_a_registry_s_version_that_the_table_cannot_take_costs_no_record(
    bmq: Bmq, spark: SparkSession, registry: RegistryServer, tmp_path: Path
) -> None:
    """A running job keeps its columns; one that starts is told what breaks, and goes on by the former schema."""
    topic = topic_of(bmq.servers, partitions=1)
    first, breaking = order(id="int"), order(id="string")
    one, two = registry.register(f"{topic}-value", json.dumps(first)), registry.register("ahead", json.dumps(breaking))
    given = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "avro", "--registry", registry.url]
    fits, breaks = framed(one, written(first, {"id": 1})), framed(two, written(breaking, {"id": "x"}))
    produce(bmq.servers, topic, [fits, breaks])
    assert run(parse(given), spark).dead_letters == 1
    registry.register(f"{topic}-value", json.dumps(breaking))
    produce(bmq.servers, topic, [breaks, fits])
    with pytest.raises(JobStopped) as refused:
        run(parse(given), spark)
    line = str(refused.value)
    assert line.startswith(
        f"registry {registry.url}, subject {topic}-value: field id: the table has int and the new schema string"
    )
    assert line.endswith(
        "by the former schema as --schema FILE_OR_URI: then what does not fit goes to the dead letters"
    )
    assert values_in(tmp_path / "t") == [{"id": 1}]
    (tmp_path / "former.avsc").write_text(json.dumps(first))
    assert run(parse([*given, "--schema", str(tmp_path / "former.avsc")]), spark).dead_letters == 1
    assert values_in(tmp_path / "t") == [{"id": 1}, {"id": 1}]
    assert_reasons(
        letters_in(tmp_path / "t"), *[(breaks, "the writer's schema does not resolve: value.id: string is not int")] * 2
    )


def test_inferred_columns_that_change_their_type_make_dead_letters(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = parse([*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json"])
    produce(bmq.servers, topic, [b'{"id": 1, "at": {"x": 1}}'])
    run(options, spark)
    other = [b'{"id": 1.5}', b'{"id": {"n": 1}}', b'{"at": [1]}', b'{"at": {"x": "one"}}']
    produce(bmq.servers, topic, [*other, b'{"id": 2, "at": {"x": 2, "y": "new"}}'])
    assert run(options, spark).dead_letters == 4
    assert values_in(tmp_path / "t") == [{"id": 1, "at": {"x": 1, "y": None}}, {"id": 2, "at": {"x": 2, "y": "new"}}]
    assert_reasons(letters_in(tmp_path / "t"), *((value, "not the JSON of the columns") for value in other))


def test_a_name_without_end_is_a_dead_letter_and_no_column(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    long = [b'{"%s": 1}' % (each * 100_000) for each in (b"a", b"b")]
    produce(bmq.servers, topic, [b'{"id": 1}', *long])
    assert run(parse([*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json"]), spark).dead_letters == 2
    assert values_in(tmp_path / "t") == [{"id": 1}]
    assert_reasons(letters_in(tmp_path / "t"), *((value, "longer than 255 bytes") for value in long))


def test_a_line_says_how_many_records_of_a_batch_have_fields_that_are_in_no_column(
    bmq: Bmq, spark: SparkSession, registry: RegistryServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    less, more = order(id="int"), order(id="int", note="string")
    one = registry.register(f"{topic}-value", json.dumps(more))
    two = registry.register(f"{topic}-value", json.dumps(less))
    given = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "avro", "--registry", registry.url]
    noted = framed(one, written(more, {"id": 1, "note": "n"}))
    produce(bmq.servers, topic, [noted, framed(two, written(less, {"id": 2})), noted])
    assert run(parse(given), spark).dead_letters == 0
    assert values_in(tmp_path / "t") == [{"id": 1}, {"id": 2}, {"id": 1}]
    assert "warning: 2 records of one batch have fields that are in no column" in capsys.readouterr().err
