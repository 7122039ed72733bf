"""Records of one writer's schema as values of another reader's: the value that the writer meant, or a reason, and never
another value.
"""

import datetime
import io
import json
import re
import uuid
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import fastavro
import pytest
from value_cases import decode
from value_registry import RegistryServer, met_anew

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import Decoder, SchemaFile, decoder

REFUSED = "the writer's schema does not resolve"
EPOCH = datetime.datetime(1970, 1, 1)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with met_anew() as registry:
        yield registry


def record_of(*fields: Any) -> dict[str, Any]:
    """Of (name, type) or (name, type, default)."""
    return {
        "type": "record",
        "name": "R",
        "fields": [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields],
    }


def reading(server: RegistryServer, reader: Any) -> Decoder:
    return decoder("avro", schema=SchemaFile(name="r.avsc", content=json.dumps(reader).encode()), registry=server.url)


def without_meanings(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_meanings(each) for each in schema]
    return (
        {key: without_meanings(part) for key, part in schema.items() if key != "logicalType"}
        if isinstance(schema, dict)
        else schema
    )


def framed(server: RegistryServer, writer: Any, *stored: Any) -> list[bytes]:
    """Records in the wire format: what they store is given as numbers and bytes."""
    number, schema = server.register("any", json.dumps(writer)), fastavro.parse_schema(plain_fields(writer))
    values = []
    for each in stored:
        content = io.BytesIO()
        fastavro.schemaless_writer(content, schema, each)
        values.append(b"\x00" + number.to_bytes(4, "big") + content.getvalue())
    return values


def plain_fields(writer: Any) -> Any:
    return writer | {"fields": [field | {"type": without_meanings(field["type"])} for field in writer["fields"]]}


def read(server: RegistryServer, writer: Any, reader: Any, *stored: Any) -> tuple[list[Any], list[str | None]]:
    """Of schemas of the one field u: its values, and why there are none."""
    rows, reasons = decode(
        reading(server, record_of(("u", reader))),
        framed(server, record_of(("u", writer)), *({"u": each} for each in stored)),
    )
    return [None if row is None else row["u"] for row in rows], reasons


def held(member_values: Any) -> dict[str, Any]:
    return {name: value for name, value in member_values.items() if value is not None}


def fixed(size: int, **logical: Any) -> Any:
    return {"type": "fixed", "name": f"F{size}", "size": size, **logical}


def octets(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


NUMBERS = [0, 1, -1, 20_455, 1_000, 86_400_000, 1_767_323_045]
TIMES = [*NUMBERS, -86_399_999_999_000, 1_767_323_045_678, 1_767_323_045_678_901, 1_767_323_045_678_901_000]
PARTS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "int": ("int", NUMBERS),
    "long": ("long", TIMES),
    "string": ("string", ["", "a", "00000000-0000-0000-0000-000000000001"]),
    "bytes": ("bytes", [b"\x7d", b"\x00\x7d", b"\xff\x38"]),
    "uuid": ({"type": "string", "logicalType": "uuid"}, ["00000000-0000-0000-0000-000000000001"]),
    "fixed16": (fixed(16), [uuid.UUID(int=5).bytes]),
    "uuid16": (fixed(16, logicalType="uuid"), [uuid.UUID(int=5).bytes]),
    "duration": (fixed(12, logicalType="duration"), [bytes(range(12))]),
    "date": ({"type": "int", "logicalType": "date"}, NUMBERS[:5]),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, NUMBERS[:5]),
}
TYPES |= {
    f"{clock}-{unit}": ({"type": "long", "logicalType": f"{clock}-{unit}"}, TIMES)
    for clock in ("time", "timestamp", "local-timestamp")
    for unit in PARTS
    if clock != "time" or unit == "micros"
}
for scale in (0, 2, 4):
    meaning = {"logicalType": "decimal", "precision": 9, "scale": scale}
    TYPES[f"decimal-{scale}"] = (
        {"type": "bytes", **meaning},
        [octets(number, 4) for number in (125, 12_500, -70_000, 0, 999_999_999)],
    )
    TYPES |= {
        f"decimal{size}-{scale}": (fixed(size, **meaning), [octets(number, size) for number in (125, -20_000)])
        for size in (4, 12, 16)
    }
BASES = [("int", "long"), ("string", "bytes"), ("bytes", "string")]
WRAPPERS: dict[str, tuple[Any, Any]] = {
    "plain": (lambda kind: kind, lambda value: value),
    "null": (lambda kind: ["null", kind], lambda value: value),
    "union": (lambda kind: ["null", "boolean", kind], lambda value: value),
    "array": (lambda kind: {"type": "array", "items": kind}, lambda value: [value, value]),
    "map": (lambda kind: {"type": "map", "values": kind}, lambda value: {"k": value}),
    "record": (
        lambda kind: {"type": "record", "name": "In", "fields": [{"name": "x", "type": kind}]},
        lambda value: {"x": value},
    ),
}


def unwrapped(wrapper: str, column: Any) -> Any:
    match wrapper:
        case "union":
            return next(iter(held(column).values()))
        case "array":
            first, second = column
            assert first == second
            return first
        case "map":
            return dict(column)["k"]
        case "record":
            return column["x"]
    return column


def logical(name: str) -> tuple[str, int] | None:
    """The kind and the parts of one, by the dumbest means."""
    kind, _, unit = name.rpartition("-")
    if name in ("date", "duration") or name.startswith("uuid"):
        return name.rstrip("16"), 1
    if kind.startswith("decimal"):
        return "decimal", 10 ** int(unit)
    return (kind, PARTS[unit]) if kind else None


def in_column(name: str, stored: Any) -> Any:
    """What a column of that type has for what is stored as it says."""
    meant = logical(name)
    if meant is None or name in ("uuid", "duration") or name.startswith("time-") or name.endswith("nanos"):
        return stored
    kind, parts = meant
    match kind:
        case "uuid":
            return str(uuid.UUID(bytes=stored))
        case "date":
            return (EPOCH + datetime.timedelta(days=stored)).date()
        case "decimal":
            return Decimal(int.from_bytes(stored, "big", signed=True)) / parts
    time = EPOCH + datetime.timedelta(microseconds=stored * 10**6 // parts)
    return time if kind == "local-timestamp" else time.replace(tzinfo=datetime.UTC)


def expected(writer: str, reader: str, stored: Any) -> tuple[Any, str]:
    """The column's value, or what the reason says."""
    have, want = logical(writer), logical(reader)
    bases = tuple(without_meanings(TYPES[name][0]) for name in (writer, reader))
    bases = tuple(base["type"] if isinstance(base, dict) and base["type"] != "fixed" else str(base.get("name")) if isinstance(base, dict) else base
                  for base in bases)  # fmt: skip
    if bases[0] != bases[1] and bases not in BASES:
        return None, REFUSED
    if (have and want and have[0] != want[0]) or (bases in BASES[1:] and "decimal" in str((have, want))):
        return None, REFUSED
    if have and want and have != want:
        number = int.from_bytes(stored, "big", signed=True) if isinstance(stored, bytes) else stored
        exact = Fraction(number * want[1], have[1])
        if exact.denominator != 1:
            return None, "no whole number of the reader's"
        if isinstance(stored, bytes):
            return (None, "precision") if abs(exact) >= 10**9 else (in_column(reader, octets(int(exact), 8)), "")
        if abs(exact) >= 2**63:
            return None, "beyond|too large|out of bounds|not fit"
        stored = int(exact)
    if bases in BASES[1:]:
        try:
            stored = stored.encode() if isinstance(stored, str) else stored.decode()
        except UnicodeDecodeError:
            return None, "UnicodeDecodeError"
    try:
        return in_column(reader, stored), ""
    except OverflowError:
        return None, "beyond the years 1 to 9999|out of bounds"


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_pair_of_logical_types_gives_the_value_that_was_meant_or_a_reason(
    server: RegistryServer, wrapper: str
) -> None:
    wrapped, around = WRAPPERS[wrapper]
    values, wanted = [], []
    for writer, (schema, stored) in TYPES.items():
        values += framed(server, record_of(("u", wrapped(schema))), *({"u": around(each)} for each in stored))
        wanted += [(writer, each) for each in stored]
    right = 0
    for reader, (schema, _) in TYPES.items():
        decoded = decode(reading(server, record_of(("u", wrapped(schema)))), values)
        for (writer, stored), row, why in zip(wanted, *decoded, strict=True):
            value, says = expected(writer, reader, stored)
            told = f"{writer} {stored!r} as {reader}: {row} {why}"
            assert (row is None) == bool(says), told
            assert re.search(says, why or ""), told
            if row is not None:
                assert unwrapped(wrapper, row["u"]) == value, told
                right += 1
    assert right > 300


def test_a_branch_is_told_by_its_index_where_two_are_alike_to_python(server: RegistryServer) -> None:
    union = [
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        "float",
        {"type": "double"},
    ]
    made, number = reading(server, record_of(("u", union))), server.register("s", json.dumps(record_of(("u", union))))
    start = b"\x00" + number.to_bytes(4, "big")
    rows, reasons = decode(
        made, [start + b"\x00\x02", start + b"\x02\x02", start + b"\x04" + bytes(4), start + b"\x06" + bytes(8)]
    )
    assert reasons == [None] * 4
    assert [held(row["u"]) for row in rows] == [
        {"member_int": datetime.date(1970, 1, 2)},
        {"member_long": datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=datetime.UTC)},
        {"member_float": 0.0},
        {"member_double": 0.0},
    ]


@pytest.mark.parametrize(
    ("writer", "reader", "stored", "value"),
    [
        ("int", ["float", "int"], 16_777_217, {"member_int": 16_777_217}),
        ("int", ["float", "double", "long"], 16_777_217, {"member_long": 16_777_217}),
        ("int", ["null", "float", "string", "double"], 16_777_217, {"member_double": 16_777_217.0}),
        ("bytes", ["string", "bytes"], b"\xff", {"member_bytes": b"\xff"}),
        (["int", "string"], ["double", "string", "long"], 5, {"member_long": 5}),
        ("float", ["long", "double"], 0.5, {"member_double": 0.5}),
    ],
)
def test_of_a_union_the_branch_that_loses_nothing_is_taken(
    server: RegistryServer, writer: Any, reader: Any, stored: Any, value: Any
) -> None:
    (row,), reasons = read(server, writer, reader, stored)
    assert reasons == [None]
    assert held(row) == value


A, B = ({"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]} for name in "AB")


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (B, [A, B]),
        (B, ["null", "string", A, {**B, "aliases": ["Z"]}]),
        ({**B, "name": "Z"}, [A, {**B, "aliases": ["Z"]}]),
        ({**B, "name": "old.B"}, [{**A, "name": "new.A"}, {**B, "name": "new.B"}]),
    ],
)
def test_a_record_that_became_a_branch_of_a_union_is_that_branch(
    server: RegistryServer, writer: Any, reader: Any
) -> None:
    (row,), reasons = read(server, writer, reader, {"x": 2})
    assert reasons == [None]
    assert held(row) == {"member_b": {"x": 2}}


def test_a_time_read_as_a_number_is_the_number_whatever_units_are_beside_it(server: RegistryServer) -> None:
    micros, millis = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis"))
    made = reading(server, record_of(("u", "long"), ("v", millis)))
    (row,), reasons = decode(made, framed(server, record_of(("u", micros), ("v", micros)), {"u": 5, "v": 7000}))
    assert reasons == [None]
    assert row == {"u": 5, "v": datetime.datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=datetime.UTC)}


@pytest.mark.parametrize(
    ("writer", "reader", "stored", "says"),
    [
        (["int", "string"], "int", "x", "value.u: string is not int"),
        (["null", "int"], "int", None, "value.u: null is not int"),
        ("int", ["null", "string"], 5, r"value.u: int is no branch of \[null, string\]"),
        (fixed(4), fixed(4) | {"size": 5}, b"abcd", "value.u: F4 is not F4"),
        (A, B, {"x": 1}, "value.u: A is not B"),
        (A, A | {"fields": [{"name": "y", "type": "int"}]}, {"x": 1}, "value.u: no field y, and it has no default"),
        (
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            {"type": "enum", "name": "E", "symbols": ["a"]},
            "b",
            "enum E has no symbol b",
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "string"},
            [5],
            r"value.u\[\]: int is not string",
        ),
    ],
)
def test_what_does_not_resolve_says_where(
    server: RegistryServer, writer: Any, reader: Any, stored: Any, says: str
) -> None:
    values, (why,) = read(server, writer, reader, stored)
    assert values == [None]
    with pytest.raises(ValueError, match=f"{REFUSED}: .*{says}"):
        raise ValueError(why)


def test_only_what_is_met_has_to_resolve(server: RegistryServer) -> None:
    assert read(server, ["int", "string"], "int", 5) == ([5], [None])
    assert read(server, {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, []) == ([[]], [None])


def test_a_field_that_the_reader_lacks_is_read_over_whatever_its_text_is(server: RegistryServer) -> None:
    union = [
        "null",
        "string",
        {"type": "map", "values": "string"},
        A,
        fixed(4),
        {"type": "enum", "name": "E", "symbols": ["a"]},
    ]
    writer = record_of(("skipped0", union), ("u", "int"), ("text", "bytes"), ("again", {"type": "array", "items": "A"}))
    values = framed(
        server,
        writer,
        *(
            {"skipped0": each, "u": 5, "text": b"\xff", "again": [{"x": 1}]}
            for each in (None, "x", {"k": "v"}, {"x": 1})
        ),
    )
    text = server.register(
        "s",
        json.dumps(record_of(*((f["name"], "string" if f["name"] == "text" else f["type"]) for f in writer["fields"]))),
    )
    values = [b"\x00" + text.to_bytes(4, "big") + value[5:] for value in values]
    assert decode(reading(server, record_of(("u", "int"))), values) == ([{"u": 5}] * 4, [None] * 4)


def dec(precision: int, scale: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
INNER = {
    "type": "record",
    "name": "Z",
    "fields": [{"name": "q", "type": "int", "default": 4}, {"name": "w", "type": "bytes", "default": "\u00e9"}],
}


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff", b"\xff"),
        (fixed(2), "\u00ff\u0000", b"\xff\x00"),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ({"type": "array", "items": fixed(1)}, ["\u00ff"], [b"\xff"]),
        (["bytes", "string"], "\u00ff", {"member_bytes": b"\xff", "member_string": None}),
        (["string", "bytes"], "\u00ff", {"member_bytes": None, "member_string": "ÿ"}),
        (["bytes", "string"], "€", {"member_bytes": None, "member_string": "€"}),
        (["null", "string"], "x", "x"),
        (["null", "string"], None, None),
        (["null", "int", "string"], None, None),
        (["int", "long"], 2**40, 2**40),
        ([A, B], {"x": 7}, {"member_a": {"x": 7}, "member_b": None}),
        (INNER, {}, {"q": 4, "w": b"\xe9"}),
        (INNER, {"q": 5}, {"q": 5, "w": b"\xe9"}),
        (["null", INNER], {}, {"q": 4, "w": b"\xe9"}),
        (dec(4, 2), "\u00ff", Decimal("-0.01")),
        ([dec(4, 2), "null"], "\u0001", Decimal("0.01")),
        (fixed(16, logicalType="uuid"), "\u0000" * 15 + "\u0005", str(uuid.UUID(int=5))),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1,
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=datetime.UTC),
        ),
        ({"type": "double", "note": "wrapped"}, 1, 1.0),
        ("float", 0.5, 0.5),
        (ENUM, "b", "b"),
        ({"type": "array", "items": INNER}, [{}, {"q": 1}], [{"q": 4, "w": b"\xe9"}, {"q": 1, "w": b"\xe9"}]),
    ],
)
def test_a_field_that_the_writer_lacks_has_the_reader_s_default(
    server: RegistryServer, kind: Any, default: Any, value: Any
) -> None:
    made = reading(server, record_of(("u", "int"), ("d", kind, default)))
    assert decode(made, framed(server, record_of(("u", "int")), {"u": 1}, {"u": 2})) == (
        [{"u": 1, "d": value}, {"u": 2, "d": value}],
        [None, None],
    )


@pytest.mark.parametrize(
    ("kind", "default", "says"),
    [
        ("float", 1e39, "beyond what float holds"),
        ("double", 10**400, "int too large"),
        ("int", 2**40, "value.d is int"),
        ("int", True, "value.d is int"),
        ("int", 1.0, "value.d is int"),
        ("string", None, "value.d is string"),
        ("string", "\ud800", "half of a character"),
        ("bytes", "€", "below 256"),
        (fixed(2), "a", "1 octets, not 2"),
        (ENUM, "c", "value.d is E"),
        (["null", "int"], "x", "a union without a branch for it"),
        ({"type": "array", "items": "int"}, ["x"], r"value.d\[\] is int"),
        (A, {}, "value.d.x is not there and has no default"),
        (dec(2, 0), "\u007f\u0000", "precision"),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, "beyond the years 1 to 9999"),
        (
            {"type": "record", "name": "Q", "fields": [{"name": "y", "type": "int", "default": "x"}]},
            {"y": 1},
            "y: the default 'x'",
        ),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused_at_the_start(
    server: RegistryServer, kind: Any, default: Any, says: str
) -> None:
    reader = record_of(("u", "int"), ("d", kind, default))
    with pytest.raises(ConfigurationError, match=f"not an Avro schema of a table: .*{says}"):
        reading(server, reader)
    server.register("s", json.dumps(reader))
    with pytest.raises(ConfigurationError, match=f"not an Avro schema of a table: .*{says}"):
        decoder("avro", registry=server.url, subject="s")


def test_what_a_writer_has_for_defaults_does_not_matter(server: RegistryServer) -> None:
    writer = record_of(("u", "int", "not a number"))
    values = framed(server, record_of(("u", "int")), {"u": 1})
    number = server.register("s", json.dumps(writer))
    assert decode(reading(server, record_of(("u", "long"))), [b"\x00" + number.to_bytes(4, "big") + values[0][5:]]) == (
        [{"u": 1}],
        [None],
    )
