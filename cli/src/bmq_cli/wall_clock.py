"""The command's clocks, in one place."""

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def utc_text() -> str:
    """`20260131T120000Z`."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def monotonic_s() -> float:
    """For durations."""
    return time.monotonic()


def sleep_s(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)
