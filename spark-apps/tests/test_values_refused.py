"""Records that parse and that no column holds: which they are is told at once, however many there are. Else whoever
writes such records holds up the table's job: halves of a slice are built again and again, with all of their columns.
"""

import datetime
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from value_registry import met_anew

from bmq_spark.values import Decoder, SchemaFile, decoder, read_schema
from bmq_spark.values.decoded import RecordDecoder
from bmq_spark.values.protobuf_writers import OtherVersion
from bmq_spark.values.times import beyond_calendar

COUNT = 512
BUILDS_MAX = 4
"""Of a slice with all its columns: as it comes, without those that do not fit, and no more than a few besides."""
NAMES = [f"c{number}" for number in range(20)]


def json_of(kind: str) -> Decoder:
    ddl = ", ".join([f"at {kind}", *(f"{name} bigint" for name in NAMES)])
    return decoder("json", schema=SchemaFile(name="orders.ddl", content=ddl.encode()))


def avro_of(kind: Any) -> Decoder:
    fields = [{"name": "at", "type": kind}, *({"name": name, "type": ["null", "long"]} for name in NAMES)]
    schema = {"type": "record", "name": "R", "fields": fields}
    return decoder("avro", schema=SchemaFile(name="orders.avsc", content=json.dumps(schema).encode()))


def protobuf_of(folder: Path) -> Decoder:
    fields = " ".join(f"int64 {name} = {number};" for number, name in enumerate(NAMES, 2))
    (folder / "orders.proto").write_text(f'syntax = "proto3"; message R {{ enum E {{ A = 0; }} E at = 1; {fields} }}')
    return decoder("protobuf", schema=read_schema(str(folder / "orders.proto")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A decoder, a record that fits and one that does not, and what is said of it."""

    decoder: Decoder
    good: bytes
    bad: bytes
    says: str


def case(name: str, folder: Path) -> Case:
    """The records have nothing but the first column."""
    nothing = b"\x00" * len(NAMES)
    match name:
        case "a time":
            good, bad = b'{"at": "2026-01-01T00:00:00Z"}', b'{"at": "0001-01-01T00:00:00+01:00"}'
            return Case(decoder=json_of("timestamp"), good=good, bad=bad, says="years 1 to 9999 - at `$.at`")
        case "a time within lists":
            good, bad = b'{"at": [{"to": null}, null, {}]}', b'{"at": [{}, {"to": {"a": "9999-12-31T23:00:00-02:00"}}]}'
            kind, says = "array<struct<to: map<string, timestamp>>>", "at `$.at[...].to[...]`"
            return Case(decoder=json_of(kind), good=good, bad=bad, says=says)
        case "a decimal":
            kind = {"type": "bytes", "logicalType": "decimal", "precision": 5}
            good, bad = b"\x02\x01" + nothing, b"\x08\x7f\xff\xff\xff" + nothing
            return Case(decoder=avro_of(kind), good=good, bad=bad, says="at `$.at`")
        case "a time in milliseconds":
            good, bad = b"\x02" + nothing, b"\xfe" + b"\xff" * 8 + b"\x01" + nothing
            kind = {"type": "long", "logicalType": "timestamp-millis"}
            return Case(decoder=avro_of(kind), good=good, bad=bad, says="out of bounds")
    return Case(decoder=protobuf_of(folder), good=b"\x10\x05", bad=b"\x08\x05", says="R.E has no value 5")


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["a time", "a time within lists", "a decimal", "a time in milliseconds", "a symbol"])
def test_records_that_no_column_holds_are_told_without_building_each_of_them(
    name: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = case(name, tmp_path)
    assert isinstance(refusing.decoder, RecordDecoder)
    kind = type(refusing.decoder)
    array, built = kind.array, list[int]()

    def counted(self: Any, objects: list[Any]) -> pa.Array:
        built.append(len(objects))
        return array(self, objects)

    monkeypatch.setattr(kind, "array", counted)
    fits = [bool(number % every) for number in range(COUNT)]
    decoded = refusing.decoder.decode(pa.array([refusing.good if each else refusing.bad for each in fits], pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.reasons.is_null().to_pylist() == decoded.values.is_valid().to_pylist() == fits
    assert all(refusing.says in why for why in decoded.reasons.drop_null().to_pylist())
    assert len(built) <= BUILDS_MAX


def test_records_of_another_version_that_no_column_holds_are_told_without_building_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array, built = OtherVersion.array, list[int]()

    def counted(self: OtherVersion, found: list[Any]) -> pa.Array:
        built.append(len(found))
        return array(self, found)

    monkeypatch.setattr(OtherVersion, "array", counted)
    with met_anew() as registry:
        version = 'syntax = "proto3"; message R {{ {} at = 1; int64 a = 2; repeated int32 {} = 3; }}'
        before, now = (
            registry.register("orders", version.format(*each), kind="PROTOBUF")
            for each in (("int64", "former"), ("int32", "later"))
        )
        bodies = [b"\x08\x05", b"\x08\xff\xff\xff\xff\x7f", b"\x10\x01", b"\x1a\x01\x01"] * (COUNT // 4)
        values = [b"\x00" + before.to_bytes(4, "big") + b"\x00" + body for body in bodies]
        values[::8] = [b"\x00" + now.to_bytes(4, "big") + b"\x00\x08\x05"] * (COUNT // 8)
        made = decoder("protobuf", registry=registry.url, subject="orders")
        decoded = made.decode(pa.array(values, pa.binary()))
    decoded.values.validate(full=True)
    reasons = decoded.reasons.to_pylist()
    assert [why is None for why in reasons] == [True, False, True, False] * (COUNT // 4)
    assert "field at: Integer value" in reasons[1] and "field 3 is former to its writer" in reasons[3]
    assert [found and found["at"] for found in decoded.values.to_pylist()] == [5, None, 0, None] * (COUNT // 4)
    assert len(built) <= BUILDS_MAX


KINDS = [
    pa.timestamp("us", tz="UTC"),
    pa.date32(),
    pa.list_(pa.date32()),
    pa.map_(pa.string(), pa.timestamp("us")),
    pa.struct([("a", pa.int64()), ("at", pa.timestamp("us"))]),
    pa.list_(pa.struct([("days", pa.map_(pa.string(), pa.list_(pa.date32()))), ("a", pa.string())])),
    pa.struct([("of", pa.list_(pa.list_(pa.struct([("at", pa.timestamp("us", tz="UTC"))]))))]),
]
DAYS = (datetime.date.min.toordinal(), datetime.date.max.toordinal())


def value(random: random.Random, kind: pa.DataType) -> tuple[Any, bool]:
    """A value as numbers, and whether it has a time that is none of these years."""
    if random.random() < 0.2:
        return None, False
    if pa.types.is_struct(kind):
        parts = {field.name: value(random, field.type) for field in kind}
        return {name: part for name, (part, _) in parts.items()}, any(beyond for _, beyond in parts.values())
    if pa.types.is_list(kind):
        items = [value(random, kind.value_type) for _ in range(random.randrange(4))]
        return [item for item, _ in items], any(beyond for _, beyond in items)
    if pa.types.is_map(kind):
        items = [value(random, kind.item_type) for _ in range(random.randrange(3))]
        return [(f"k{at}", item) for at, (item, _) in enumerate(items)], any(beyond for _, beyond in items)
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return (1 if pa.types.is_integer(kind) else "x"), False
    epoch = datetime.date(1970, 1, 1).toordinal()
    unit = 1 if pa.types.is_date(kind) else 86_400_000_000
    low, high = (DAYS[0] - epoch) * unit, (DAYS[1] - epoch + 1) * unit - 1
    beyond = random.random() < 0.1
    return random.choice([low - 1, high + 1] if beyond else [low, high, 0]), beyond


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_times_beyond_the_calendar_are_found_wherever_they_are_and_no_others(kind: pa.DataType) -> None:
    made = [value(random.Random(seed), kind) for seed in range(400)]
    array = pa.array([found for found, _ in made], type=kind)
    for start, end in ((0, 400), (7, 391)):
        wanted = [at for at, (_, beyond) in enumerate(made[start:end]) if beyond]
        assert sorted(beyond_calendar(array.slice(start, end - start))) == wanted
    # What lies below a null is no value.
    hidden = pa.StructArray.from_arrays([array], names=["x"], mask=pa.array([True] * len(array)))
    assert beyond_calendar(hidden) == {}
