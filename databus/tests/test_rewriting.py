"""A message's line makes the same message again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bmq_databus.errors import BadMessage
from bmq_databus.messages.forms import HEADERS_MAX, NewMessage, from_json, from_json_lines, raw
from bmq_databus.messages.rewriting import line_of

DEEP = b"[" * 5_000 + b"]" * 5_000
contents = some.binary(max_size=20) | some.text(max_size=20).map(str.encode) | some.none()
values = (
    contents
    | some.sampled_from([b'{"a": 1.50, "a": 2}', b" {}", b"{} ", b'{"a":\n1}', b"[1", b"5", b'"x"', b"null", b"", DEEP])
    | some.sampled_from(
        [
            b'{"\\ud800": "\xff"}',
            b'["\\ud800"]',
            b"[1e999]",
            b"[01]",
            b"\xef\xbb\xbf{}",
            b"[]\x00",
            b"[1],[2]",
            b"{}],[{}",
        ]
    )
)
messages = some.builds(
    NewMessage,
    key=contents,
    value=values,
    headers=some.lists(some.tuples(some.text(max_size=5).filter(lambda name: "\0" not in name), contents)).map(tuple),
    timestamp_ms=some.just(-1) | some.integers(1, 253_402_300_799_999),
    partition=some.integers(-1, (1 << 31) - 1),
)


@given(messages)
def test_a_line_makes_the_message_again_in_all_that_it_has(message: NewMessage) -> None:
    line = line_of(message)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert from_json(line) == message
    assert [one for some in from_json_lines(line + line) for one in some] == [message, message]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (NewMessage(b"k", b"text"), {"key": "k", "text": "text"}),
        (NewMessage(None, None), {}),
        (NewMessage(b"", b""), {"key": "", "text": ""}),
        (NewMessage(b"\xff", b"\x00\xff"), {"keyBase64": "/w==", "base64": "AP8="}),
        (NewMessage(None, b'{"a":[1]}'), {"json": {"a": [1]}}),
        (NewMessage(None, b"17"), {"text": "17"}),
        (NewMessage(None, b"", (("a", b"1"), ("b", None))), {"headers": {"a": "1", "b": None}, "text": ""}),
        (
            NewMessage(None, None, (("a", b"1"), ("a", None), ("b", b"\xff"))),
            {"headers": [{"name": "a", "text": "1"}, {"name": "a"}, {"name": "b", "base64": "/w=="}]},
        ),
        (NewMessage(None, None, (), 17, 3), {"timestamp": 17, "partition": 3}),
    ],
)
def test_a_line_is_as_plain_as_the_message_lets_it_be(message: NewMessage, line: dict[str, Any]) -> None:
    assert json.loads(line_of(message)) == line
    assert from_json(line_of(message)) == message


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ('[{"name": "a", "text": "1", "base64": "AA=="}]', "one of text and base64"),
        ('[{"text": "1"}]', "name"),
        ('[{"name": "a", "value": "1"}]', "value"),
        ('[{"name": "a\\u0000"}]', "NUL"),
        ('["a"]', "object"),
        ("[" + ",".join(['{"name": "a"}'] * (HEADERS_MAX + 1)) + "]", "<= 1000"),
    ],
)
def test_headers_that_are_none_are_told(headers: str, said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        from_json(f'{{"headers": {headers}}}'.encode())


def test_a_message_as_it_is_has_no_more_headers_than_one_of_json() -> None:
    with pytest.raises(BadMessage, match="1001 headers"):
        raw(b"", key=None, headers=[("a", b"")] * (HEADERS_MAX + 1), timestamp=None, partition=None)
