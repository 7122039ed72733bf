"""A stream's lines are those of the whole text, however it is cut, and what is kept of them is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.errors import EndlessLine, LineTooLong
from bmq_databus.messages.lines import Lines

LINE_MAX = 6


def cut(parts: list[bytes]) -> list[bytes | None]:
    """None: a line that was too long."""
    lines = Lines(line_bytes_max=LINE_MAX, silent_bytes_max=10_000)
    found: list[bytes | LineTooLong] = []
    for part in parts:
        found += lines.feed(part)
        assert lines.begun_bytes <= LINE_MAX
    found += lines.end()
    return [None if isinstance(line, LineTooLong) else line.strip() for line in found]


@given(st.lists(st.text("ab \n", max_size=12).map(str.encode), max_size=12))
def test_lines_are_the_same_however_they_are_cut(parts: list[bytes]) -> None:
    whole = [line.lstrip() for line in b"".join(parts).split(b"\n") if line.strip()]
    assert cut(parts) == [line.strip() if len(line) <= LINE_MAX else None for line in whole]


def test_a_line_that_is_too_long_is_told_once_and_the_next_one_is_taken() -> None:
    assert cut([b"a\n", b"toolong" * 9, b"and longer", b" still\nb\n"]) == [b"a", None, b"b"]


@pytest.mark.parametrize("part", [b"\n" * 100, b"x" * 100, b" \t" * 50])
def test_what_has_no_message_for_long_is_given_up(part: bytes) -> None:
    lines = Lines(line_bytes_max=LINE_MAX, silent_bytes_max=1_000)
    with pytest.raises(EndlessLine, match="have no message"):
        for _ in range(11):
            list(lines.feed(part))
