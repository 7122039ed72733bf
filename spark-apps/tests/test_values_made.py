"""A few bytes do not become more values than memory holds, in any format: wide items of lists and maps are counted
before they are made.
"""

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from test_values_protobuf import message_class
from value_cases import decode

from bmq_spark.values import Decoder, SchemaFile, decoder
from bmq_spark.values.decoded import SLICE_BYTES
from bmq_spark.values.made_values import made_by, may_be_many, widest_item, width
from bmq_spark.values.protobuf_files import compiled

WIDE = 100
LINE = pa.struct([(f"f{number}", pa.int32()) for number in range(WIDE)])
TOO_MANY = 12_000
SAID = f"its items would become {TOO_MANY * (WIDE + 1)} values or more: 1000000 at most from so many bytes"
PROTO = f"""syntax = "proto3";
message Line {{ {" ".join(f"optional int32 f{number} = {number + 1};" for number in range(WIDE))} }}
message Order {{ repeated Line lines = 1; map<string, Line> pairs = 2; Inner inner = 3; string text = 4; }}
message Inner {{ repeated Line lines = 1; Inner again = 2; Wide wide = 3; }}
message Wide {{ repeated Wide children = 1; {" ".join(f"int32 f{number} = {number + 2};" for number in range(WIDE))} }}
"""


def by_ddl(ddl: str) -> Decoder:
    return decoder("json", schema=SchemaFile(name="x.ddl", content=ddl.encode()))


def by_columns(columns: pa.DataType) -> Decoder:
    return decoder("json", columns=columns)


@pytest.fixture(scope="module")
def orders() -> Decoder:
    descriptors = compiled({"orders.proto": PROTO.encode()}, "orders.proto", "orders")
    return decoder(
        "protobuf", schema=SchemaFile(name="orders.desc", content=descriptors.SerializeToString()), message="Order"
    )


@pytest.fixture(scope="module")
def order_class() -> Any:
    return message_class(compiled({"orders.proto": PROTO.encode()}, "orders.proto", "orders"), "Order")


LINE_DDL = f"struct<{', '.join(f'{field.name}: int' for field in LINE)}>"


@pytest.mark.parametrize(
    "made",
    [by_ddl(f"lines array<{LINE_DDL}>"), by_columns(pa.struct([("lines", pa.list_(LINE))]))],
    ids=["by a schema", "inferred"],
)
def test_objects_of_two_bytes_in_a_json_list_are_counted_by_their_columns(made: Decoder) -> None:
    def lines(count: int) -> bytes:
        return b'{"lines":[%s]}' % b",".join([b"{}"] * count)

    values, reasons = decode(made, [lines(2), lines(TOO_MANY), None, lines(9_000), lines(9_000), b"{}"])
    assert [None if row is None else row["lines"] and len(row["lines"]) for row in values] == [
        2,
        None,
        None,
        9_000,
        9_000,
        None,
    ]
    assert [reason and reason.partition(": ")[2] for reason in reasons] == [None, SAID, None, None, None, None]


def test_objects_in_a_json_map_or_within_others_are_counted() -> None:
    made = by_ddl(f"pairs map<string, {LINE_DDL}>, orders array<struct<lines: array<{LINE_DDL}>>>")
    pairs = b'{"pairs":{%s}}' % b",".join(b'"%d":{}' % number for number in range(TOO_MANY))
    nested = b'{"orders":[%s]}' % b",".join([b'{"lines":[%s]}' % b",".join([b"{}"] * (TOO_MANY // 4))] * 4)
    values, reasons = decode(made, [pairs, nested])
    assert values == [None, None] and all("values or more: 1000000 at most" in str(reason) for reason in reasons)


def test_a_large_record_that_says_what_it_becomes_is_taken() -> None:
    line = json.dumps({field.name: 1_000_000 + number for number, field in enumerate(LINE)}).encode()
    made = by_ddl(f"lines array<{LINE_DDL}>")
    values, reasons = decode(made, [b'{"lines":[%s]}' % b",".join([line] * TOO_MANY)])
    assert reasons == [None] and len(values[0]["lines"]) == TOO_MANY


def test_messages_of_two_bytes_are_counted_by_their_columns(orders: Decoder, order_class: Any) -> None:
    line, inner = b"\x0a\x00", b"\x1a"

    def within(content: bytes) -> bytes:
        return inner + _varint(len(content)) + content

    pairs = order_class(pairs={str(number): {} for number in range(TOO_MANY)}).SerializeToString()
    cases = {
        line * 2: None,
        line * TOO_MANY: SAID,
        within(line * TOO_MANY): SAID,
        pairs: f"its items would become {TOO_MANY * (WIDE + 2)} values or more: 1000000 at most from so many bytes",
        line * 9_000: None,
        line * TOO_MANY + b"\x0a\x05": "not a Protobuf message Order: it is cut off, or its parts are",
    }
    values, reasons = decode(orders, list(cases))
    assert reasons == list(cases.values())
    assert [row and len(row["lines"]) for row in values] == [2, None, None, None, 9_000, None]
    good = order_class(
        lines=[{f"f{number}": 1_000_000 for number in range(WIDE)}] * TOO_MANY, text="x"
    ).SerializeToString()
    values, reasons = decode(orders, [good])
    assert reasons == [None] and len(values[0]["lines"]) == TOO_MANY


def test_messages_within_themselves_are_counted_by_the_room_that_the_parser_takes(orders: Decoder) -> None:
    children = b"\x0a\x00" * TOO_MANY
    wide = b"\x1a" + _varint(len(children)) + children
    (value,), (reason,) = decode(orders, [b"\x1a" + _varint(len(wide)) + wide])
    assert value is None and "values or more: 1000000 at most" in str(reason)


def test_extensions_that_the_schema_declares_are_counted_though_they_are_no_columns() -> None:
    schema = f"""syntax = "proto2";
    message Line {{ {" ".join(f"optional int32 f{number} = {number + 1};" for number in range(WIDE))} }}
    message Part {{ repeated Line lines = 1; }}
    message Order {{ optional int32 id = 1; optional Inner inner = 2; extensions 100 to 200; }}
    message Inner {{ optional int32 id = 1; extensions 100 to 200; }}
    extend Order {{ repeated Line lines = 100; optional Part part = 101; }}
    extend Inner {{ repeated Line lines_within = 100; }}"""
    made = decoder("protobuf", schema=SchemaFile(name="x.proto", content=schema.encode()), message="Order")
    lines, part = b"\xa2\x06\x00" * TOO_MANY, b"\x0a\x00" * TOO_MANY
    cases = [
        lines,
        b"\xaa\x06" + _varint(len(part)) + part,
        b"\x12" + _varint(len(lines)) + lines,
        b"\xa2\x06\x00" * 9_000,
    ]
    values, reasons = decode(made, [b"\x08\x01" + case for case in cases])
    assert all("values or more: 1000000 at most" in str(reason) for reason in reasons[:3])
    assert (values[3], reasons[3]) == ({"id": 1, "inner": None}, None)


def test_what_a_message_set_holds_is_counted() -> None:
    schema = f"""syntax = "proto2";
    message Line {{ {" ".join(f"optional int32 f{number} = {number + 1};" for number in range(WIDE))} }}
    message Part {{ repeated Line lines = 1; extend Set {{ optional Part part = 100; }} }}
    message Other {{ optional bytes text = 1; extend Set {{ optional Other other = 101; }} }}
    message Set {{ option message_set_wire_format = true; extensions 4 to max; }}
    message Order {{ optional int32 id = 1; optional Set set = 2; }}"""
    made = decoder("protobuf", schema=SchemaFile(name="x.proto", content=schema.encode()), message="Order")

    def order(number: int, content: bytes) -> bytes:
        item = b"\x0b\x10" + bytes([number]) + b"\x1a" + _varint(len(content)) + content + b"\x0c"
        return b"\x08\x01\x12" + _varint(len(item)) + item

    lines = b"\x0a\x00" * TOO_MANY
    other = b"\x0a" + _varint(len(lines)) + lines
    values, reasons = decode(made, [order(100, lines), order(101, other), order(100, b"\x0a\x00" * 9_000)])
    assert "values or more: 1000000 at most" in str(reasons[0])
    assert reasons[1:] == [None, None] and values[1:] == [{"id": 1, "set": True}] * 2


def test_what_an_any_within_json_text_holds_is_counted() -> None:
    schema = f"""syntax = "proto3"; import "google/protobuf/any.proto";
    message Line {{ {" ".join(f"int32 f{number} = {number + 1};" for number in range(WIDE))} }}
    message Part {{ repeated Line lines = 1; }}
    message Order {{ Node node = 1; google.protobuf.Any extra = 2; }}
    message Node {{ Node next = 1; google.protobuf.Any extra = 2; map<string, google.protobuf.Any> pairs = 3; }}"""
    made = decoder("protobuf", schema=SchemaFile(name="x.proto", content=schema.encode()), message="Order")

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _varint(len(content)) + content

    def held(name: bytes, content: bytes) -> bytes:
        return field(1, b"type.googleapis.com/" + name) + field(2, content)

    def within(content: bytes) -> bytes:
        return field(1, field(1, content))

    part = held(b"Part", b"\x0a\x00" * TOO_MANY)
    cases = [
        within(field(2, part)),
        within(field(2, held(b"google.protobuf.Any", part))),
        within(field(3, field(1, b"k") + field(2, part))),
        within(field(2, held(b"Node", field(2, part)))),
        within(field(2, held(b"Part", b"\x0a\x00" * 9_000))),
        field(2, part),
    ]
    values, reasons = decode(made, cases)
    assert all("values or more: 1000000 at most" in str(reason) for reason in reasons[:4]), reasons
    assert reasons[4:] == [None, None], "nor is what does not become text parsed"
    assert len(json.loads(values[4]["node"]["next"])["extra"]["lines"]) == 9_000


MEASURED = """
import resource, sys
import pyarrow as pa
from bmq_spark.values import decoder, observe
line = pa.struct([(f"f{number}", pa.int64()) for number in range(990)])
columns = pa.struct([("lines", pa.list_(line))])
value = b'{"lines":[%s]}' % b",".join([b"{}"] * 200_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
observe(pa.array([value], pa.binary()), pa.array(["0"]))
decoded = decoder("json", columns=columns).decode(pa.array([value], pa.binary()))
assert decoded.values.null_count == 1, decoded
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_record_that_would_become_too_much_is_refused_without_the_room_for_it() -> None:
    """A hundred times its 600 KB, and not the 1.6 GB of all fields of its objects."""
    said = subprocess.run(
        [sys.executable, "-c", MEASURED], check=True, stdout=subprocess.PIPE, text=True, timeout=120
    ).stdout
    assert int(said) < 100_000


def test_many_records_of_many_columns_become_columns_a_few_at_a_time() -> None:
    made = by_columns(pa.struct([(f"f{number}", pa.int64()) for number in range(990)]))
    objects, unfit = made.parse([b"{}"] * 8192)  # type: ignore[attr-defined]
    assert len(objects) == 1_010 and not unfit
    values, reasons = decode(made, [b'{"f1":1}'] * 3_000)
    assert reasons == [None] * 3_000 and {row["f1"] for row in values} == {1}


def test_what_may_be_many_is_told_from_the_type_and_the_size() -> None:
    deep = pa.struct([("a", pa.list_(pa.struct([("m", pa.map_(pa.string(), LINE)), ("x", LINE)])))])
    assert (width(LINE), width(pa.list_(LINE)), widest_item(LINE), widest_item(deep)) == (WIDE + 1, 1, 0, WIDE + 3)
    assert made_by(pa.struct([("a", pa.list_(pa.int32()))])) == (2, None)
    assert (
        not may_be_many(16, SLICE_BYTES * 100)
        and may_be_many(17, 10 << 20)
        and not may_be_many(1_000, 2_000)
        and may_be_many(1_000, 2_002)
    )


def _varint(number: int) -> bytes:
    octets = b""
    while number > 0x7F:
        octets, number = octets + bytes([number & 0x7F | 0x80]), number >> 7
    return octets + bytes([number])
