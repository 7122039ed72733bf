import datetime
import decimal
import io
import json
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import Decoder, SchemaFile, conform, decoder, merge_types
from bmq_spark.values.ddl import write_ddl

UTC = datetime.UTC
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "number", "type": "int"},
        {"name": "big", "type": ["null", "long"], "default": None},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "octets", "type": "bytes"},
        {"name": "text", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "again", "type": ["null", "Colour"]},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "noon", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "pairs", "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "count", "type": ["int", "long"]}]},
            },
        },
        {"name": "last", "type": ["null", "Line"]},
        {"name": "either", "type": ["null", "int", "string", "Line", "Colour", {"type": "array", "items": "int"}]},
    ],
}
RECORD: dict[str, Any] = {
    "flag": True, "number": -5, "big": 2**60, "single": 1.5, "double": 0.1, "octets": b"\x00\xff", "text": "ä", "colour": "BLUE", "again": "RED",
    "digest": b"abcd", "price": decimal.Decimal("-12.50"), "day": datetime.date(2026, 11, 22), "noon": datetime.time(12),
    "millis": datetime.datetime(2026, 11, 22, 10, 0, 0, 123000, tzinfo=UTC), "micros": datetime.datetime(1969, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "local": datetime.datetime(2026, 11, 22, 10), "uuid": uuid.UUID(int=7),
    "tags": ["a", None], "pairs": {"a": datetime.datetime(2026, 1, 1, tzinfo=UTC)},
    "lines": [{"count": 1}], "last": {"count": 2**40}, "either": {"count": 3},
}  # fmt: skip
READ = RECORD | {
    "noon": 12 * 3600 * 1000, "uuid": str(uuid.UUID(int=7)), "pairs": list(RECORD["pairs"].items()),
    "either": dict.fromkeys(("member_int", "member_string", "member_colour", "member_array")) | {"member_line": {"count": 3}},
}  # fmt: skip


def by_schema(schema: Any) -> Decoder:
    return decoder("avro", schema=SchemaFile(name="orders.avsc", content=json.dumps(schema).encode()))


def written(schema: Any, record: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), record)
    return content.getvalue()


def record_of(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def test_every_type_of_a_schema_is_read() -> None:
    made = by_schema(EVERYTHING)
    assert write_ddl(made.arrow_type) == (
        "flag boolean, number int, big bigint, single float, double double, octets binary, text string, colour "
        "string, again string, digest binary, price decimal(10,2), day date, millis timestamp, micros timestamp, "
        "local timestamp_ntz, noon int, uuid string, tags array<string>, pairs map<string, timestamp>, lines "
        "array<struct<count: bigint>>, last struct<count: bigint>, either struct<member_int: int, member_string: "
        "string, member_line: struct<count: bigint>, member_colour: string, member_array: array<int>>"
    )
    values, reasons = decode(made, [written(EVERYTHING, RECORD), None])
    assert reasons == [None, None]
    assert values == [READ, None]


@pytest.mark.parametrize(
    ("value", "member", "held"),
    [
        (5, "member_int", 5),
        ("text", "member_string", "text"),
        (("shop.Colour", "RED"), "member_colour", "RED"),
        ([1, 2], "member_array", [1, 2]),
    ],
)
def test_a_union_says_which_branch_it_holds(value: Any, member: str, held: Any) -> None:
    (read,), reasons = decode(by_schema(EVERYTHING), [written(EVERYTHING, RECORD | {"either": value})])
    assert reasons == [None]
    assert {name: each for name, each in read["either"].items() if each is not None} == {member: held}


@pytest.mark.parametrize(
    ("kind", "good", "value", "why"),
    [
        ("long", b"\x02", b"", "it ends within a value, after 0 bytes"),
        ("long", b"\x02", b"\x02\x02", "1 bytes are left over of 2"),
        ("string", b"\x02x", b"\x04\xff\xff", "UnicodeDecodeError"),
        ("int", b"\x02", b"\xfe\xff\xff\xff\xff\xff\x01", r"at `\$.a` \(int32\)"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            b"\x02\x0f",
            b"\x0e" + b"\x7f" * 7,
            r"precision .* at `\$\.a`",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            b"\x02\x0f",
            b"\x80\x89\x7a" + b"\x7f" * 1_000_000,
            "1000000 bytes",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x00", b"\x08", "enum E has no symbol 4"),
    ],
)
def test_a_record_that_does_not_fit_says_why_and_spoils_no_other(
    kind: Any, good: bytes, value: bytes, why: str
) -> None:
    values, reasons = decode(by_schema(record_of(a=kind)), [good, value, good])
    assert values[0] == values[2] is not None
    assert reasons[0] is reasons[2] is None
    with pytest.raises(ValueError, match=why):
        raise ValueError(reasons[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"type": "record",\n "name" "R"}', "orders.avsc: line 2, column 9: not JSON"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "money"}]}',
            "not an Avro schema of a table: money",
        ),
        ('"string"', "the schema is not of a record"),
        (json.dumps(record_of(next=["null", "R"])), r"value\.next: R is within itself"),
        (json.dumps(record_of(a=[])), r"value\.a: a union without branches"),
        (json.dumps(record_of(a=["int", ["null", "string"]])), "a union within a union"),
        (json.dumps(record_of(a={"type": "map", "values": []})), r"value\.a\.value: a union without branches"),
        (json.dumps(record_of(a={"type": "fixed", "name": "F", "size": -1})), r"value\.a: F is a fixed of the size -1"),
        (
            json.dumps(record_of(a={"type": "fixed", "name": "F", "size": "4"})),
            r"value\.a: F is a fixed of the size '4'",
        ),
        (
            json.dumps(record_of(a={"type": "fixed", "name": "F", "size": True})),
            r"value\.a: F is a fixed of the size True",
        ),
        (json.dumps(record_of(a={"type": "fixed", "name": "F"})), r"size"),
        (json.dumps(record_of(a={"type": "array", "items": "null"})), "an array whose items take no bytes"),
        (
            json.dumps(record_of(a={"type": "bytes", "logicalType": "decimal", "precision": 50})),
            "more than the 38 digits",
        ),
    ],
)
def test_a_broken_schema_is_named_with_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        decoder("avro", schema=SchemaFile(name="orders.avsc", content=text.encode()))
    assert "\n" not in str(raised.value)


def test_avro_without_any_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="format avro: neither a schema nor a registry: give one of them"):
        decoder("avro")


times = st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2200, 1, 1))
orders = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "number": st.integers(-(2**31), 2**31 - 1),
        "big": st.none() | st.integers(-(2**63), 2**63 - 1),
        "single": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "octets": st.binary(max_size=5),
        "text": st.text(max_size=5),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "again": st.none() | st.sampled_from(["RED", "BLUE"]),
        "digest": st.binary(min_size=4, max_size=4),
        "price": st.decimals("-99999999.99", "99999999.99", places=2),
        "day": st.dates(),
        "millis": times.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000, tzinfo=UTC)),
        "micros": st.none() | times.map(lambda time: time.replace(tzinfo=UTC)),
        "local": times,
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=3),
        "lines": st.lists(st.fixed_dictionaries({"count": st.integers(-(2**63), 2**63 - 1)}), max_size=3),
        "last": st.none() | st.fixed_dictionaries({"count": st.integers(0, 100)}),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(orders, min_size=1, max_size=4))
def test_what_fastavro_wrote_is_what_is_read(batch: list[dict[str, Any]]) -> None:
    values, reasons = decode(by_schema(EVERYTHING), [written(EVERYTHING, RECORD | order) for order in batch])
    assert reasons == [None] * len(batch)
    assert values == [READ | order for order in batch]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), min_size=1, max_size=4))
def test_corruption_is_a_value_or_a_reason_and_never_more(damage: list[tuple[int, bytes]]) -> None:
    good = written(EVERYTHING, RECORD)
    damaged = [good[:at] + noise + good[at + len(noise) :] for at, noise in damage] + [
        good[:at] + noise for at, noise in damage
    ]
    made = by_schema(EVERYTHING)
    decoded = made.decode(pa.array([good, *damaged, good], type=pa.binary()))
    assert len(decoded.values) == len(decoded.reasons) == len(damaged) + 2
    for row, why in zip(decoded.values, decoded.reasons, strict=True):
        assert row.is_valid != why.is_valid
    assert decoded.values[0].as_py() == decoded.values[-1].as_py() == READ


PAID = {"type": "record", "name": "Paid", "fields": [{"name": "amount", "type": "long"}]}
REFUNDED = {
    "type": "record",
    "name": "Refunded",
    "fields": [{"name": "amount", "type": "long"}, {"name": "why", "type": "string"}],
}
OTHER = {"type": "record", "name": "Authorized", "fields": [{"name": "amount", "type": "long"}]}


@pytest.mark.parametrize(
    "branches", [[PAID, REFUNDED], [REFUNDED, PAID], [OTHER, PAID, REFUNDED], ["string", REFUNDED, OTHER, PAID]]
)
def test_a_branch_of_a_union_is_the_same_column_wherever_it_stands(branches: list[Any]) -> None:
    first = by_schema(record_of(u=["null", PAID, REFUNDED]))
    now = record_of(u=["null", *branches])
    table = merge_types(first.arrow_type, by_schema(now).arrow_type)
    decoded = by_schema(now).decode(pa.array([written(now, {"u": ("Paid", {"amount": 7})})], pa.binary()))
    (row,) = conform(decoded.values, table).to_pylist()
    assert {name: held for name, held in row["u"].items() if held is not None} == {"member_paid": {"amount": 7}}


def test_two_branches_that_would_be_one_column_are_refused() -> None:
    other = {"type": "record", "name": "paid", "namespace": "other", "fields": [{"name": "x", "type": "int"}]}
    with pytest.raises(
        ConfigurationError, match=r"value.u: Paid and other.paid of a union would be one column, member_paid"
    ):
        by_schema(record_of(u=[PAID, other]))


def zigzag(number: int) -> bytes:
    left, octets = ((number << 1) ^ (number >> 63)) & (2**64 - 1), b""
    while left >= 0x80:
        left, octets = left >> 7, octets + bytes([left & 0x7F | 0x80])
    return octets + bytes([left])


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
INTS = {"type": "array", "items": "int"}
COUNTS = {"type": "map", "values": "int"}
NEVER_MORE = "a number of more than 10 bytes"


@pytest.mark.parametrize(
    ("kind", "good", "value", "why"),
    [
        (COLOUR, zigzag(1), zigzag(-1), "enum Colour has no symbol -1"),
        (COLOUR, zigzag(1), zigzag(2), "enum Colour has no symbol 2"),
        ("boolean", b"\x01", b"\x02", "a boolean of 2"),
        (["null", "int"], zigzag(0), zigzag(-1) + zigzag(5), "field a: its union has no branch -1"),
        (["null", "int", "string"], zigzag(1) + zigzag(5), zigzag(-2) + zigzag(5), "field a: its union has no branch -2"),
        ("int", zigzag(1), b"\x80" * 20 + b"\x01", NEVER_MORE),
        ("long", zigzag(2**63 - 1), b"\xff" * 10 + b"\x01", NEVER_MORE),
        ("long", zigzag(-(2**63)), b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        ("string", zigzag(1) + b"x", zigzag(-1) + b"x", "a length below 0"),
        ("bytes", zigzag(200) + b"x" * 200, zigzag(2**62), "it ends within a value"),
        (INTS, zigzag(1) + zigzag(7) + zigzag(0), zigzag(2**62) + zigzag(7), "a block of 4611686018427387904 items in 1 bytes"),
        (INTS, zigzag(-1) + zigzag(1) + zigzag(7) + zigzag(0), zigzag(-1) + zigzag(100) + zigzag(7) + zigzag(0), "1 bytes says that it has 100"),
        (INTS, zigzag(0), zigzag(-1) + zigzag(-1) + zigzag(7) + zigzag(0), "says that it has -1"),
        (COUNTS, zigzag(1) + b"\x02k" + zigzag(3) + zigzag(0), zigzag(2) + b"\x02k" + zigzag(3) + zigzag(0), "it ends within a value"),
    ],
)  # fmt: skip
def test_what_fastavro_would_take_for_something_else_is_refused(kind: Any, good: bytes, value: bytes, why: str) -> None:
    values, reasons = decode(by_schema(record_of(a=kind)), [good, value, good])
    assert values[0] == values[2] is not None and values[1] is None
    assert reasons[0] is reasons[2] is None
    assert why in str(reasons[1])


def test_a_few_bytes_do_not_become_more_values_than_memory_holds() -> None:
    empty = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "b", "type": "boolean"}] + [{"name": f"n{i}", "type": "null"} for i in range(99)],
    }
    made = by_schema(record_of(a={"type": "array", "items": empty}))

    def lines(count: int) -> bytes:
        return zigzag(count) + b"\x01" * count + zigzag(0)

    decoded = made.decode(
        pa.array([lines(2), lines(20_000), lines(3), lines(9_000), lines(9_000), lines(9_000)], pa.binary())
    )
    assert [None if row is None else len(row["a"]) for row in decoded.values.to_pylist()] == [
        2,
        None,
        3,
        9_000,
        9_000,
        9_000,
    ]
    assert decoded.reasons.drop_null().to_pylist() == [
        "its items would become 2020000 values or more: 1000000 at most from so many bytes"
    ]


def test_what_a_reader_adds_to_each_item_is_counted() -> None:
    from bmq_spark.values.avro_records import parse_avro
    from bmq_spark.values.avro_strict import StrictAvro
    from bmq_spark.values.decoded import Unfit

    def lines(*more: Any) -> Any:
        line = {"type": "record", "name": "Line", "fields": [{"name": "b", "type": "boolean"}, *more]}
        return parse_avro(record_of(a={"type": "array", "items": ["null", line]}))

    wide = lines(*({"name": f"d{i}", "type": "string", "default": "x"} for i in range(100)))
    value = zigzag(20_000) + b"\x02\x01" * 20_000 + zigzag(0)
    assert StrictAvro(lines(), lines()).check(value, 0) == 60_000
    with pytest.raises(Unfit, match="would become 2060000 values or more"):
        StrictAvro(lines(), wide).check(value, 0)


def test_what_a_reader_adds_to_the_items_of_a_field_that_it_renames_is_counted() -> None:
    from bmq_spark.values.avro_records import parse_avro
    from bmq_spark.values.avro_strict import StrictAvro
    from bmq_spark.values.decoded import Unfit

    def orders(field: dict[str, Any], *more: Any) -> Any:
        line = {"type": "record", "name": "Line", "fields": [{"name": "b", "type": "boolean"}, *more]}
        order = {"type": "record", "name": "Order", "fields": [field | {"type": {"type": "map", "values": line}}]}
        return parse_avro(record_of(a={"type": "array", "items": order}))

    added = [{"name": f"d{i}", "type": "string", "default": "x"} for i in range(100)]
    writer, renamed = orders({"name": "lines"}), orders({"name": "rows", "aliases": ["old", "lines"]}, *added)
    value = zigzag(1) + zigzag(20_000) + b"\x02k\x01" * 20_000 + zigzag(0) + zigzag(0)
    # another field: nothing comes of the writer's
    assert StrictAvro(writer, orders({"name": "rows"}, *added)).check(value, 0) == 40_002
    with pytest.raises(Unfit, match="would become 2040002 values or more"):
        StrictAvro(writer, renamed).check(value, 0)


def test_an_alias_that_is_the_name_of_another_field_adds_nothing_to_that_one() -> None:
    from bmq_spark.values.avro_records import parse_avro
    from bmq_spark.values.avro_strict import StrictAvro

    def listed(name: str, width: int, **more: Any) -> dict[str, Any]:
        fields = [{"name": f"f{i}", "type": "int", "default": 0} for i in range(width)]
        return {
            "name": name,
            "type": {"type": "array", "items": {"type": "record", "name": f"Of{width}", "fields": fields}},
            **more,
        }

    def records(*fields: Any) -> Any:
        return parse_avro({"type": "record", "name": "R", "fields": list(fields)})

    value = zigzag(2) + b"\x00\x00" + zigzag(0)
    assert (
        StrictAvro(records(listed("a", 1)), records(listed("b", 9, aliases=["a"]), listed("a", 3))).check(value, 0) == 8
    )
    assert (
        StrictAvro(
            records(listed("a", 1)), records(listed("b", 9, aliases=["a"]), listed("c", 3, aliases=["a"]))
        ).check(value, 0)
        == 20
    )


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
LAST_MS, LAST_DAY = 253_402_300_799_999, 2_932_896


@pytest.mark.parametrize(
    ("kind", "good", "value", "path"),
    [
        (DATE, zigzag(LAST_DAY), zigzag(LAST_DAY + 1), "$.a"),
        (DATE, zigzag(-719_162), zigzag(-719_163), "$.a"),
        (["null", MILLIS], zigzag(1) + zigzag(LAST_MS), zigzag(1) + zigzag(LAST_MS + 1), "$.a"),
        (LOCAL, zigzag(LAST_MS * 1000), zigzag(2**62), "$.a"),
        (
            {"type": "array", "items": MILLIS},
            zigzag(1) + zigzag(0) + zigzag(0),
            zigzag(1) + zigzag(2**52) + zigzag(0),
            "$.a[...]",
        ),
        ({"type": "map", "values": DATE}, zigzag(0), zigzag(1) + b"\x02k" + zigzag(2**31 - 1) + zigzag(0), "$.a[...]"),
        (record_of(b=DATE) | {"name": "In"}, zigzag(0), zigzag(2**31 - 1), "$.a.b"),
    ],
)
def test_a_time_that_no_calendar_has_does_not_fit(kind: Any, good: bytes, value: bytes, path: str) -> None:
    values, reasons = decode(by_schema(record_of(a=kind)), [good, value, good])
    assert values[0] == values[2] is not None
    assert reasons[0] is reasons[2] is None
    assert "beyond the years 1 to 9999" in str(reasons[1]) and f"`{path}`" in str(reasons[1])
