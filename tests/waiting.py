"""How tests wait: `until` something is so, or, where a time itself is what is tested, as long as `let_pass` says.
Nothing else in tests sleeps in a thread, or looks again and again.

What is waited for comes within milliseconds, and on a machine that others use, too, within `WITHIN_S`: only what fails
takes that long.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

Found = TypeVar("Found")

WITHIN_S: Final = 30.0
LOOKS_MAX: Final = 2_000_000
"""Where no time passes between two looks there is an end, too."""
_SHOWN_MAX: Final = 3_000


class NeverSo(AssertionError):
    """What was waited for, how long, and what was there instead."""


def until(
    look: Callable[[], Found | None],
    what: str,
    timeout_s: float = WITHIN_S,
    *,
    holds: Callable[[Found], object] = bool,
    not_yet: type[Exception] | tuple[type[Exception], ...] = (),
    unless: Callable[[], object] = lambda: False,
    shows: Callable[[], object] | None = None,
    every_s: float = 0.05,
    every_s_max: float = 0.0,
) -> Found:
    """The first thing seen that `holds`: what is neither None nor false, unless said otherwise.

    `what` continues "waited for". A look that raises one of `not_yet` saw nothing; all else that it raises goes on to
    the caller. Nobody waits on once `unless` is so: the one who was to bring it about has ended. `shows` adds to the
    message, such as the end of a log. Raises NeverSo. The last look begins when the time is over, not before, and is
    not the first: a machine that let this process stand still has not failed the test. With `every_s_max` it looks less
    and less often, down to that: for looks that cost much.
    """
    began_s, looks = time.monotonic(), 0
    while True:
        looks += 1
        ended = bool(unless())
        is_last = ended or timeout_s <= 0 or (looks > 1 and time.monotonic() - began_s >= timeout_s)
        try:
            seen = look()
            if seen is not None and holds(seen):
                return seen
            last: object = seen
        except not_yet as error:
            last = error
        if is_last:
            raise NeverSo(_told(what, time.monotonic() - began_s, last, ended, shows))
        time.sleep(every_s)
        every_s = max(every_s, min(1.5 * every_s, every_s_max))


async def until_async(
    look: Callable[[], Found | Awaitable[Found | None] | None],
    what: str,
    timeout_s: float = WITHIN_S,
    *,
    holds: Callable[[Found], object] = bool,
    not_yet: type[Exception] | tuple[type[Exception], ...] = (),
    unless: Callable[[], object] = lambda: False,
    shows: Callable[[], object] | None = None,
    every_s: float | None = None,
) -> Found:
    """As `until`, in the time of the event loop, which may be simulated; looks may be awaited.

    It looks once in each turn of the loop, unless said otherwise; where no time passes by that, as in a simulated run,
    a millisecond later each.
    """
    loop = asyncio.get_running_loop()
    began_s, looks = loop.time(), 0
    while True:
        looks += 1
        looked_s = loop.time()
        ended = bool(unless())
        is_last = ended or timeout_s <= 0 or (looks > 1 and looked_s - began_s >= timeout_s) or looks >= LOOKS_MAX
        try:
            looked = look()
            seen = cast("Found | None", await looked if inspect.isawaitable(looked) else looked)
            if seen is not None and holds(seen):
                return seen
            last: object = seen
        except not_yet as error:
            last = error
        if is_last:
            raise NeverSo(_told(what, loop.time() - began_s, last, ended, shows))
        await asyncio.sleep((0 if loop.time() > looked_s else 0.001) if every_s is None else every_s)


def let_pass(seconds: float, why: str) -> None:
    """For what takes its time by its nature: a pause that is a part of the load, an outage, a while in which nothing
    may happen. Never for what can be looked for: see `until`.
    """
    assert why, "say what this time is"
    time.sleep(max(0.0, seconds))


def _told(what: str, took_s: float, last: object, ended: bool, shows: Callable[[], object] | None) -> str:
    why = "can no longer come about" if ended else "did not come about"
    more = "" if shows is None else f"\n{shows()}"
    return f"waited for {what}: it {why}, after {took_s:.1f} s there was {_short(repr(last))}{more}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
