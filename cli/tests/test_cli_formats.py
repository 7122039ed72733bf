"""Format strings, JSON lines, KEY=VALUE."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.records.produce import LineReading
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.formats import (
    DIRECTIVES,
    BadLine,
    Header,
    NewRecord,
    Record,
    compile_format,
    decode_bytes,
    encode_bytes,
    from_json_line,
    key_and_value,
    to_json_line,
    unescape,
)

RECORD = Record(
    topic="orders",
    partition=3,
    offset=17,
    timestamp_ms=1_700_000_000_123,
    key=b"k",
    value=b"hello",
    headers=[("a", b"1"), ("b", None)],
)
EMPTY = Record(topic="t", partition=0, offset=0)

headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=4)
records = st.builds(
    Record,
    topic=st.just("t"),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**62),
    append_time=st.booleans(),
    key=st.none() | st.binary(max_size=30),
    value=st.none() | st.binary(max_size=30),
    headers=headers,
)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (r"%k=%v\n", b"k=hello\n"),
        (r"%t/%p@%o\t%T", b"orders/3@17\t1700000000123"),
        ("%h", b"a=1,b=NULL"),
        ("%s %S %K", b"hello 5 1"),
        ("100%%", b"100%"),
        (r"\x00\xfF\0\r\\n", b"\0\xff\0\r\\n"),
        ("é", "é".encode()),
        ("", b""),
    ],
)
def test_a_record_is_rendered_as_the_format_says(form: str, line: bytes) -> None:
    assert compile_format(form)(RECORD) == line


def test_what_a_record_has_not_is_empty_and_its_length_is_minus_one() -> None:
    assert compile_format("%k|%v|%h|%T|%K|%S")(EMPTY) == b"|||-1|-1|-1"


@pytest.mark.parametrize("form", ["%", "%x", "a%", "\\", r"\q", r"\x", r"\x1", r"\xgg", r"\x1 "])
def test_an_unknown_directive_or_escape_is_an_error_of_usage(form: str) -> None:
    with pytest.raises(CommandFailed, match="means nothing") as caught:
        compile_format(form)
    assert caught.value.code is ExitCode.USAGE


@given(
    st.lists(
        st.sampled_from([*DIRECTIVES]) | st.text(st.characters(exclude_characters="%\\", codec="utf-8"), max_size=4),
        max_size=8,
    ),
    records,
)
def test_a_format_is_its_parts_one_after_the_other(parts: list[str], record: Record) -> None:
    expected = b"".join(DIRECTIVES[part][1](record) if part in DIRECTIVES else part.encode() for part in parts)
    assert compile_format("".join(parts))(record) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_format_compiles_or_is_refused(form: str) -> None:
    try:
        compile_format(form)(RECORD)
    except CommandFailed as failure:
        assert failure.code is ExitCode.USAGE


def test_separators_may_be_escaped() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape("%") == b"%"
    assert unescape(r"\x1f:") == b"\x1f:"


@given(records)
def test_what_consume_prints_as_json_produce_reads_back(record: Record) -> None:
    line = to_json_line(record)
    assert line.count(b"\n") == 1
    read = from_json_line(line)
    assert (read.key, read.value, list(read.headers)) == (record.key, record.value, list(record.headers))
    assert (read.timestamp_ms, read.partition) == (record.timestamp_ms, record.partition)


@given(st.none() | st.binary(max_size=40))
def test_bytes_survive_json(data: bytes | None) -> None:
    assert decode_bytes(json.loads(json.dumps(encode_bytes(data))), field="value") == data


def test_text_is_shown_as_text_and_other_bytes_as_base64() -> None:
    assert encode_bytes("schön".encode()) == "schön"
    assert encode_bytes(b"\xff") == {"base64": "/w=="}


def test_the_kind_of_timestamp_is_named() -> None:
    document = json.loads(to_json_line(Record(topic="t", partition=0, offset=0, timestamp_ms=5, append_time=True)))
    assert (document["timestamp"], document["timestamp_type"]) == (5, "append")
    assert json.loads(to_json_line(EMPTY))["timestamp_type"] is None


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value":"v"}', NewRecord(value=b"v", headers=[])),
        ("{}", NewRecord(headers=[])),
        ('{"key":null,"value":{"a":[1,true]}}', NewRecord(value=b'{"a":[1,true]}', headers=[])),
        ('{"value":7}', NewRecord(value=b"7", headers=[])),
        ('{"headers":{"a":"1","b":null}}', NewRecord(headers=[("a", b"1"), ("b", None)])),
        ('{"headers":[{"name":"a","value":"1"},{"name":"a"}]}', NewRecord(headers=[("a", b"1"), ("a", None)])),
        ('{"timestamp":"1970-01-01T00:00:01Z","partition":2}', NewRecord(headers=[], timestamp_ms=1000, partition=2)),
        ('{"topic":"other","offset":9,"value":"v"}', NewRecord(value=b"v", headers=[])),
    ],
)
def test_a_json_line_is_read(line: str, record: NewRecord) -> None:
    assert from_json_line(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vaule":1}', "unknown field 'vaule'"),
        (b'{"value":{"base64":"?"}}', "value: not base64"),
        (b'{"partition":-1}', "partition: not a whole number"),
        (b'{"partition":true}', "partition: not a whole number"),
        (b'{"timestamp":1.5}', "timestamp: not a whole number"),
        (b'{"timestamp":"soon"}', "timestamp: 'soon'"),
        (b'{"headers":"a"}', "headers: neither"),
        (b'{"headers":[1]}', "headers: a list holds"),
        (b'{"headers":[{"name":1}]}', "headers: a list holds"),
        (b'{"key":"\\ud800"}', "key: half a surrogate"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, why: str) -> None:
    with pytest.raises(BadLine) as caught:
        from_json_line(line)
    assert str(caught.value).startswith(why)


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore")))
def test_any_line_is_a_record_or_a_bad_line(line: bytes) -> None:
    with contextlib.suppress(BadLine):
        from_json_line(line)


def test_a_line_is_the_value_with_the_key_and_headers_of_the_options() -> None:
    options: list[Header] = [("h", b"1")]
    reading = LineReading(key=b"k", headers=tuple(options), partition=4)
    assert reading.record(b"v\r") == NewRecord(key=b"k", value=b"v\r", headers=(("h", b"1"),), partition=4)


def test_the_first_separator_ends_the_key() -> None:
    reading = LineReading(key_separator=b"::")
    assert reading.record(b"a::b::c") == NewRecord(key=b"a", value=b"b::c")
    assert reading.record(b"::") == NewRecord(key=b"", value=b"")
    with pytest.raises(BadLine, match="no key separator"):
        reading.record(b"a:b")


def test_what_a_json_line_says_goes_before_the_options_and_headers_add_up() -> None:
    reading = LineReading(json_lines=True, key=b"k", headers=(("h", b"1"),), partition=4)
    assert reading.record(b'{"value":"v"}') == NewRecord(key=b"k", value=b"v", headers=(("h", b"1"),), partition=4)
    own: Any = reading.record(b'{"key":"own","partition":0,"headers":{"x":"2"}}')
    assert (own.key, own.partition, own.headers) == (b"own", 0, (("h", b"1"), ("x", b"2")))


def test_key_and_value_are_split_at_the_first_equals_sign() -> None:
    assert key_and_value("a=b=c", option="--config") == ("a", "b=c")
    assert key_and_value("a=", option="--config") == ("a", "")
    for bad in ("a", "=b", ""):
        with pytest.raises(CommandFailed, match="not KEY=VALUE"):
            key_and_value(bad, option="--config")
