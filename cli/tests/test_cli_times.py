"""Positions and times as people write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.times import (
    FIRST_NUMBER_THAT_IS_A_TIME,
    AtOffset,
    AtTime,
    BeforeEnd,
    Beginning,
    End,
    Position,
    parse_position,
    parse_timestamp_ms,
)

NOW_MS = 1_800_000_000_000


def parse(text: str) -> Position:
    return parse_position(text, now_ms=NOW_MS, option="--from")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Beginning()),
        ("Earliest", Beginning()),
        ("end", End()),
        ("latest", End()),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("offset:1700000000000", AtOffset(1_700_000_000_000)),
        ("1700000000000", AtTime(1_700_000_000_000)),
        ("@5", AtTime(5)),
        ("-10", BeforeEnd(10)),
        ("-15m", AtTime(NOW_MS - 15 * 60_000)),
        ("-2h", AtTime(NOW_MS - 2 * 3_600_000)),
        ("-1d", AtTime(NOW_MS - 86_400_000)),
        ("-500ms", AtTime(NOW_MS - 500)),
        ("-999999d", AtTime(0)),
        ("2026-01-31T12:00:00Z", AtTime(1_769_860_800_000)),
        ("2026-01-31T12:00:00.25+00:00", AtTime(1_769_860_800_250)),
        ("2026-01-31T14:00:00+02:00", AtTime(1_769_860_800_000)),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert parse(text) == position


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 12, 30).astimezone()
    assert parse("2026-01-31T12:30") == AtTime(round(local.timestamp() * 1000))
    assert parse("2026-01-31 12:30:00") == parse("2026-01-31T12:30")


@pytest.mark.parametrize(
    "text",
    ["", "x", "--5", "-5x", "@", "offset:", "2026-13-01", "1969-12-31T00:00:00Z", "9223372036854775808", "１２", "-"],
)
def test_what_is_no_position_is_an_error_of_usage_that_names_the_option(text: str) -> None:
    with pytest.raises(CommandFailed, match="--from") as caught:
        parse(text)
    assert caught.value.code is ExitCode.USAGE


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_every_number_is_an_offset_or_a_time_and_a_prefix_decides(number: int) -> None:
    plain = parse(str(number))
    assert plain == (AtTime(number) if number >= FIRST_NUMBER_THAT_IS_A_TIME else AtOffset(number))
    assert parse(f"offset:{number}") == AtOffset(number)
    assert parse(f"@{number}") == AtTime(number)


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_an_iso_time_comes_back_to_the_millisecond(moment: datetime) -> None:
    expected_ms = int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
    assert parse_timestamp_ms(moment.isoformat()) == expected_ms


@given(st.text(max_size=30))
def test_any_text_is_a_position_or_a_one_line_error(text: str) -> None:
    try:
        parse(text)
    except CommandFailed as failure:
        assert failure.code is ExitCode.USAGE
