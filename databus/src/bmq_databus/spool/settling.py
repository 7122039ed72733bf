"""What became of messages, as it is written down beside their segments: runs of numbers, some at a time. Pure, but for
`write_steps`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bmq_databus.spool.done import runs
from bmq_databus.spool.frames import REFUSED, SENT, Step
from bmq_databus.spool.refused import Refused
from bmq_databus.spool.undone import UndoneSegment

SETTLED_MAX: Final = 2_000
"""So many outcomes are written down at a time, in a turn of the loop."""

StepsOfSegments = list[tuple[UndoneSegment, list[Step]]]


class Outcome(NamedTuple):
    """What became of messages from the number `first` to before `end`: SENT or REFUSED."""

    first: int
    end: int
    kind: int


class Settling:
    """What is not written down yet."""

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._refused: deque[Refused] = deque()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._outcomes)

    def add(self, numbers: Iterable[int], kind: int) -> None:
        """That became of them."""
        self._outcomes.extend([Outcome(first, first + count, kind) for first, count in runs(sorted(numbers))])

    def keep(self, refused: Refused) -> None:
        """A message that is to be kept where refused ones are."""
        self._refused.append(refused)

    def take(self) -> tuple[list[Outcome], deque[Refused]]:
        """Some of the outcomes, and what is to be kept before they are written down."""
        taken = [self._outcomes.popleft() for _ in range(min(SETTLED_MAX, len(self._outcomes)))]
        refused, self._refused = self._refused, deque()
        return taken, refused

    def put_back(self, taken: Sequence[Outcome], refused: Sequence[Refused]) -> None:
        """The disk did not take these outcomes, nor what is left to be kept."""
        self._outcomes.extendleft(reversed(taken))
        self._refused.extendleft(reversed(refused))


def steps_of(segments: Sequence[UndoneSegment], outcomes: Sequence[Outcome]) -> StepsOfSegments:
    """What is to be written beside which of the segments, which are in the order of their numbers."""
    firsts = [segment.file.first for segment in segments]
    steps: dict[int, list[Step]] = {}
    for kind in (SENT, REFUSED):
        for first, end in _merged(sorted((one.first, one.end) for one in outcomes if one.kind == kind)):
            while first < end and (at := bisect_right(firsts, first) - 1) >= 0:
                stop = min(end, firsts[at + 1] if at + 1 < len(firsts) else end)
                steps.setdefault(at, []).append(Step(kind, first, stop - first))
                first = stop
    return [(segments[at], steps[at]) for at in sorted(steps)]


def write_steps(written: StepsOfSegments) -> None:
    """Blocking. Raises OSError."""
    for segment, steps in written:
        segment.add(steps)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending spans (first, end) as those that touch none of the others."""
    found: list[tuple[int, int]] = []
    for first, end in spans:
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found
