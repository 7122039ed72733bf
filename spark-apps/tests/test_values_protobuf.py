import datetime
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Buckets
from google.protobuf import descriptor_pool
from google.protobuf.any_pb2 import Any as Any_
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message_factory import GetMessageClass
from hurried import hurried
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode
from value_registry import RegistryServer, met_anew

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import Decoder, SchemaFile, decoder, protobuf_records, read_schema
from bmq_spark.values import registry as registries
from bmq_spark.values.ddl import write_ddl
from bmq_spark.values.decoded import Unfit
from bmq_spark.values.protobuf_files import compiled
from bmq_spark.values.protobuf_records import message_indexes
from bmq_spark.values.protobuf_shipped import SHIPPED
from bmq_spark.values.registered import RegisteredDecoder

COMMON = """syntax = "proto3";
package shop.common;
message Street { string name = 1; }
enum Colour { UNKNOWN = 0; RED = 1; }
"""
ORDERS = """syntax = "proto3";
package shop;
/* import "not/there.proto"; */
import "shop/common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
message Order {
  message Line { int64 count = 1; repeated string notes = 2; }
  bool flag = 1; int32 number = 2; sint64 big = 3; uint32 small = 4; fixed64 huge = 5; float single = 6; double double = 7;
  string text = 8; bytes octets = 9; optional int32 maybe = 10; common.Colour colour = 11;
  repeated int32 numbers = 12; repeated Line lines = 13; map<string, Line> pairs = 14; map<int32, common.Colour> colours = 15;
  common.Street street = 16;
  oneof either { string name = 17; int64 id = 18; Line line = 19; }
  google.protobuf.Timestamp at = 20; google.protobuf.Duration took = 21; google.protobuf.StringValue wrapped = 22;
  google.protobuf.Struct free = 23; Order parent = 24; google.protobuf.Empty mark = 25; repeated google.protobuf.Timestamp times = 26;
}
message Refund { string from = 1; }
"""
COLUMNS = (
    "flag boolean, number int, big bigint, small bigint, huge decimal(20,0), single float, double double, text "
    "string, octets binary, maybe int, colour string, numbers array<int>, lines array<struct<count: bigint, notes: "
    "array<string>>>, pairs map<string, struct<count: bigint, notes: array<string>>>, colours map<int, string>, "
    "street struct<name: string>, name string, id bigint, line struct<count: bigint, notes: array<string>>, at "
    "timestamp, took bigint, wrapped string, free string, parent string, mark boolean, times array<timestamp>"
)
NOTHING_SET = {
    "flag": False, "number": 0, "big": 0, "small": 0, "huge": Decimal(0), "single": 0.0, "double": 0.0, "text": "", "octets": b"", "maybe": None,
    "colour": "UNKNOWN", "numbers": [], "lines": [], "pairs": [], "colours": [], "street": None, "name": None, "id": None, "line": None, "at": None,
    "took": None, "wrapped": None, "free": None, "parent": None, "mark": None, "times": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("protos")
    (root / "shop").mkdir()
    (root / "shop/common.proto").write_text(COMMON)
    (root / "shop/orders.proto").write_text(ORDERS)
    return root


@pytest.fixture(scope="module")
def orders(folder: Path) -> Decoder:
    return decoder("protobuf", schema=read_schema(str(folder / "shop/orders.proto")), message="shop.Order")


@pytest.fixture(scope="module")
def order_class(folder: Path) -> Any:
    return message_class(
        compiled({"shop/common.proto": COMMON.encode(), "orders.proto": ORDERS.encode()}, "orders.proto", "orders"),
        "shop.Order",
    )


def message_class(descriptors: FileDescriptorSet, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def test_every_type_of_a_schema_is_read(orders: Decoder, order_class: Any) -> None:
    assert write_ddl(orders.arrow_type) == COLUMNS
    told = {
        "flag": True, "number": -5, "big": str(-(2**63)), "small": 2**32 - 1, "huge": str(2**64 - 1), "single": 1.5, "double": 0.1, "text": "ä",
        "octets": "AP8=", "maybe": 0, "colour": "RED", "numbers": [1, 2], "lines": [{"count": "1", "notes": ["n"]}, {}],
        "pairs": {"a": {"count": "2"}}, "colours": {"1": "RED"}, "street": {"name": "s"}, "line": {"count": "3"},
        "at": "1969-12-31T23:59:59.999999Z", "took": "-1.5s", "wrapped": "",
        "free": {"x": [1.0, None]}, "parent": {"parent": {"number": 1}}, "mark": {}, "times": ["2026-11-22T00:00:00Z"],
    }  # fmt: skip
    message = Parse(json.dumps(told), order_class())
    values, reasons = decode(orders, [message.SerializeToString(), None, b""])
    assert reasons == [None] * 3
    assert values[0] == NOTHING_SET | {
        "flag": True, "number": -5, "big": -(2**63), "small": 2**32 - 1, "huge": Decimal(2**64 - 1), "single": 1.5, "double": 0.1, "text": "ä",
        "octets": b"\x00\xff", "maybe": 0, "colour": "RED", "numbers": [1, 2], "lines": [{"count": 1, "notes": ["n"]}, {"count": 0, "notes": []}],
        "pairs": [("a", {"count": 2, "notes": []})], "colours": [(1, "RED")], "street": {"name": "s"}, "line": {"count": 3, "notes": []},
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC), "took": -1_500_000, "wrapped": "",
        "free": '{"x": [1.0, null]}',
        "parent": '{"parent": {"number": 1}}', "mark": True, "times": [datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)],
    }  # fmt: skip
    assert values[1:] == [None, NOTHING_SET]


def fitting(schema: str, *values: bytes) -> tuple[list[Any], list[str | None]]:
    return decode(decoder("protobuf", schema=SchemaFile(name="x.proto", content=schema.encode())), list(values))


def test_a_number_that_an_enum_does_not_have_does_not_fit(orders: Decoder) -> None:
    values, reasons = decode(orders, [b"\x58\x01", b"\x58\x07", b"\x58\x01"])
    assert [value and value["colour"] for value in values] == ["RED", None, "RED"]
    assert reasons == [None, "field colour: shop.common.Colour has no value 7", None]


CLOSED = (
    'syntax = "proto2"; message M { enum E { A = 0; B = 1; } optional E e = 1; repeated E r = 2; required '
    "int32 q = 4; }"
)


def test_required_fields_and_closed_enums_are_held_to() -> None:
    values, reasons = fitting(CLOSED, b"\x08\x01\x20\x01", b"\x08\x01", b"\x08\x05\x20\x01", b"\x10\x07\x20\x01")
    assert values == [{"e": "B", "r": [], "q": 1}, None, None, None]
    assert reasons[1] == "not a Protobuf message M: no q, which is required"
    assert reasons[2] == "not a Protobuf message M: field e (1) is a value that its enum does not have"
    assert reasons[3] == "not a Protobuf message M: field r (2) is a value that its enum does not have"


LINES = (
    'syntax = "proto2"; message M { message L { required string sku = 1; optional int32 n = 2; } optional int32 id = 3; '
    "map<string, string> labels = 1; repeated L lines = 2; map<int32, L> by = 4; optional L one = 5; }"
)


def test_required_fields_are_looked_for_below_lists_and_maps_beside_maps_of_texts() -> None:
    """Protobuf's own search for them ended the process there, and with it a job for good."""
    labels, lacks = b"\x0a\x06\x0a\x01x\x12\x01a", b"\x02\x10\x05"
    values, reasons = fitting(
        LINES,
        b"\x18\x01" + labels + b"\x12\x03\x0a\x01s",
        b"\x18\x02" + labels + b"\x12\x03\x0a\x01s" + b"\x12" + lacks,
        labels + b"\x22\x06\x08\x07\x12" + lacks,
        labels + b"\x2a" + lacks + b"\x12" + lacks,
        (b"\x12" + lacks) * 1_000,
    )
    assert values[0]["lines"] == [{"sku": "s", "n": None}]
    assert values[1:] == [None] * 4
    assert reasons[1:] == [
        "not a Protobuf message M: no lines[1].sku, which is required",
        "not a Protobuf message M: no by[7].sku, which is required",
        "not a Protobuf message M: no lines[0].sku, one.sku, which is required",
        "not a Protobuf message M: no lines[0].sku, lines[1].sku, lines[2].sku, which is required",
    ]


def test_messages_within_themselves_that_are_no_json_text_are_dead_letters() -> None:
    schema = """syntax = "proto3"; import "google/protobuf/any.proto";
    message M { int32 id = 1; Node n = 2;
      message Node { google.protobuf.Any data = 1; Node next = 2; string DESCRIPTOR = 3; } }"""
    held = b""
    for _ in range(600):
        held = Any_(type_url="type.googleapis.com/google.protobuf.Any", value=held).SerializeToString()
    made = message_class(compiled({"x.proto": schema.encode()}, "x.proto", "x"), "M")
    deep, plain = made(id=1), made(id=2)
    deep.n.next.data.MergeFromString(held)
    plain.n.next.SetInParent()
    values, reasons = fitting(schema, deep.SerializeToString(), b"\x08\x03", plain.SerializeToString())
    assert values == [None, {"id": 3, "n": None}, None]
    assert all("a M.Node within itself" in str(reason) for reason in (reasons[0], reasons[2]))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(-2, 3), max_size=7).map(lambda numbers: [0, *numbers, 0]), st.randoms())
def test_of_names_for_one_number_an_enum_has_the_one_that_protobuf_says(numbers: list[int], random: Any) -> None:
    names = [f"N{at}" for at in range(len(numbers))]
    random.shuffle(names)
    values = " ".join(f"{name} = {number};" for name, number in zip(names, numbers, strict=True))
    schema = (
        f'syntax = "proto2"; enum E {{ option allow_alias = true; {values} }} '
        "message M { optional E e = 1; repeated E r = 2; map<int32, E> m = 3; optional M text = 4; }"
    )
    made = message_class(compiled({"x.proto": schema.encode()}, "x.proto", "x"), "M")
    for number in set(numbers):
        message = made(e=number, r=[number], m={1: number}, text={"e": number})
        (row,), reasons = fitting(schema, message.SerializeToString())
        told = MessageToDict(message)
        assert reasons == [None]
        assert row == {"e": told["e"], "r": told["r"], "m": [(1, told["m"]["1"])], "text": json.dumps(told["text"])}


NESTED = (
    'syntax = "proto3"; message N { int32 x = 1; } message M { int32 i = 1; N n = 2; repeated N r = 3; '
    "map<string, N> m = 4; }"
)
WRONG = b"\x0a\x01x"
"""A text where N has a number."""


@pytest.mark.parametrize(
    "value",
    [b"\x0a\x03abc", b"\x12\x03" + WRONG, b"\x1a\x02\x08\x01\x1a\x03" + WRONG, b"\x22\x08\x0a\x01k\x12\x03" + WRONG],
)
def test_bytes_of_another_message_do_not_fit_at_any_depth(value: bytes) -> None:
    made = decoder("protobuf", schema=SchemaFile(name="x.proto", content=NESTED.encode()), message="M")
    values, reasons = decode(made, [b"\x08\x01", value])
    assert values[0]["i"] == 1 and values[1] is None
    assert reasons[1] is not None and reasons[1].endswith("(1) is of another type")


def test_what_an_any_within_json_text_holds_is_told_by_the_schema_or_is_protobuf_s_own() -> None:
    schema = """syntax = "proto3"; import "google/protobuf/any.proto";
    message Node { message Leaf { int32 n = 1; } Node next = 1; google.protobuf.Any extra = 2; }"""

    def node(name: bytes, content: bytes) -> bytes:
        url = b"type.googleapis.com/" + name
        held = b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(content)]) + content
        within = b"\x12" + bytes([len(held)]) + held
        return b"\x0a" + bytes([len(within)]) + within

    values, reasons = fitting(schema, *(node(name, b"\x08\x05") for name in (b"Node.Leaf", b"Node.Other")))
    assert [value and json.loads(value["next"]) for value in values] == [
        {"extra": {"@type": "type.googleapis.com/Node.Leaf", "n": 5}},
        None,
    ]
    assert reasons[0] is None and "type_url" in str(reasons[1])


def test_bytes_of_which_a_message_knows_nothing_do_not_fit_and_fields_of_newer_writers_do() -> None:
    values, reasons = fitting(
        'syntax = "proto3"; message M { int32 i = 1; }', b"", b"\x08\x01\x7a\x03abc", b"\x7a\x03abc"
    )
    assert values == [{"i": 0}, {"i": 1}, None]
    assert reasons == [None, None, "not a Protobuf message M: none of its fields, but field 15"]


METHODS = (
    "HasField",
    "ListFields",
    "IsInitialized",
    "FindInitializationErrors",
    "FromString",
    "SerializeToString",
    "DESCRIPTOR",
    "Extensions",
    "items",
)
CALLED_AS_METHODS = (
    'syntax = "proto2"; message N { required int32 HasField = 1; optional bool DESCRIPTOR = 2; repeated string '
    "ListFields = 3; } message M { "
    + " ".join(f"optional int32 {name} = {number};" for number, name in enumerate(METHODS, 1))
    + " required N values = 14; repeated N keys = 15; }"
)


def test_types_within_a_message_may_be_called_as_its_methods_are() -> None:
    names = ("HasField", "ListFields", "IsInitialized", "FindInitializationErrors", "FromString")
    inner = " ".join(
        f"message {name} {{ required int32 x = 1; }} optional {name} f{number} = {number};"
        for number, name in enumerate(names, 1)
    )
    values, reasons = fitting(
        f'syntax = "proto2"; message M {{ {inner} enum E {{ DESCRIPTOR = 0; }} optional E e = 15; }}',
        b"\x0a\x02\x08\x07",
        b"\x0a\x00",
    )
    assert values == [dict.fromkeys(f"f{number}" for number in range(2, 6)) | {"f1": {"x": 7}, "e": None}, None]
    assert reasons == [None, "not a Protobuf message M: no f1.x, which is required"]


def test_fields_may_be_called_as_the_methods_of_a_message_are() -> None:
    made = decoder("protobuf", schema=SchemaFile(name="x.proto", content=CALLED_AS_METHODS.encode()), message="M")
    whole = (
        b"".join(bytes((number << 3, number)) for number in range(1, len(METHODS) + 1))
        + b"\x72\x02\x08\x07"
        + b"\x7a\x05\x08\x08\x1a\x01x" * 2
    )
    values, reasons = decode(made, [whole, b"\x72\x02\x10\x01", b"\x72\x02\x08\x07", b"\x08\x01"])
    nothing, empty = dict.fromkeys(METHODS), {"HasField": 7, "DESCRIPTOR": None, "ListFields": []}
    item = {"HasField": 8, "DESCRIPTOR": None, "ListFields": ["x"]}
    assert values == [
        {name: number for number, name in enumerate(METHODS, 1)} | {"values": empty, "keys": [item, item]},
        None,
        nothing | {"values": empty, "keys": []},
        None,
    ]
    assert reasons[1:] == [
        "not a Protobuf message M: no values.HasField, which is required",
        None,
        "not a Protobuf message M: no values, which is required",
    ]


@pytest.mark.parametrize(
    "written",
    [
        "import 'other.proto';", 'option java_package = "http://x"; import "other.proto";', 'import /* the */ "other.proto" // one\n;',
        "package p; import public\n'other.proto';", 'import"other.proto";', "import 'other' '.proto';",
        """option java_package = 'a"b'; import 'other.proto';""",
    ],
)  # fmt: skip
def test_what_is_imported_is_found_however_it_is_written(tmp_path: Path, written: str) -> None:
    (tmp_path / "other.proto").write_text('syntax = "proto3"; message Other { int32 x = 1; }')
    (tmp_path / "orders.proto").write_text(
        f'syntax = "proto3"; /* import "no.proto"; */ {written} // import "no.proto";\nmessage A {{ .Other a = 1; }}'
    )
    assert (
        write_ddl(decoder("protobuf", schema=read_schema(str(tmp_path / "orders.proto"))).arrow_type)
        == "a struct<x: int>"
    )


def test_what_only_looks_like_an_import_is_none(tmp_path: Path) -> None:
    text = """syntax = "proto3"; option java_package = "; import 'no.proto';"; message A { int32 import = 1; }"""
    (tmp_path / "orders.proto").write_text(text)
    assert write_ddl(decoder("protobuf", schema=read_schema(str(tmp_path / "orders.proto"))).arrow_type) == "import int"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\x08", "not a Protobuf message shop.Order"),
        (b"\x42\x02\xff\xff", "not a Protobuf message shop.Order"),
        (b"\xa2\x01\x0a" + b"\x08" + b"\xff" * 8 + b"\x7f", "int|out of|long|large"),
        (b'{"flag": true}', "not a Protobuf message"),
    ],
)
def test_a_record_that_does_not_fit_says_why_and_spoils_no_other(orders: Decoder, value: bytes, why: str) -> None:
    values, reasons = decode(orders, [b"\x10\x01", value, b"\x10\x02"])
    assert [row and row["number"] for row in values] == [1, None, 2]
    assert reasons[0] is reasons[2] is None
    with pytest.raises(ValueError, match=why):
        raise ValueError(reasons[1])


def test_messages_nested_without_end_are_a_reason_not_the_end_of_the_process(orders: Decoder) -> None:
    value = b""
    for _ in range(3000):
        size = len(value)
        value = b"\xc2\x01" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + value
    values, reasons = decode(orders, [value, b""])
    assert values[0] is None and values[1] is not None
    assert "not a Protobuf message" in (reasons[0] or "")


def test_a_descriptor_set_does_as_well(folder: Path, orders: Decoder) -> None:
    written = compiled(
        {"shop/common.proto": COMMON.encode(), "o.proto": ORDERS.encode()}, "o.proto", "x"
    ).SerializeToString()
    made = decoder("protobuf", schema=SchemaFile(name="orders.desc", content=written), message="Order")
    assert made.arrow_type == orders.arrow_type


@pytest.mark.parametrize(
    ("text", "message", "says"),
    [
        (
            'syntax = "proto3";\nmessage A { strin a = 1; }',
            None,
            r'orders.proto: protoc says orders.proto:2:13: "strin" is not defined',
        ),
        ('syntax = "proto3";\nmessage A { string a }', None, r"protoc says orders.proto:2:22"),
        (
            'syntax = "proto3";\nimport "nowhere.proto";',
            None,
            "imports nowhere.proto, which is neither beside it nor in the folders above",
        ),
        ('syntax = "proto3";\nimport "../../etc/passwd";', None, r"write paths below a folder, without '\.\.'"),
        (
            'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }',
            None,
            r"say which by its name \(it has A, B\)",
        ),
        ('syntax = "proto3"; message A { int32 a = 1; }', "C", "message C is not in it: it has A"),
        ('syntax = "proto3"; message A { }', None, "message A has no fields"),
        (
            'syntax = "proto3"; message A { int32 id = 1; int32 ID = 2; }',
            None,
            "fields id and ID differ by case alone: rename one",
        ),
    ],
)
def test_a_broken_schema_is_named_with_its_place(tmp_path: Path, text: str, message: str | None, says: str) -> None:
    (tmp_path / "orders.proto").write_text(text)
    with pytest.raises(ConfigurationError, match=says) as raised:
        decoder("protobuf", schema=read_schema(str(tmp_path / "orders.proto")), message=message)
    assert "\n" not in str(raised.value)


IMPORTING = """syntax = "proto3"; import "shop/a.proto"; import public 'shop/b.proto';
option java_package = "not/*"; import
  "shop/c.proto" ; // import "not/there.proto";
option go_package = "*/there; import \\"not/there.proto\\";";
message Order { shop.A a = 1; shop.B b = 2; shop.C c = 3; }
"""


@pytest.fixture
def importing(tmp_path: Path) -> Path:
    """A file three folders below what it imports."""
    for name in "abc":
        _write(
            tmp_path / "shop" / f"{name}.proto",
            f'syntax = "proto3"; package shop; message {name.upper()} {{ int32 n = 1; }}',
        )
    return _write(tmp_path / "x" / "y" / "z" / "-orders.proto", IMPORTING)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("folder", "name"), [("x/y/z", ""), ("x/y/z", "./"), ("x/y", "z/"), ("x/y/z", "../z/"), ("", "x/y/z/")]
)
def test_what_a_file_imports_is_found_above_it_wherever_the_job_is_run(
    importing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path / folder)
    before = sorted(tmp_path.rglob("*"))
    made = decoder("protobuf", schema=read_schema(f"{name}-orders.proto"))
    assert made.arrow_type.names == ["a", "b", "c"]
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_file_in_a_bucket_imports_is_found_by_the_same_options(
    importing: Path, tmp_path: Path, minio: Buckets
) -> None:
    location = minio.location("proto-schemas")
    for path in tmp_path.rglob("*.proto"):
        location.create(str(path.relative_to(tmp_path)), path.read_bytes())
    uri, _, options = location.uri.partition("?")
    made = decoder("protobuf", schema=read_schema(f"s3a{uri[2:].rstrip('/')}/x/y/z/-orders.proto?{options}"))
    assert made.arrow_type.names == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "column"),
    [("shop.eu.Order.Line", "n"), ("Order.Line", "n"), ("Line", "n"), ("Order", "line"), ("shop.eu.Order", "line")],
)
def test_a_message_is_named_with_its_package_or_without(name: str, column: str) -> None:
    text = (
        'syntax = "proto3"; package shop.eu; message Order { Line line = 1; message Line { int32 n = 1; } } '
        "message Other { Order order = 1; }"
    )
    descriptors = compiled({"x.proto": text.encode()}, "x.proto", "x")
    made = decoder("protobuf", schema=SchemaFile(name="x.desc", content=descriptors.SerializeToString()), message=name)
    assert made.arrow_type.names == [column]


def test_a_name_without_package_is_the_outermost_message_of_it() -> None:
    text = (
        'syntax = "proto3"; package shop; message Other { message Order { int32 inner = 1; } Order o = 1; } '
        "message Order { int32 outer = 1; }"
    )
    descriptors = compiled({"x.proto": text.encode()}, "x.proto", "x")
    made = decoder(
        "protobuf", schema=SchemaFile(name="x.desc", content=descriptors.SerializeToString()), message="Order"
    )
    assert made.arrow_type.names == ["outer"]


def test_what_is_no_descriptor_set_is_refused() -> None:
    for content in (b"\xff\xff", b""):
        with pytest.raises(ConfigurationError, match=r"x\.desc: .*descriptor set"):
            decoder("protobuf", schema=SchemaFile(name="x.desc", content=content))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registries, "PATIENCE", hurried())
    with met_anew() as registry:
        yield registry


def test_the_wire_format_names_schema_and_message(server: RegistryServer, order_class: Any) -> None:
    server.register("common", COMMON, kind="PROTOBUF")
    references = [{"name": "shop/common.proto", "subject": "common", "version": 1}]
    number = server.register("orders-value", ORDERS, kind="PROTOBUF", references=references)
    avro = server.register("other", '"string"')
    made = decoder("protobuf", registry=server.url, subject="orders-value", message="Order")
    assert write_ddl(made.arrow_type) == COLUMNS
    message = order_class(number=7).SerializeToString()
    head = b"\x00" + number.to_bytes(4, "big")
    values, reasons = decode(
        made,
        [head + b"\x00" + message, head + b"\x02\x00" + message, head + b"\x02\x02" + message, head + b"\x04\x00\x00", head,
         b"\x00\x00\x00\x00\x63\x00", head + b"\xff\xff", message,
               b"\x00" + avro.to_bytes(4, "big") + b"\x00"],
    )  # fmt: skip
    assert [row and row["number"] for row in values] == [7, 7, *[None] * 7]
    expected = [
        "holds shop.Refund",
        "holds shop.Order.Line",
        "cut off",
        "Schema 99 not found",
        "cut off",
        "wire format",
        "is AVRO in the registry",
    ]
    for reason, why in zip(reasons[2:], expected, strict=True):
        assert reason is not None and why in reason


BORROWING = """syntax = "proto3"; package shop;
import "confluent/meta.proto"; import "confluent/type/decimal.proto"; import "google/type/money.proto"; import "google/type/date.proto";
message Sale {
  option (confluent.message_meta).doc = "one sale";
  google.type.Money price = 1;
  confluent.type.Decimal tax = 2 [(confluent.field_meta) = { params: [{ key: "precision", value: "10" }] }];
  google.type.Date day = 3;
}"""
BORROWED = (
    "price struct<currency_code: string, units: bigint, nanos: int>, tax struct<value: binary, precision: bigint, "
    "scale: int>, day struct<year: int, month: int, day: int>"
)
SALE = b"\x0a\x07\x0a\x03EUR\x10\x05" + b"\x12\x05\x0a\x01\x07\x18\x02" + b"\x1a\x02\x08\x07"
SOLD = {
    "price": {"currency_code": "EUR", "units": 5, "nanos": 0},
    "tax": {"value": b"\x07", "precision": 0, "scale": 2},
    "day": {"year": 7, "month": 0, "day": 0},
}


def test_what_registries_know_without_a_reference_is_known_here_too(server: RegistryServer) -> None:
    """Confluent's clients register no references for these: who reads the schema has them."""
    number = server.register("sales-value", BORROWING, kind="PROTOBUF")
    made = decoder("protobuf", registry=server.url, subject="sales-value")
    assert write_ddl(made.arrow_type) == BORROWED
    assert decode(made, [b"\x00" + number.to_bytes(4, "big") + b"\x00" + SALE]) == ([SOLD], [None])


def test_a_reference_stands_before_what_is_known_without_one(server: RegistryServer) -> None:
    server.register(
        "money", 'syntax = "proto3"; package google.type; message Money { string all = 1; }', kind="PROTOBUF"
    )
    references = [{"name": "google/type/money.proto", "subject": "money", "version": 1}]
    server.register("sales-value", BORROWING, kind="PROTOBUF", references=references)
    made = decoder("protobuf", registry=server.url, subject="sales-value")
    assert write_ddl(made.arrow_type) == BORROWED.replace(
        "currency_code: string, units: bigint, nanos: int", "all: string"
    )


def test_a_file_may_import_them_without_having_them_and_one_of_its_own_is_taken_first(tmp_path: Path) -> None:
    file = _write(tmp_path / "sales.proto", BORROWING)
    assert write_ddl(decoder("protobuf", schema=read_schema(str(file))).arrow_type) == BORROWED
    _write(
        tmp_path / "google" / "type" / "date.proto",
        'syntax = "proto3"; package google.type; message Date { string text = 1; }',
    )
    assert write_ddl(decoder("protobuf", schema=read_schema(str(file))).arrow_type).endswith("day struct<text: string>")


@pytest.mark.parametrize(
    "names",
    [["a", "a/b.proto"], ["a/b.proto", "a"], ["a" * 300], ["a\0.proto"], ["."], ["registered.proto/a"], ["\ud800"]],
)
def test_a_reference_that_can_be_no_file_is_its_records_fault_and_stops_nothing(
    server: RegistryServer, names: list[str]
) -> None:
    """Whoever may register schemas names them."""
    plain = 'syntax = "proto3"; message A { int32 n = 1; }'
    server.register("a", plain, kind="PROTOBUF")
    good = server.register("b", plain, kind="PROTOBUF")
    bad = server.register(
        "c", plain, kind="PROTOBUF", references=[{"name": name, "subject": "a", "version": 1} for name in names]
    )
    made = decoder("protobuf", registry=server.url, subject="b")
    values, reasons = decode(made, [b"\x00" + number.to_bytes(4, "big") + b"\x00\x08\x07" for number in (good, bad)])
    assert values == [{"n": 7}, None]
    assert "cannot be a file beside the others" in (reasons[1] or "")


def test_a_schema_with_half_a_character_is_its_records_fault(server: RegistryServer) -> None:
    plain = 'syntax = "proto3"; message A { int32 n = 1; }'
    server.register("a", plain, kind="PROTOBUF")
    bad = server.register("b", f"// \ud800\n{plain}", kind="PROTOBUF")
    values, reasons = decode(
        decoder("protobuf", registry=server.url, subject="a"), [b"\x00" + bad.to_bytes(4, "big") + b"\x00\x08\x07"]
    )
    assert values == [None]
    assert "half a character" in (reasons[0] or "")


def test_all_that_is_known_compiles() -> None:
    main = "".join(f'import "{path}"; ' for path in SHIPPED)
    found = compiled({"all.proto": f'syntax = "proto3"; {main}'.encode()}, "all.proto", "all.proto")
    assert {file.name for file in found.file} >= {*SHIPPED}


@given(st.binary(max_size=12))
def test_message_indexes_of_any_bytes_are_read_or_refused(rest: bytes) -> None:
    try:
        indexes, start = message_indexes(b"\x00\x00\x00\x00\x01" + rest)
    except Unfit as error:
        assert "wire format" in str(error)
    else:
        assert 1 <= len(indexes) <= 32
        assert 5 < start <= 5 + len(rest)


messages = st.fixed_dictionaries(
    {},
    optional={
        "flag": st.booleans(),
        "number": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1).map(str),
        "huge": st.integers(0, 2**64 - 1).map(str),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(max_size=5),
        "maybe": st.integers(0, 5),
        "colour": st.sampled_from(["UNKNOWN", "RED"]),
        "numbers": st.lists(st.integers(0, 300), max_size=3),
        "lines": st.lists(
            st.fixed_dictionaries(
                {}, optional={"count": st.integers(1, 9).map(str), "notes": st.lists(st.text(max_size=2))}
            ),
            max_size=3,
        ),
        "pairs": st.dictionaries(st.text(max_size=2), st.just({}), max_size=2),
        "street": st.fixed_dictionaries({}, optional={"name": st.text(min_size=1, max_size=3)}),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4))
def test_what_protobuf_wrote_is_what_is_read(orders: Decoder, order_class: Any, batch: list[dict[str, Any]]) -> None:
    written = [Parse(json.dumps(each), order_class()) for each in batch]
    values, reasons = decode(orders, [each.SerializeToString() for each in written])
    assert reasons == [None] * len(batch)
    for message, row in zip(written, values, strict=True):
        told = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        assert row == NOTHING_SET | {name: _as_a_column(name, each) for name, each in told.items()}


def _as_a_column(name: str, told: Any) -> Any:
    match name:
        case "big":
            return int(told)
        case "huge":
            return Decimal(told)
        case "octets":
            return told.encode()
        case "lines":
            return [{"count": int(line["count"]), "notes": line["notes"]} for line in told]
        case "pairs":
            return sorted((key, {"count": int(line["count"]), "notes": line["notes"]}) for key, line in told.items())
        case "colours":
            return list(told.items())
    return told


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=3)), min_size=1, max_size=4), st.binary(max_size=30))
def test_corruption_is_a_value_or_a_reason_and_never_more(
    orders: Decoder, order_class: Any, damage: list[tuple[int, bytes]], noise: bytes
) -> None:
    good = order_class(
        text="x" * 20, numbers=[1, 2, 3], lines=[{"count": 1, "notes": ["ä"]}], pairs={"a": {"count": 1}}
    ).SerializeToString()
    damaged = [good[:at] + bad + good[at + len(bad) :] for at, bad in damage] + [good[:at] + bad for at, bad in damage]
    decoded = orders.decode(pa.array([good, *damaged, noise, good], type=pa.binary()))
    for row, why in zip(decoded.values, decoded.reasons, strict=True):
        assert row.is_valid != why.is_valid
    assert decoded.values[0].as_py() == decoded.values[-1].as_py() != NOTHING_SET


def test_messages_that_have_each_other_twice_do_not_become_a_billion_columns() -> None:
    lines = [
        "message M0 { int32 x = 1; }",
        *(f"message M{n} {{ M{n - 1} a = 1; M{n - 1} b = 2; }}" for n in range(1, 30)),
    ]
    schema = SchemaFile(name="x.proto", content=('syntax = "proto3";' + "".join(lines)).encode())
    with pytest.raises(ConfigurationError, match="message M29 is more than 20000 columns"):
        decoder("protobuf", schema=schema, message="M29")
    assert decoder("protobuf", schema=schema, message="M5").arrow_type.num_fields == 2


def all_within_each_other(count: int, kind: str) -> str:
    """Messages N0, N1, … that each have all of them; N0 has a field `s` of that kind, too."""
    fields = "".join(f"N{number} n{number} = {number + 2}; " for number in range(count))
    messages = "".join(
        f"message N{number} {{ {kind if number == 0 else 'string'} s = 1; {fields}}}" for number in range(count)
    )
    return f'syntax = "proto3"; {messages}'


@pytest.mark.timeout(60)
def test_messages_that_all_have_each_other_are_counted_as_often_as_they_are_used() -> None:
    """Every way among twelve would be 12! columns; how many one is depends on those around it."""
    for count in (8, 12):
        schema = SchemaFile(name="x.proto", content=all_within_each_other(count, "string").encode())
        with pytest.raises(ConfigurationError, match="message N0 is more than 20000 columns"):
            decoder("protobuf", schema=schema, message="N0")
    few = SchemaFile(name="x.proto", content=all_within_each_other(5, "string").encode())
    assert decoder("protobuf", schema=few, message="N0").arrow_type.num_fields == 6


@pytest.mark.timeout(60)
def test_a_writer_s_messages_that_all_have_each_other_are_its_records_fault(server: RegistryServer) -> None:
    one = server.register("t", 'syntax = "proto3"; message N0 { string s = 1; }', kind="PROTOBUF")
    two = server.register("other", all_within_each_other(12, "bytes"), kind="PROTOBUF")
    made = decoder("protobuf", registry=server.url, subject="t")
    values, reasons = decode(made, [b"\x00" + each.to_bytes(4, "big") + b"\x00\x0a\x01x" for each in (one, two)])
    assert values == [{"s": "x"}, None]
    assert reasons == [None, f"schema id {two}: message N0 is more than 20000 columns"]


def test_names_that_a_few_bytes_of_a_record_would_repeat_at_great_length_are_refused(server: RegistryServer) -> None:
    one = server.register("t", 'syntax = "proto3"; message M { string s = 1; }', kind="PROTOBUF")
    made = decoder("protobuf", registry=server.url, subject="t")
    for text, name in (
        ("message M {{ bytes s = 1; repeated M {} = 2; }}", "n"),
        ("enum E {{ {} = 0; }} message M {{ bytes s = 1; repeated E e = 2; }}", "N"),
    ):
        fits, does_not = (
            server.register("other", f'syntax = "proto3"; {text.format(name * length)}', kind="PROTOBUF")
            for length in (255, 256)
        )
        ids = (one, fits, does_not)
        values, reasons = decode(made, [b"\x00" + each.to_bytes(4, "big") + b"\x00\x0a\x01x" for each in ids])
        assert values == [{"s": "x"}, {"s": "x"}, None]
        why = f"{name * 20}… has 256 characters: a field or symbol has 255 at most"
        assert reasons == [None, None, f"schema id {does_not}: {why}"]


def test_each_schema_that_may_have_the_message_is_compiled_once_in_a_process_and_others_never(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody's record may name any of a registry's schemas, and each task has a decoder of its own."""
    asked: list[str] = []
    monkeypatch.setattr(
        protobuf_records, "compiled", lambda files, main, name: asked.append(name) or compiled(files, main, name)
    )
    order = 'syntax = "proto3"; package shop; message Order {{ {kind} id = 1; }}'
    first = server.register("orders", order.format(kind="int64"), kind="PROTOBUF")
    last = server.register("orders", order.format(kind="string"), kind="PROTOBUF")
    others = [
        server.register(f"s{number}", f'syntax = "proto3"; message Orders{number} {{ string s = 1; }}', kind="PROTOBUF")
        for number in range(3)
    ]
    made = decoder("protobuf", registry=server.url, subject="orders")
    values = [b"\x00" + number.to_bytes(4, "big") + b"\x00\x0a\x01x" for number in (last, *others, first)]
    for _ in range(2):
        found, reasons = decode(pickle.loads(pickle.dumps(made)), values)
        assert found == [{"id": "x"}, None, None, None, None]
        assert reasons[1:4] == [f"holds no message of schema id {number}, not shop.Order" for number in others]
    assert asked == [f"{server.url} subject orders", f"{server.url} id {last}", f"{server.url} id {first}"]


def test_a_timestamp_that_no_calendar_has_does_not_fit() -> None:
    schema = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { repeated '
        "google.protobuf.Timestamp at = 1; }"
    )
    good, bad = b"\x0a\x02\x08\x01", b"\x0a\x07\x08" + b"\xff\xff\xff\xff\xff\x7f"
    values, reasons = fitting(schema, good, bad, good)
    assert values[0] == values[2] is not None and values[1] is None
    assert reasons == [None, "a time beyond the years 1 to 9999 - at `$.at[...]`", None]


def test_numbers_too_large_for_their_field_lose_their_upper_bits_as_protobuf_defines_it() -> None:
    colour = "enum Colour { UNKNOWN = 0; RED = 1; }"
    narrow = (
        f"{colour} message Order {{ int32 a = 1; uint32 b = 2; Colour c = 3; repeated int32 d = 4; map<int32, "
        f"int32> e = 5; }}"
    )
    wide = "message Order { int64 a = 1; uint64 b = 2; int64 c = 3; repeated int64 d = 4; map<int64, int64> e = 5; }"
    found = [compiled({"x.proto": f'syntax = "proto3"; {text}'.encode()}, "x.proto", "x") for text in (narrow, wide)]
    over = 1 << 32
    written = message_class(found[1], "Order")(
        a=over + 5, b=over + 6, c=over + 1, d=[over + 7, -8], e={1: 7, over + 2: over + 9}
    ).SerializeToString()
    made = decoder("protobuf", schema=SchemaFile(name="x.desc", content=found[0].SerializeToString()), message="Order")
    assert decode(made, [written]) == ([{"a": 5, "b": 6, "c": "RED", "d": [7, -8], "e": [(1, 7), (2, 9)]}], [None])


SAME_IN_JSON = (
    'syntax = "proto2"; message O { optional int32 id = 1; optional int32 fooBar = 2; optional int32 foo_bar = 3; }'
)
CHAIN = "".join(f"message M{each} {{ M{each + 1} m = 1; }} " for each in range(1500))


@pytest.mark.parametrize(
    ("schema", "indexes", "others"),
    [
        (SAME_IN_JSON, b"\x00", True),
        ('syntax = "proto3"; ' + CHAIN + "message M1500 { int32 n = 1; } message O { int32 id = 1; M0 m = 2; }", b"\x02\xba\x17", False),
    ],
    ids=["two names that are one in JSON", "a long chain of messages"],
)  # fmt: skip
def test_a_writer_s_schema_that_only_protoc_takes_spoils_no_record_and_stops_nothing(
    server: RegistryServer, schema: str, indexes: bytes, others: bool
) -> None:
    server.register("s", 'syntax = "proto3"; message O { int32 id = 1; }', kind="PROTOBUF")
    made = decoder("protobuf", registry=server.url, subject="s")
    number = server.register("t", schema, kind="PROTOBUF")
    values, reasons = decode(made, [b"\x00" + number.to_bytes(4, "big") + indexes + b"\x08\x07"] * 3)
    assert (values, reasons) == ([{"id": 7}] * 3, [None] * 3)
    assert isinstance(made, RegisteredDecoder) and made.leaves_out(number) == others, (
        "of a long chain it cannot be told"
    )


def test_a_schema_that_is_too_deep_to_be_looked_at_is_compiled_once(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of: list[int] = []

    def too_deep(_: FileDescriptorSet) -> dict[tuple[int, ...], str]:
        made_of.append(1)
        raise RecursionError("maximum recursion depth exceeded")

    schema = 'syntax = "proto3"; message O { int32 id = 1; }'
    server.register("s", schema, kind="PROTOBUF")
    made = decoder("protobuf", registry=server.url, subject="s")
    number = server.register("t", schema, kind="PROTOBUF")
    monkeypatch.setattr(protobuf_records, "messages_of", too_deep)
    _, reasons = decode(made, [b"\x00" + number.to_bytes(4, "big") + b"\x00\x08\x07"] * 3)
    assert reasons == [f"schema id {number}: maximum recursion depth exceeded"] * 3 and len(made_of) == 1
    assert isinstance(made, RegisteredDecoder) and not made.leaves_out(number)
