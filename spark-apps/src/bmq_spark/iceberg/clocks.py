"""This machine's clock against that of a table's store, and what Iceberg says where two machines' clocks disagree.

Iceberg takes no commit that is more than a minute before the newest one, whoever made that: one commit by a clock that
is ahead would keep everybody from the table until that time.
"""

import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError

from bmq.clocks.store_clock import skew_of
from bmq_spark.errors import JobStopped
from bmq_spark.table.clocks import SKEW_MS_MAX

ICEBERG_TAKES_MS: Final = 60_000
"""A commit may be so much older than the newest one: Iceberg's own bound."""
COMPARED_EVERY_S: Final = 3600
_TOO_OLD: Final = re.compile(r"Invalid update timestamp (\d{1,15}): before [a-z ]{1,60} (\d{1,15})")


class Stored(Protocol):
    """A table, with where it is stored."""

    @property
    def name(self) -> object:
        """As messages tell it."""

    @property
    def location(self) -> str:
        """Its folder's address."""

    @property
    def io(self) -> Any:
        """Iceberg's access to that."""


def now_ms() -> int:
    """The time by this machine's clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def too_old(table: object, said: str) -> JobStopped | None:
    """What to end with where a commit to the table was refused because of its time; None where it was not."""
    found = _TOO_OLD.search(said)
    if found is None:
        return None
    ours_ms, newest_ms = int(found[1]), int(found[2])
    return JobStopped(
        f"table {table}: its newest commit says {_shown(newest_ms)}, and this machine's clock says {_shown(ours_ms)}: "
        "Iceberg takes no commit that is more than a minute older than the newest. Either this clock is behind, or "
        "that of whoever committed then was ahead: set the one that is wrong. If it is not this one, nobody can commit "
        f"until {_shown(newest_ms - ICEBERG_TAKES_MS)}: run the job again then, or register the table's metadata of "
        "before that commit (docs/tables.md, Clocks); the place is kept"
    )


def skew_ms(table: Stored, clock_ms: Callable[[], int] = now_ms) -> int:
    """How far the store's clock is ahead of this machine's, by the time of a file that is made in the table's folder
    and deleted again; negative: behind. Raises Py4JError.
    """
    io: Any = table.io
    path = f"{table.location}/_bmq/clock-{secrets.token_hex(16)}"
    before_ms = clock_ms()
    io.newOutputFile(path).createOrOverwrite().close()
    after_ms = clock_ms()
    try:
        modified_ms = int(io.listPrefix(path).iterator().next().createdAtMillis())
    finally:
        io.deleteFile(path)
    return skew_of(before_ms=before_ms, after_ms=after_ms, modified_ms=modified_ms)


def ahead_of_the_stores(table: Stored, skew_ms: int) -> JobStopped | None:
    """What to end with before anything is committed where this machine's clock is so far ahead that a commit would keep
    others from the table; None where it is not.
    """
    if -skew_ms <= SKEW_MS_MAX:
        return None
    return JobStopped(
        f"table {table.name}: this machine's clock is {-skew_ms // 1000} s ahead of the store's: nothing is committed, "
        "since after a commit of the future Iceberg takes nobody's until then: set the clock; the place is kept"
    )


class Watched:
    """This machine's clock, which is compared with the store's before the first commit of a job, and at most once an
    hour.
    """

    def __init__(
        self, clock_ms: Callable[[], int] = now_ms, *, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock_ms, self._elapsed_s = clock_ms, elapsed_s
        self._compared_s: float | None = None

    def require(self, table: Stored) -> None:
        """Raises JobStopped where this machine's clock is ahead; not where the store does not tell its time."""
        if self._compared_s is not None and self._elapsed_s() - self._compared_s < COMPARED_EVERY_S:
            return
        try:
            skew = skew_ms(table, self._clock_ms)
        except Py4JError:  # as without the right to list, which a job needs for nothing else
            skew = 0
        if (stopped := ahead_of_the_stores(table, skew)) is not None:
            raise stopped
        self._compared_s = self._elapsed_s()


def _shown(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
