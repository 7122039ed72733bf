"""Protobuf by a registry: records of versions that say other things than the newest one are what their writer meant, or
are dead letters.
"""

import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict
from test_values_protobuf import message_class
from value_cases import decode
from value_registry import RegistryServer, met_anew

from bmq_spark.values import Decoder, SchemaBreaks, decoder, merge_types
from bmq_spark.values.protobuf_files import compiled

SUBJECT = "orders-value"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with met_anew() as found:
        yield found


class Version:
    """A registered version with these fields of the message M."""

    def __init__(self, registry: RegistryServer, fields: str, syntax: str = "proto3") -> None:
        text = f'syntax = "{syntax}"; package s; message M {{ {fields} }}'
        self._class = message_class(compiled({"m.proto": text.encode()}, "m.proto", "m"), "s.M")
        self.number = registry.register(SUBJECT, text, kind="PROTOBUF")

    def record(self, **fields: Any) -> bytes:
        """A record in the wire format."""
        message = ParseDict(fields, self._class())
        return b"\x00" + self.number.to_bytes(4, "big") + b"\x00" + bytes(message.SerializeToString())


def newest(registry: RegistryServer, columns: pa.DataType | None = None) -> Decoder:
    """As a worker has it."""
    made = decoder("protobuf", registry=registry.url, subject=SUBJECT, columns=columns)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def read(registry: RegistryServer, before: str, after: str, *, kept: bool = True, **fields: Any) -> tuple[Any, str]:
    """A record of the version before, and its reason, where the newest is the one after; `kept`: by a job whose table
    has the columns of the former, if it can have both.
    """
    writer = Version(registry, before)
    columns = newest(registry).arrow_type if kept else None
    registry.subjects[SUBJECT].clear()
    reader = Version(registry, after)
    try:
        made = newest(registry, columns)
        merge_types(columns or pa.struct([]), made.arrow_type)
    except SchemaBreaks:
        made = newest(registry)
    values, reasons = decode(made, [reader.record(), writer.record(**fields), None, reader.record()])
    assert values[2] is None and values[0] == values[3] is not None and [*reasons[:1], *reasons[2:]] == [None] * 3
    return values[1], reasons[1] or ""


@pytest.mark.parametrize(
    ("before", "after", "value", "meant"),
    [
        ("int32 n = 2;", "uint32 n = 2;", -5, -5),
        ("int32 n = 2;", "sint32 n = 2;", 10, 10),
        ("int32 n = 2;", "int64 n = 2;", -5, -5),
        ("int64 n = 2;", "int32 n = 2;", 5_000_000_000, 5_000_000_000),
        ("int64 n = 2;", "uint32 n = 2;", -5, -5),
        ("sint64 n = 2;", "fixed64 n = 3;", 7, Decimal(7)),
        ("int32 n = 2;", "optional int32 n = 2;", 0, 0),
        ("optional int32 n = 2;", "int32 n = 2;", None, None),
        ("E n = 2; enum E { Z = 0; A = 1; B = 2; }", "E n = 2; enum E { Z = 0; B = 1; A = 2; }", "A", "A"),
        ("E n = 2; enum E { Z = 0; A = 1; }", "E n = 2; enum E { Z = 0; B = 1; }", "A", "A"),
        ("bytes n = 2;", "string n = 2;", "YQ==", "a"),
        ("string n = 2;", "bytes n = 2;", "a", b"a"),
        ("bool n = 2;", "int32 n = 2;", True, 1),
        ("uint64 n = 2;", "int32 n = 2;", 7, 7),
        ("int32 n = 2;", "bool n = 2;", 1, True),
        ("repeated int32 n = 2;", "repeated sint32 n = 2;", [10, 11], [10, 11]),
        ("int32 n = 2;", "repeated sint32 n = 2;", 10, [10]),
        ("int32 n = 2;", "repeated sint32 n = 2;", 0, []),
        ("map<string, int32> n = 2;", "map<string, sint32> n = 2;", {"a": 10}, [("a", 10)]),
        ("repeated P n = 2; message P { int32 x = 1; }", "repeated P n = 2; message P { sint32 x = 1; string y = 2; }",
         [{"x": 10}, {}], [{"x": 10, "y": ""}, {"x": 0, "y": ""}]),
        ("P n = 2; message P { int32 x = 1; }", "P n = 2; message P { sint32 x = 1; }", None, None),
        ("P n = 2; message P { int32 x = 1; P p = 2; }", "P n = 2; message P { sint32 x = 1; P p = 2; }",
         {"x": 1, "p": {"x": 10}}, {"x": 1, "p": '{"x": 10}'}),
        ("repeated P n = 2; message P { string key = 1; int32 value = 2; }", "map<string, int32> n = 2;",
         [{"key": "b", "value": 1}, {"key": "a"}], [("a", 0), ("b", 1)]),
        ("repeated P n = 2; message P { int32 key = 1; Q value = 2; } message Q { int32 x = 1; }",
         "map<int64, Q> n = 2; message Q { sint32 x = 1; }",
         [{"key": 10, "value": {"x": 5}}, {"key": 9}], [(9, None), (10, {"x": 5})]),
        ("repeated P n = 2; message P { string key = 1; int32 value = 2; }", "map<string, int32> n = 2;", [], []),
        ("map<string, int32> n = 2;", "repeated P n = 2; message P { string key = 1; sint32 value = 2; bool x = 3; }",
         {"b": 10, "a": 2}, [{"key": "a", "value": 2, "x": False}, {"key": "b", "value": 10, "x": False}]),
    ],
)  # fmt: skip
def test_a_field_is_what_its_writer_meant(
    registry: RegistryServer, before: str, after: str, value: Any, meant: Any
) -> None:
    fields = {} if value is None else {"n": value}
    found, reason = read(registry, before, after, **fields)
    assert (found, reason) == ({"n": meant}, "")


@pytest.mark.parametrize(
    ("before", "after", "value", "why"),
    [
        ("uint64 n = 2;", "int32 n = 2;", 1 << 40, "field n: Integer value"),
        ("int64 n = 2;", "repeated int32 n = 2;", 1 << 40, "field n: Integer value"),
        ("int32 n = 2;", "bool n = 2;", 5, "field n: 5 is neither 0 nor 1"),
        ("bytes n = 2;", "string n = 2;", "/w==", "field n: Invalid UTF8 payload"),
        ("string n = 2;", "int32 n = 2;", "a", "field n: it is string to its writer, and int in the columns"),
        ("repeated P n = 2; message P { string key = 1; int32 value = 2; }", "map<string, int32> n = 2;",
         [{"key": "a", "value": 1}, {"key": "a", "value": 2}], "field n: it is a map in the columns, and has 'a' twice"),
        ("repeated P n = 2; message P { string key = 1; string other = 2; }", "map<string, string> n = 2;",
         [{"key": "a", "other": "b"}], "field 2 is n.other to its writer, which is no column, and n.value in the columns"),
        ("repeated P n = 2; message P { string key = 1; int32 value = 2; }", "map<int32, int32> n = 2;",
         [{"key": "a", "value": 1}], "field n: it is array<struct<key: string, value: int>> to its writer, and map<int, int>"),
        ("repeated int32 n = 2;", "int32 n = 2;", [1, 2], "field n: it is array<int> to its writer, and int in the columns"),
        ("string m = 2;", "string n = 2;", "a", "field 2 is m to its writer, which is no column, and n in the columns"),
        ("P n = 2; message P { P p = 2; repeated Q q = 3; message Q { int32 a = 1; } }",
         "P n = 2; message P { P p = 2; repeated Q q = 3; message Q { int32 b = 1; } }",
         {"q": [{"a": 7}]}, "field 1 is n.q.a to its writer, which is no column, and n.q.b in the columns"),
    ],
)  # fmt: skip
def test_what_no_column_holds_is_a_dead_letter_that_says_why(
    registry: RegistryServer, before: str, after: str, value: Any, why: str
) -> None:
    name = "m" if " m = " in before else "n"
    found, reason = read(registry, before, after, kept=False, **{name: value})
    assert found is None and why in reason
    assert read(registry, before, after, kept=False)[1] == "", "a record without the field has nothing to lose"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", "oneof o {{ {} }}"),
        ("optional int32 z = 5; {}", "oneof o {{ int32 z = 5; {} }}"),
        ("oneof o {{ int32 z = 5; P p = 1; }} Q q = 2;", "oneof o {{ int32 z = 5; {} }}"),
    ],
)
@pytest.mark.parametrize(
    "place", ["{}", "map<string, N> n = 3; message N {{ {} }}", "N n = 3; message N {{ {} N n = 4; }}"]
)
def test_fields_that_are_in_a_oneof_now_are_all_that_their_writer_set(
    registry: RegistryServer, before: str, after: str, place: str
) -> None:
    both = "P p = 1; Q q = 2;"
    kinds = "message P { int32 x = 1; } message Q { int32 y = 1; }"
    fields: dict[str, Any] = {"p": {"x": 1}, "q": {"y": 2}}
    if " n = " in place:
        fields = {"n": {"a": fields} if "map" in place else fields | {"n": fields}}
    versions = [place.format(version.format(both)) + kinds for version in (before, after)]
    found, reason = read(registry, *versions, **fields)
    assert reason == ""
    if " n = " in place:
        found = found["n"][0][1] if "map" in place else found["n"]
    assert (found["p"], found["q"]) == ({"x": 1}, {"y": 2})
    if "N n = 4" in place:
        assert found["n"] == '{"p": {"x": 1}, "q": {"y": 2}}'


def test_fields_of_a_oneof_stay_null_but_for_one_whatever_the_oneof_is_called_or_has_beside(
    registry: RegistryServer,
) -> None:
    before, after = "oneof o { int32 a = 1; string b = 2; }", "oneof u { int32 a = 1; string b = 2; bool c = 3; }"
    assert read(registry, before, after, b="x") == ({"a": None, "b": "x", "c": None}, "")


GROWN = "message P { string by = 1; repeated int32 l = 2; P p = 3; }"


@pytest.mark.parametrize("number", ["int32", "sint32"])
@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("P p = 1;", {}, {"by": "", "l": [], "p": None}),
        ("P p = 1;", None, None),
        ("oneof o { P p = 1; bool other = 3; }", {}, {"by": "", "l": [], "p": None}),
        ("repeated P p = 1;", [{}, {}], [{"by": "", "l": [], "p": None}] * 2),
        ("map<string, P> p = 1;", {"a": {}}, [("a", {"by": "", "l": [], "p": None})]),
    ],
)
def test_an_empty_message_that_has_fields_now_is_one_that_says_none_of_them(
    registry: RegistryServer, number: str, field: str, value: Any, meant: Any
) -> None:
    fields = {"n": 10} if value is None else {"n": 10, "p": value}
    before, after = f"{field} int32 n = 2; message P {{}}", f"{field} {number} n = 2; {GROWN}"
    found, reason = read(registry, before, after, kept=False, **fields)
    assert (reason, found["p"], found["n"]) == ("", meant, 10)


@pytest.mark.parametrize("number", ["int32", "sint32"])
@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("P p = 1;", {"by": "me", "p": {}}, True),
        ("P p = 1;", {}, True),
        ("P p = 1;", None, None),
        ("oneof o { P p = 1; bool other = 3; }", {"by": "me"}, True),
        ("repeated P p = 1;", [{"by": "me"}, {}], [True, True]),
        ("map<string, P> p = 1;", {"a": {"l": [1]}}, [("a", True)]),
    ],
)
def test_a_message_that_has_no_fields_now_says_whether_it_was_set(
    registry: RegistryServer, number: str, field: str, value: Any, meant: Any
) -> None:
    fields = {"n": 10} if value is None else {"n": 10, "p": value}
    before, after = f"{field} int32 n = 2; {GROWN}", f"{field} {number} n = 2; message P {{}}"
    found, reason = read(registry, before, after, kept=False, **fields)
    assert (reason, found["p"], found["n"]) == ("", meant, 10)


def test_a_message_with_fields_is_the_only_one_of_a_list_of_empty_ones(registry: RegistryServer) -> None:
    empty, grown = "message P {}", "message P { int32 x = 1; }"
    one, many = "P p = 1;", "repeated P p = 1;"
    assert read(registry, one + grown, many + empty, kept=False, p={"x": 1}) == ({"p": [True]}, "")
    assert read(registry, one + empty, many + grown, kept=False, p={}) == ({"p": [{"x": 0}]}, "")
    assert read(registry, "M p = 1;", f"P p = 1; {empty}", kept=False, p={"p": {}}) == ({"p": True}, "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("repeated P p = 1; message P { int32 x = 1; }", "P p = 1; message P {}"),
        ("repeated P p = 1; message P {}", "P p = 1; message P { int32 x = 1; }"),
        ("repeated P p = 1; message P {}", "P p = 1; message P {}"),
        ("map<string, int32> p = 1;", "P p = 1; message P {}"),
        ("map<string, P> p = 1; message P {}", "P p = 1; message P { int32 x = 1; }"),
    ],
)
def test_a_list_or_map_is_no_message_that_was_set(registry: RegistryServer, before: str, after: str) -> None:
    number = "int32 n = 2;"
    assert read(registry, number + before, number + after, kept=False, n=1) == ({"n": 1, "p": None}, "")
    some: Any = [{}, {}] if "repeated" in before else {"a": {} if "P" in before else 1}
    found, reason = read(registry, number + before, number + after, kept=False, n=1, p=some)
    assert found is None and "field p" in reason


@pytest.mark.parametrize("after", ["int32 p = 1;", "sint64 p = 1;"])
def test_a_message_without_fields_is_no_number(registry: RegistryServer, after: str) -> None:
    before = "P p = 1; int32 n = 2; message P {}"
    assert read(registry, before, f"{after} int32 n = 2;", kept=False, n=1) == ({"p": 0, "n": 1}, "")
    found, reason = read(registry, before, f"{after} int32 n = 2;", kept=False, n=1, p={})
    assert found is None and "field p" in reason


def test_an_empty_message_has_not_what_is_required_of_it_now(registry: RegistryServer) -> None:
    writer = Version(registry, "optional P p = 1; optional int32 n = 2; message P {}", "proto2")
    grown = "message P { required int32 x = 1; }"
    Version(registry, f"optional P p = 1; optional sint32 n = 2; {grown}", "proto2")
    values, reasons = decode(newest(registry), [writer.record(p={}), writer.record(n=10)])
    assert values == [None, {"p": None, "n": 10}] and "no p.x, which is required" in (reasons[0] or "")


def test_a_number_that_has_another_name_now_stays_in_the_column_of_its_writer_s_name(registry: RegistryServer) -> None:
    assert read(registry, "string email = 2;", "string phone = 2;", email="a@b") == (
        {"phone": "", "email": "a@b"},
        "",
    )
    swapped = read(registry, "string a = 2; string b = 3;", "string b = 2; string a = 3;", a="A", b="B")
    assert swapped == ({"a": "A", "b": "B"}, "")
    assert read(registry, "string Email = 2;", "string email = 2;", kept=False, Email="a@b") == ({"email": "a@b"}, "")


def test_a_field_that_the_newest_version_has_not_is_read_where_the_table_has_it(registry: RegistryServer) -> None:
    nested = "P p = 1; message P {{ int32 id = 1; {} }} int32 id = 2;"
    fields = {"p": {"id": 1, "note": "n"}, "id": 3}
    before, after = nested.format("string note = 2;"), nested.format("")
    assert read(registry, before, after, **fields) == ({"p": {"id": 1, "note": "n"}, "id": 3}, "")
    assert read(registry, before, after, kept=False, **fields) == ({"p": {"id": 1}, "id": 3}, "")


def test_a_required_field_that_its_writer_has_not_is_missing(registry: RegistryServer) -> None:
    writer = Version(registry, "optional int32 a = 1;", "proto2")
    Version(registry, "optional sint32 a = 1; required int32 b = 2;", "proto2")
    values, reasons = decode(newest(registry), [writer.record(a=10)])
    assert values == [None] and "no b, which is required" in (reasons[0] or "")


def test_records_of_many_versions_keep_their_order(registry: RegistryServer) -> None:
    versions = [Version(registry, f"{kind} n = 1;") for kind in ("int32", "sint32", "uint32", "int64")]
    records = [versions[at % 4].record(n=at) for at in range(100)]
    values, reasons = decode(newest(registry), [*records, None, b"\x00"])
    assert [row and row["n"] for row in values] == [*range(100), None, None]
    assert reasons[:101] == [None] * 101 and reasons[101]
