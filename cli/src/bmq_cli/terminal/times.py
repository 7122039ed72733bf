"""Positions in a log as people write them: beginning, end, an offset, so many before the end, a time. Pure.

A whole number below 10^12 is an offset, from there on it is milliseconds since 1970 (10^12 is in 2001); `offset:N` and
`@MS` say which.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode

FIRST_NUMBER_THAT_IS_A_TIME: Final = 10**12
OFFSET_MAX: Final = 2**63 - 1
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"-([0-9]{1,15})(ms|s|m|h|d)")
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
FORMS: Final = (
    "beginning, end, an offset, -N (N records before the end), a time (2026-01-31T12:00:00Z, "
    "2026-01-31, -15m, milliseconds since 1970)"
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The log start."""


@dataclass(frozen=True, slots=True)
class End:
    """The high watermark."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """This offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """So many offsets before the high watermark."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


Position = Beginning | End | AtOffset | BeforeEnd | AtTime


def parse_position(text: str, *, now_ms: int, option: str) -> Position:
    """What `text` says. A time without a zone is local. Raises CommandFailed (usage) that names `option`."""
    position = _named(text.strip()) or _number(text.strip()) or _time(text.strip(), now_ms=now_ms)
    if position is None:
        raise CommandFailed(f"{option} {text}", "not a position", f"give {FORMS}", code=ExitCode.USAGE)
    return position


def parse_timestamp_ms(text: str) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time (without a zone: local); None where `text` is none or lies before
    1970.
    """
    try:
        moment = datetime.fromisoformat(text)
        timestamp_ms = (
            round(moment.timestamp() * 1000)
            if moment.tzinfo is None
            else (moment - _EPOCH) // timedelta(milliseconds=1)
        )
    except (ValueError, OverflowError, OSError):
        return None
    return timestamp_ms if timestamp_ms >= 0 else None


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _named(text: str) -> Position | None:
    match text.lower():
        case "beginning" | "earliest" | "start":
            return Beginning()
        case "end" | "latest":
            return End()
        case _:
            return None


def _number(text: str) -> Position | None:
    prefix = next((prefix for prefix in ("offset:", "@", "-") if text.startswith(prefix)), "")
    digits = text.removeprefix(prefix)
    if _NUMBER.fullmatch(digits) is None or int(digits) > OFFSET_MAX:
        return None
    number = int(digits)
    match prefix:
        case "offset:":
            return AtOffset(number)
        case "@":
            return AtTime(number)
        case "-":
            return BeforeEnd(number)
        case _:
            return AtTime(number) if number >= FIRST_NUMBER_THAT_IS_A_TIME else AtOffset(number)


def _time(text: str, *, now_ms: int) -> Position | None:
    if (ago := _AGO.fullmatch(text)) is not None:
        return AtTime(max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]]))
    timestamp_ms = parse_timestamp_ms(text)
    return None if timestamp_ms is None else AtTime(timestamp_ms)
