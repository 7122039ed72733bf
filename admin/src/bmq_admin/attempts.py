"""Whom a request goes to, and when again: what both clients do, without doing it. Pure.

A course yields what is to be done next and is sent what came of it.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from bmq_admin.answers import Answered
from bmq_admin.errors import AdminError, AdminProblem, NotReached, TimedOut

PAUSE_S: Final = 0.25
_SOON: Final = frozenset(("LoadsUnknown", "NoLeader", "Starting", "TooManyRequests"))
"""Problems that are over in a moment where all is well: nobody leads, or the leader is new and knows too little yet."""


@dataclass(frozen=True, slots=True)
class Send:
    """The request to this address; to be answered with what came."""

    url: str


@dataclass(frozen=True, slots=True)
class Pause:
    """So long."""

    seconds: float


Outcome = Answered | AdminError
Course = Generator[Send | Pause, Outcome | None, Answered]


def attempts(urls: Sequence[str], *, patience_s: float) -> Course:
    """Asks the first of several addresses of one cluster that answers, and for so long again while it is a matter of a
    moment. Raises AdminError.
    """
    for _ in range(int(patience_s / PAUSE_S)):
        try:
            return (yield from _first_reached(urls))
        except AdminProblem as problem:
            if problem.code not in _SOON:
                raise
        yield Pause(PAUSE_S)
    return (yield from _first_reached(urls))


def _first_reached(urls: Sequence[str]) -> Course:
    failures: list[AdminError] = []
    for url in urls:
        match (yield Send(url)):
            case Answered() as answered:
                return answered
            case NotReached() | TimedOut() as failure:
                failures.append(failure)
            case AdminError() as failure:
                raise failure
            case None:
                raise AssertionError("what was sent has an outcome")
    raise failures[0]
