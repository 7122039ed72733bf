"""What applications write is taken as it is meant, or refused with a reason; nothing else comes of any bytes."""

import base64
import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.errors import BadMessage
from bmq_databus.messages import forms
from bmq_databus.messages.forms import (
    BODY_HEADERS_MAX,
    HEADERS_BYTES_FEW,
    MESSAGES_MAX,
    NewMessage,
    from_json,
    raw,
)


def from_json_array(body: bytes) -> list[NewMessage | BadMessage]:
    return [one for some in forms.from_json_array(body) for one in some]


def from_json_lines(body: bytes) -> list[NewMessage | BadMessage]:
    return [one for some in forms.from_json_lines(body) for one in some]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    value=st.none() | st.tuples(st.sampled_from(["text", "json", "base64"]), TEXTS),
    key=st.none() | TEXTS,
    headers=st.dictionaries(TEXTS.filter(lambda name: "\0" not in name), st.none() | TEXTS, max_size=3),
    timestamp=st.none() | st.integers(1, 253_402_300_799_999),
    partition=st.none() | st.integers(0, 2**31 - 1),
)
def test_a_message_has_all_that_was_written(
    value: tuple[str, str] | None,
    key: str | None,
    headers: dict[str, str | None],
    timestamp: int | None,
    partition: int | None,
) -> None:
    written: dict[str, object] = {"headers": headers}
    wanted: bytes | None = None
    if value is not None:
        kind, text = value
        wanted = json.dumps(text).encode() if kind == "json" else text.encode()
        written[kind] = base64.b64encode(text.encode()).decode() if kind == "base64" else text
    for name, one in (("key", key), ("timestamp", timestamp), ("partition", partition)):
        if one is not None:
            written[name] = one
    found = from_json(json.dumps(written).encode())
    assert found == NewMessage(
        key=None if key is None else key.encode(),
        value=wanted,
        headers=tuple((name, None if text is None else text.encode()) for name, text in headers.items()),
        timestamp_ms=-1 if timestamp is None else timestamp,
        partition=-1 if partition is None else partition,
    )
    assert from_json_array(json.dumps([written, written]).encode()) == [found, found]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"text"',
        "{",
        '{"text": "a", "json": 1}',
        '{"txt": "a"}',
        '{"text": 1}',
        '{"base64": "?"}',
        '{"key": "a", "keyBase64": "YQ=="}',
        '{"partition": -1}',
        '{"partition": 2147483648}',
        '{"timestamp": -5}',
        '{"timestamp": 1e300}',
        '{"headers": {"a": 1}}',
        '{"headers": [1]}',
        '{"headers": {"a\\u0000b": ""}}',
        '{"timestamp": 0}',
        '{"text": "\\ud800"}',
        '{"json": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"headers": ' + json.dumps({str(n): "" for n in range(1001)}) + "}",
    ],
)
def test_what_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(BadMessage) as refused:
        from_json(text.encode())
    assert str(refused.value)


@given(st.binary(max_size=60) | TEXTS.map(str.encode))
def test_any_bytes_are_messages_or_refused(body: bytes) -> None:
    for form in (from_json, from_json_array, from_json_lines):
        try:
            form(body)
        except BadMessage as bad:
            assert str(bad)


def test_each_message_of_an_array_is_refused_by_itself() -> None:
    found = from_json_array(b'[{"text": "a"}, {"text": 1}, 5, {"text": "b", "json": 1}, {"json": {"x": 1.50}}]')
    assert [isinstance(one, BadMessage) for one in found] == [False, True, True, True, False]
    assert isinstance(found[4], NewMessage)
    assert found[4].value == b'{"x": 1.50}'


@pytest.mark.parametrize(("timestamp", "partition"), [("x", None), (None, "-1"), ("9" * 30, None), (None, "٣")])
def test_numbers_of_a_raw_message_are_checked(timestamp: str | None, partition: str | None) -> None:
    with pytest.raises(BadMessage, match="a whole number from 0"):
        raw(b"", key=None, headers=(), timestamp=timestamp, partition=partition)


@pytest.mark.parametrize("text", [b'{"text": "caf\xe9"}', b'{"key": "\xff", "text": ""}'])
def test_text_that_is_not_utf_8_is_refused_alone(text: bytes) -> None:
    with pytest.raises(BadMessage, match=r"utf-8|UTF-8"):
        from_json(text)
    found = from_json_lines(b'{"text": "a"}\n' + text + b'\n{"text": "b"}')
    assert [isinstance(one, BadMessage) for one in found] == [False, True, False]


def test_an_array_is_bounded_before_it_is_decoded() -> None:
    for body in (b"[" + b"1," * 300_000 + b"1]", b'["' + bytes(5 << 20) + b'"]'):
        with pytest.raises(BadMessage, match="send lines of JSON"):
            from_json_array(body)


def test_a_body_has_so_many_messages_at_most() -> None:
    assert len(from_json_lines(b'{"text": ""}\n' * MESSAGES_MAX)) == MESSAGES_MAX
    with pytest.raises(BadMessage, match="10000 at most"):
        from_json_lines(b"{}\n" * (MESSAGES_MAX + 1))
    with pytest.raises(BadMessage, match="10000"):
        from_json_array(b"[" + b"{}," * MESSAGES_MAX + b"{}]")


def test_what_is_refused_keeps_nothing_but_its_reason() -> None:
    """The frames that it was raised in had fifteen kilobytes for each of ten thousand."""
    for found in (
        from_json_lines(b'{"text": 1}\nx'),
        from_json_array(b'[{"text": 1}, {}, {"key": "a", "keyBase64": ""}]'),
    ):
        for one in found:
            if isinstance(one, BadMessage):
                assert (one.__traceback__, one.__context__, one.__cause__) == (None, None, None)
    assert sum(isinstance(one, BadMessage) for one in from_json_lines(b'{"text": 1}\nx')) == 2


@pytest.mark.parametrize("form", [forms.from_json_array, forms.from_json_lines])
def test_the_messages_of_a_body_are_decoded_in_slices_of_bounded_work(
    form: Callable[[bytes], Iterator[list[NewMessage | BadMessage]]],
) -> None:
    def body(texts: list[bytes]) -> bytes:
        return b"[" + b",".join(texts) + b"]" if form is forms.from_json_array else b"\n".join(texts)

    for text in (b"{}", b'{"text": "%s"}' % (b"x" * 1_000), b"1"):
        slices = [len(some) for some in form(body([text] * 3_000))]
        assert sum(slices) == 3_000
        assert max(slices) <= forms.SLICE_BYTES // (len(text) + forms.MESSAGE_WORK_BYTES) + 1
    assert [len(some) for some in form(body([b'{"text": "%s"}' % (b"x" * 100_000)] * 3))] == [1, 1, 1]
    assert [len(some) for some in form(body([b"{}"] * 10))] == [10]


def test_headers_are_bounded_before_they_are_decoded_and_over_a_whole_body() -> None:
    many = b'{"headers": {' + b'"":"",' * (HEADERS_BYTES_FEW // 6) + b'"":""}}'
    with pytest.raises(BadMessage, match="headers of more than 262144 bytes have 8000 quotes at most"):
        from_json(many)
    few = {"headers": {str(n): "x" * 1_000 for n in range(1_000)}}
    assert len(from_json(json.dumps(few).encode()).headers) == 1_000
    one = json.dumps({"headers": {str(n): "" for n in range(1_000)}}).encode() + b"\n"
    assert len(from_json_lines(one * (BODY_HEADERS_MAX // 1_000))) == BODY_HEADERS_MAX // 1_000
    with pytest.raises(BadMessage, match="more than 100000 headers in all messages"):
        from_json_lines(one * (BODY_HEADERS_MAX // 1_000 + 1))


def test_an_error_has_no_more_of_a_fields_name_than_a_reader_needs() -> None:
    found = forms.tried(b'{"%s": 1}' % (b"x" * 100_000))
    assert isinstance(found, BadMessage) and len(str(found)) < 1_500
