import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from value_cases import decode

from bmq_spark.errors import ConfigurationError
from bmq_spark.values import Decoder, SchemaFile, decoder, read_schema
from bmq_spark.values.ddl import read_ddl, write_ddl

UTC = datetime.UTC


def by_schema(text: str) -> Decoder:
    return decoder("json", schema=SchemaFile(name="orders.schema", content=text.encode()))


def test_every_type_of_a_schema_is_read() -> None:
    record = {
        "flag": True, "tiny": -128, "small": 32767, "number": -(2**31), "big": 2**63 - 1, "single": 1.5, "double": 3,
        "text": "ä", "octets": "AP8=", "day": "2026-11-22", "time": "2026-11-22T10:00:00.123456+02:00", "local": "2026-11-22T10:00:00",
        "price": 12.5, "list": [{"x": 1}, None], "pairs": {"a": 1, "b": None}, "nested": {"odd name": "x"},
    }  # fmt: skip
    values, reasons = decode(
        by_schema(
            "flag boolean, tiny tinyint, small smallint, number int, big bigint, single float, double double, text "
            "string, octets binary, day date, time timestamp, local timestamp_ntz, price decimal(10,2), list "
            "array<struct<x: int>>, pairs map<string,int>, nested struct<`odd name`: string>"
        ),
        [json.dumps(record).encode()],
    )
    assert reasons == [None]
    assert values == [
        record
        | {
            "octets": b"\x00\xff",
            "day": datetime.date(2026, 11, 22),
            "time": datetime.datetime(2026, 11, 22, 8, 0, 0, 123456, tzinfo=UTC),
            "local": datetime.datetime(2026, 11, 22, 10),
            "price": decimal.Decimal("12.50"),
            "pairs": [("a", 1), ("b", None)],
        }
    ]


def test_a_field_that_is_there_twice_has_its_last_value() -> None:
    assert decode(by_schema("id int"), [b'{"id":1,"id":2}', b'{"id":1,"id":null}']) == (
        [{"id": 2}, {"id": None}],
        [None, None],
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "truncated"),
        (b"null", "Expected `object`"),
        (b"[]", "Expected `object`"),
        (b'{"id":1}{"id":2}', "trailing characters"),
        (b'{"id":"1"}', r"Expected `int`, got `str` - at `\$.id`"),
        (b'{"id":1.5}', r"Expected `int`, got `float` - at `\$.id`"),
        (b'{"id":9223372036854775808}', r"`\$.id`"),
        (b'{"name":"x"}', "missing required field `id`"),
        (b'{"id":null}', "got `null`"),
        (b'{"id":1,"small":40000}', r"`\$.small`"),
        (b'{"id":1,"price":1.234}', r"decimal\(5,2\) does not hold all digits of the number - at `\$.price`"),
        (b'{"id":1,"price":1e-999999999}', r"does not hold all digits of the number - at `\$.price`"),
        (b'{"id":1,"price":1e999999999}', r"does not hold all digits of the number - at `\$.price`"),
        (b'{"id":1,"price":"NaN"}', r"`\$.price`"),
        (b'{"id":1,"lines":[{"price":1},{"price":12345}]}', r"at `\$.lines\[\.\.\.\]\.price`"),
        (b'{"id":1,"name":"\xff"}', "utf-8"),
        (b'{"id":NaN}', "malformed"),
        (b'{"id":1,"local":"2026-01-01T00:00:00Z"}', "time zone"),
        (b'{"id":"x","id":1}', r"Expected `int`, got `str` - at `\$.id`"),
        (b"[" * 100_000, "recursion|Expected `object`"),
    ],
)
def test_a_record_that_does_not_fit_says_why_and_spoils_no_other(value: bytes, why: str) -> None:
    schema = by_schema(
        "id bigint not null, name string, small smallint, price decimal(5,2), lines array<struct<price: "
        "decimal(5,2)>>, local timestamp_ntz"
    )
    values, reasons = decode(schema, [b'{"id":1}', value, None, b'{"id":2,"unknown":[1,"x"]}'])
    assert [row and row["id"] for row in values] == [1, None, None, 2]
    assert reasons[0] is reasons[2] is reasons[3] is None
    assert reasons[1] is not None
    with pytest.raises(ValueError, match=why):
        raise ValueError(reasons[1])


def test_a_json_schema_becomes_columns() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["id", "node", "maybe"],
        "properties": {
            "id": {"type": "integer", "minimum": 10},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "free": {},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "node": {"$ref": "#/$defs/node"},
        },
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
            }
        },
    }
    made = by_schema(json.dumps(schema))
    assert write_ddl(made.arrow_type) == (
        "id bigint, at timestamp, maybe double, either string, free string, "
        "labels map<string, string>, node struct<name: string, children: array<string>>"
    )
    rows = [
        b'{"id":1,"maybe":null,"node":{"name":"a","children":[{"name": "b"}]},"either":1.10,"free":{"x": [1]},"labels":{"a":"b"}}',
        b'{"id":1,"maybe":2,"node":{},"either":"text","free":null}',
        b'{"id":1,"maybe":2}',
    ]
    values, reasons = decode(made, rows)
    assert values[0] == {
        "id": 1, "at": None, "maybe": None, "either": "1.10", "free": '{"x": [1]}', "labels": [("a", "b")],
        "node": {"name": "a", "children": ['{"name": "b"}']},
    }  # fmt: skip
    assert (values[1]["either"], values[1]["free"], values[1]["maybe"]) == ("text", None, 2.0)
    assert reasons[:2] == [None, None]
    assert "missing required field `node`" in (reasons[2] or "")


def test_spark_writes_a_schema_as_json_and_it_is_read() -> None:
    written = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "price", "type": "decimal(5,2)", "nullable": True, "metadata": {}},
            {
                "name": "tags",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
            {
                "name": "pairs",
                "type": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    }
    made = by_schema(json.dumps(written))
    assert write_ddl(made.arrow_type) == "id bigint, price decimal(5,2), tags array<string>, pairs map<string, int>"
    assert decode(made, [b'{"price":1}'])[1] == ["not the JSON of the schema: Object missing required field `id`"]


def test_a_required_part_may_be_null_where_what_it_refers_to_may_be() -> None:
    name = {"$ref": "#/$defs/name"}
    schema = {
        "type": "object",
        "required": ["name", "any", "node", "text"],
        "properties": {
            "name": name,
            "any": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/again"}]},
            "node": {"$ref": "#/$defs/node"},
            "text": TEXT,
        },
        "$defs": {
            "name": {"type": ["string", "null"]},
            "again": {"oneOf": [name, {"$ref": "#/$defs/again"}]},
            "node": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/node"}}},
            "text": {"type": "string"},
        },
    }
    made = by_schema(json.dumps(schema))
    full = {"name": "n", "any": "a", "node": {"next": {}}, "text": "t"}
    records = [
        full,
        *({**full, each: None} for each in full),
        *({key: full[key] for key in full if key != each} for each in full),
    ]
    reasons = decode(made, [json.dumps(each).encode() for each in records])[1]
    assert reasons[:3] == [None, None, None]
    assert ["`null`" in (each or "") for each in reasons[3:5]] == [True, True]
    assert ["missing required field" in (each or "") for each in reasons[7:]] == [True, True]


TEXT = {"$ref": "#/$defs/text"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id bigint nam string", "orders.schema: line 1, column 11: 'nam' where a comma or the end should be"),
        ("id bigint,\n  price money", "orders.schema: line 2, column 9: type 'money' is not known"),
        ("a struct<b: int", "line 1, column 16: the text ends where '>' should be"),
        ("a int, -- €\n  €uro int", "line 2, column 3: a character that DDL does not have here"),
        ("id int, ID int", "line 1, column 9: field 'ID' a second time"),
        ("x decimal(40,2)", r"decimal\(40,2\) has to have a precision of 1 to 38"),
        ("x decimal('²')", r"line 1, column 3: decimal\(²\) has to have a precision of 1 to 38"),
        ("x decimal(²)", r"a character that DDL does not have here"),
        ("x decimal('10')", r"decimal\(10\) has to have a precision"),
        (f"x decimal({'1' * 5000})", r"has to have a precision of 1 to 38"),
        ("x decimal(10,-2)", r"decimal\(10,-2\) has to have a precision of 1 to 38"),
        ("id int /* the number", "line 1, column 8: a comment that does not end"),
        ("id int\n -- no more\n nam", "line 3, column 2: 'nam' where a comma or the end should be"),
        ("-- nothing", "the text ends where a field's name should be"),
        ("id 'int'", "line 1, column 5: 'int' where a type should be"),
        ("", "the text ends where a field's name should be"),
        ('{"type": "object",\n "properties" {}}', "line 2, column 15: not JSON"),
        ('{"type": "string"}', 'not of an object with "properties"'),
        (
            '{"type": "object", "properties": {"a": {"$ref": "other.json"}}}',
            r"#/a: \$ref other.json is not in this file: put what it refers to",
        ),
        ('{"type": "object", "properties": ["a"]}', r"#: \"properties\" is \[\"a\"\], not an object"),
        (
            '{"type": "object", "properties": {"a": {"type": "object", "properties": 1}}}',
            '#/a: "properties" is 1, not an object',
        ),
        (
            '{"type": "object", "required": "id", "properties": {"id": {"type": "string"}}}',
            '#: "required" is "id", not a list of names',
        ),
        (
            '{"type": "object", "required": [1], "properties": {"id": {"type": "string"}}}',
            r'#: "required" is \[1\], not a list of names',
        ),
        ('{"type": "object", "properties": {"a": {"anyOf": 5}}}', '#/a: "anyOf" is 5, not a list of schemas'),
        ('{"type": "object", "properties": {"a": {"type": {"x": 1}}}}', r'#/a: type {"x": 1} is not known'),
        (
            '{"type": "object", "properties": {"a": {"type": ["null", ["string"]]}}}',
            r'#/a: type \["string"\] is not known',
        ),
        (
            '{"type": "object", "properties": {"a": {"type": "string", "format": ["date"]}}}',
            r'#/a: "format" is \["date"\], not a text',
        ),
        ('{"type": "object", "properties": {"a": {"$ref": 5}}}', '#/a: "\\$ref" is 5, not a text'),
        ("a array<struct<m: map<int, string>>>", r"value.a\[\].m: a map whose keys are no strings.*: write map<string"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "money"}]}', "type 'money' is not known"),
        (
            '{"type": "struct", "fields": [{"name": "a", "type": "integer"}, {"name": "a", "type": "string"}]}',
            "fields a and a have one name: rename one",
        ),
        (
            '{"type": "struct", "fields": [{"name": "a", "type": {"type": "struct", "fields": []}}]}',
            "a is an object without fields, which no column can be: leave it out",
        ),
    ],
)
def test_a_broken_schema_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        by_schema(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "id int, a-b string -- the end", "id int, -- one\n\n  -- two\na-b string\n--",
        "/* all */ id /* the /* inner */ number */ int, `a-b` string/**/",
        "-- ours\nid int -- first\n, a-b string", "id int, a-b string --", "id int--one\n, a-b string",
        "id int COMMENT '-- /* none', a-b string COMMENT '*/'",
        "id int, -- it goes \\\non\n a-b string", "id int, --\r\n a-b string",
    ],
)  # fmt: skip
def test_comments_of_ddl_are_passed_over(text: str) -> None:
    assert write_ddl(read_ddl(SchemaFile(name="x", content=text.encode()))) == "id int, `a-b` string"


def test_a_schema_is_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text("id bigint")
    for uri in (str(tmp_path / "orders.ddl"), (tmp_path / "orders.ddl").as_uri()):
        assert read_schema(uri).text == "id bigint"
    with pytest.raises(ConfigurationError, match=r"other\.ddl: cannot be read"):
        read_schema(str(tmp_path / "other.ddl"))


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(lambda name: "\x00" not in name)
scalars = st.sampled_from(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
arrow_types = st.recursive(
    scalars.map(lambda name: read_ddl(SchemaFile(name="x", content=f"x {name}".encode())).field(0).type)
    | st.just(pa.decimal128(12, 3)),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda item: pa.map_(pa.string(), item))
        | st.dictionaries(names, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items())))
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(names, st.tuples(arrow_types, st.booleans()), min_size=1, max_size=4))
def test_ddl_that_was_written_is_read_as_the_same_type(fields: dict[str, tuple[pa.DataType, bool]]) -> None:
    struct = pa.struct(
        [pa.field(name, arrow_type, nullable=nullable) for name, (arrow_type, nullable) in fields.items()]
    )
    if _tells_names_apart_by_case_alone(struct):
        return
    assert read_ddl(SchemaFile(name="x", content=write_ddl(struct).encode())) == struct


def _tells_names_apart_by_case_alone(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return len({field.name.lower() for field in arrow_type}) < arrow_type.num_fields or any(
            _tells_names_apart_by_case_alone(f.type) for f in arrow_type
        )
    if pa.types.is_map(arrow_type):
        return _tells_names_apart_by_case_alone(arrow_type.item_type)
    return pa.types.is_list(arrow_type) and _tells_names_apart_by_case_alone(arrow_type.value_type)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'"5"', "str"),
        (b'"1e2"', "str"),
        (b'"NaN"', "str"),
        (b"true", "bool"),
        (b"false", "bool"),
        (b"{}", "object"),
        (b"[5]", "array"),
        (b"null", "null"),
    ],
)
def test_a_decimal_is_a_json_number_and_nothing_else(value: bytes, kind: str) -> None:
    said = f"Expected `decimal`, got `{kind}` - at `$."
    for ddl, record in (
        ("price decimal(5,2) NOT NULL", b'{"price":%s}'),
        ("at struct<price: decimal(5,2) NOT NULL>", b'{"at":{"price":%s}}'),
    ):
        (row,), (reason,) = decode(by_schema(ddl), [record % value])
        assert row is None and reason is not None and said in reason, ddl
    for ddl, record in (
        ("price decimal(5,2)", b'{"price":%s}'),
        ("l array<decimal(5,2)>", b'{"l":[%s]}'),
        ("m map<string,decimal(5,2)>", b'{"m":{"x":%s}}'),
    ):
        (row,), (reason,) = decode(by_schema(ddl), [record % value])
        if kind == "null":
            assert reason is None and row in ({"price": None}, {"l": [None]}, {"m": [("x", None)]})
        else:
            assert row is None and reason is not None and said in reason, ddl


def test_a_required_part_without_one_type_takes_any_json_and_has_to_be_there() -> None:
    schema = {
        "type": "object",
        "properties": {"any": {}, "in": {"type": "object", "properties": {"any": {}}, "required": ["any"]}},
        "required": ["any"],
    }
    values = [
        b'{"any":1}',
        b'{"any":"x"}',
        b'{"any":null}',
        b'{"any":{"x":[1]},"in":{"any":2}}',
        b"{}",
        b'{"any":1,"in":{}}',
    ]
    rows, reasons = decode(by_schema(json.dumps(schema)), values)
    assert [row and row["any"] for row in rows] == ["1", "x", None, '{"x":[1]}', None, None]
    assert reasons[:4] == [None] * 4
    assert [reason and reason.partition("schema: ")[2] for reason in reasons[4:]] == [
        "Object missing required field `any` - at `$`",
        "Object missing required field `any` - at `$.in`",
    ]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (b"-0", "0.00"),
        (b"1E+2", "100.00"),
        (b"12e-1", "1.20"),
        (b" 5 ", "5.00"),
        (b"0e999999", "0.00"),
        (b"100000e-3", "100.00"),
        (b"0.10000000", "0.10"),
    ],
)
def test_a_decimal_may_be_written_in_every_way_that_json_has(written: bytes, number: str) -> None:
    (row,), (reason,) = decode(by_schema("price decimal(5,2)"), [b'{"price":%s}' % written])
    assert (
        reason is None
        and row == {"price": decimal.Decimal(number)}
        and row["price"] == row["price"].quantize(decimal.Decimal("0.01"))
    )


@pytest.mark.parametrize(
    "written",
    [b"1e99999999999999999999", b"1e-99999999999999999999", b"1e-999999999", b"9" * 100_000, b"0." + b"1" * 100_000],
)
def test_a_number_without_bounds_is_no_decimal_and_holds_nobody_up(written: bytes) -> None:
    (row,), (reason,) = decode(by_schema("price decimal(5,2)"), [b'{"price":%s}' % written])
    assert row is None and reason is not None and "decimal(5,2) does not hold all digits" in reason


@pytest.mark.parametrize("written", [b"01", b"1.", b".5", b"+1", b"1e", b"NaN", b"Infinity", b"0x10", b"1_0"])
def test_what_json_does_not_know_is_no_decimal(written: bytes) -> None:
    (row,), (reason,) = decode(by_schema("price decimal(5,2)"), [b'{"price":%s}' % written])
    assert row is None and reason is not None and "malformed" in reason


@settings(max_examples=100, deadline=None)
@given(
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.decimals(-200, 200, places=2)
    | st.decimals(-200, 200, places=3)
)
def test_a_decimal_keeps_every_digit_or_has_a_reason(number: decimal.Decimal) -> None:
    (row,), (reason,) = decode(by_schema("price decimal(4,2)"), [b'{"price":%s}' % str(number).lower().encode()])
    fits = abs(number) < 100 and number == round(number, 2)
    assert (row is not None) == fits
    assert row is None or row["price"] == number
    assert reason is None or "decimal(4,2)" in reason


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcd"), documents, max_size=4).map(lambda found: json.dumps(found).encode())
        | st.binary(max_size=20),
        max_size=5,
    )
)
def test_any_input_is_a_value_or_has_a_reason_and_values_are_what_json_says(values: list[bytes]) -> None:
    decoded, reasons = decode(by_schema("a bigint, b double, c string, d array<boolean>"), values)
    for value, row, reason in zip(values, decoded, reasons, strict=True):
        if reason is None:
            told = json.loads(value)
            assert row == {
                name: told.get(name) if name != "b" or told.get(name) is None else float(told["b"]) for name in "abcd"
            }
        else:
            assert row is None
            assert not _fits(value)


def _fits(value: bytes) -> bool:
    """The same question put to the standard library."""
    try:
        told = json.loads(value, parse_constant=lambda _: {}["no such number"])
    except (ValueError, KeyError):
        return False
    if not isinstance(told, dict):
        return False
    a, b, c, d = (told.get(name) for name in "abcd")
    return (
        (a is None or (type(a) is int and -(2**63) <= a < 2**63))
        and (b is None or type(b) in (int, float))
        and (c is None or type(c) is str)
        and (d is None or (type(d) is list and all(each is None or type(each) is bool for each in d)))
    )


def test_a_number_that_a_float_cannot_hold_has_a_reason() -> None:
    made = decoder("json", schema=SchemaFile(name="x.ddl", content=b"f float, m map<string, float>"))
    fits, not_any_more = b'{"f": 3.4028235e38, "m": {"a": -3.4028235677973362e38}}', b'{"f": 3.4028235677973366e38}'
    values, reasons = decode(made, [fits, not_any_more, b'{"f": 1e39}', b'{"m": {"a": -1e39}}'])
    assert values[0]["f"] == values[0]["m"][0][1] * -1 == 3.4028234663852886e38
    assert values[1:] == [None] * 3
    assert [str(each).partition(":")[2] for each in reasons[1:]] == [
        " float does not hold 3.4028235677973366e+38 - at `$.f`",
        " float does not hold 1e+39 - at `$.f`",
        " float does not hold -1e+39 - at `$.m[...]`",
    ]


def test_an_offset_that_leads_out_of_the_calendar_does_not_fit() -> None:
    made = decoder("json", schema=SchemaFile(name="x.ddl", content=b"at timestamp"))
    values, reasons = decode(
        made,
        [
            b'{"at":"0001-01-01T00:00:00+14:00"}',
            b'{"at":"0001-01-01T00:00:00Z"}',
            b'{"at":"9999-12-31T23:59:59-01:00"}',
        ],
    )
    assert [value is None for value in values] == [True, False, True]
    assert all(
        "beyond the years 1 to 9999" in str(reasons[number]) or "out of range" in str(reasons[number])
        for number in (0, 2)
    )


@pytest.mark.parametrize("name", ["größe", "имя", "价格", "😀", "e\u0301", "\u2028"])
@pytest.mark.parametrize("escaped", [False, True])
def test_a_field_whose_name_is_not_ascii_has_its_value(name: str, escaped: bool) -> None:
    schema = by_schema(
        f"id bigint, `{name}` bigint not null, o struct<`{name}`: array<struct<`{name}`: map<string, "
        f"struct<`{name}`: int>>>>>"
    )
    record = {"id": 1, name: 2, "o": {name: [{name: {name: {name: 3}}}]}}
    values, reasons = decode(schema, [json.dumps(record, ensure_ascii=escaped).encode()])
    assert reasons == [None]
    assert values == [record | {"o": {name: [{name: [(name, {name: 3})]}]}}]


def fields_of(kind: st.SearchStrategy[Any], *, most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Names that differ by case alone are refused."""
    return st.lists(st.tuples(names, kind), min_size=1, max_size=most, unique_by=lambda field: field[0].lower()).map(
        dict
    )


nested_fields = st.recursive(
    st.integers(-(2**31), 2**31), lambda inner: fields_of(inner, most=3) | inner.map(lambda each: [each]), max_leaves=6
)


@settings(max_examples=100, deadline=None)
@given(fields_of(nested_fields, most=4), st.booleans())
def test_fields_of_any_name_have_their_values_with_a_schema(record: dict[str, Any], escaped: bool) -> None:
    made = by_schema(json.dumps({"type": "struct", "fields": _fields_of(record)}))
    assert decode(made, [json.dumps(record, ensure_ascii=escaped).encode()]) == ([record], [None])


def _fields_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": _spark_type(part)} for name, part in record.items()]


def _spark_type(part: Any) -> Any:
    if isinstance(part, dict):
        return {"type": "struct", "fields": _fields_of(part)}
    return {"type": "array", "elementType": _spark_type(part[0])} if isinstance(part, list) else "long"
