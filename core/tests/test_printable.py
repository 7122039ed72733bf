"""What strangers write does nothing to the terminals of those who read it."""

import io
import json
import logging

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from bmq.naming.printable import printable
from bmq.runtime.logging import configure_logging

EVIL = "\x1b[2J\x1b]0;title\x07\n\r\x9b31m\u202e\u2066\x00"


@given(st.text())
def test_nothing_that_cannot_be_seen_is_left_and_what_can_be_seen_is_as_it_was(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text
    assert json.loads(f'"{printable(json.dumps(text, ensure_ascii=False)[1:-1])}"') == text


def test_long_texts_are_cut_and_say_so() -> None:
    assert printable("x" * 30_000, chars_max=10) == "xxxxxxxxxx… (30000 characters)"


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_line_of_the_log_is_one_line_without_commands_and_of_bounded_length(form: str) -> None:
    stream = io.StringIO()
    configured, handlers, level = structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level
    try:
        configure_logging(environment={"BMQ_LOG_FORMAT": form}, stream=stream)
        structlog.get_logger().warning("client refused", client_id=EVIL + "x" * 32_000, reason=EVIL)
        logging.getLogger("bmq.elsewhere").warning("member %s joins", EVIL)
    finally:
        structlog.configure(**configured)
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    written = stream.getvalue()
    assert len(written.splitlines()) == 2
    assert all(line.isprintable() for line in written.split("\n"))
    assert len(written) < 8_000
