"""Places of streams: so many are open at a time, and where all are taken one in which no message came for a while gives
way to a new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from bmq_databus.errors import DatabusError
from bmq_databus.requests.room import TooMuchAtOnce

QUIET_S: Final = 10.0
"""A while."""
LEAVING_SHARE: Final = 4
"""So many streams, as a part of the places, may be on their way out beside those that stay: a fourth."""


class GaveWay(DatabusError):
    """A stream that ended for the sake of another one."""

    def __init__(self) -> None:
        super().__init__(
            f"no message came for {QUIET_S:g} s, and others waited for this stream's place: begin another one"
        )


class Placed(Protocol):
    """A stream, as far as its place is concerned."""

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more of it is read."""

    @property
    def quiet_s(self) -> float:
        """How long ago its last message was answered, or came; 0: one is under way."""

    def give_way(self) -> None:
        """Nothing more of it is read, and its end says why."""


P = TypeVar("P", bound=Placed)


class StreamPlaces(Generic[P]):
    """Those of one kind of streams."""

    def __init__(self, most: int, *, what: str = "streams") -> None:
        self._most = most
        self._what = what
        self._open: set[P] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[P]:
        return iter(self._open)

    def check(self) -> None:
        """That there may be one more, by way of another one's end where that is needed. Raises TooMuchAtOnce."""
        if len(self._open) < self._most:
            return
        staying = [one for one in self._open if not one.is_leaving]
        may_leave = len(self._open) < self._most + max(1, self._most // LEAVING_SHARE)
        if may_leave and len(staying) < self._most:
            return
        quietest = max(staying, key=lambda one: one.quiet_s, default=None)
        if quietest is None or not may_leave or quietest.quiet_s < QUIET_S:
            raise TooMuchAtOnce(f"{self._most} {self._what} are open already: write more by one of them, or try again")
        quietest.give_way()

    @contextmanager
    def open(self, stream: P) -> Iterator[None]:
        """While it lasts."""
        self._open.add(stream)
        try:
            yield
        finally:
            self._open.discard(stream)
