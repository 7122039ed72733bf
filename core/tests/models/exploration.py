"""Breadth-first over every interleaving of a model: the first wrong state met has a shortest trace."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Outcome(NamedTuple):
    """How many states there are, and what was wrong in the first wrong one with the steps that led there; None: nothing
    in any.
    """

    states: int
    wrong: str | None
    trace: tuple[str, ...]

    def __str__(self) -> str:
        if self.wrong is None:
            return f"holds in all {self.states:,} states"
        return f"{self.wrong}: " + " → ".join(self.trace)


def explore(
    start: S,
    *,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    wrong: Callable[[S], str | None],
    states_max: int = 3_000_000,
) -> Outcome:
    """Goes through all states that `steps` reaches. Raises RuntimeError above `states_max`: then it has shown
    nothing.
    """
    came_from: dict[S, tuple[S, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for label, then in steps(state):
            if then in came_from:
                continue
            came_from[then] = (state, label)
            if (what := wrong(then)) is not None:
                return Outcome(len(came_from), what, _trace(came_from, then))
            queue.append(then)
        if len(came_from) > states_max:
            raise RuntimeError(f"more than {states_max:,} states: use smaller bounds")
    return Outcome(len(came_from), None, ())


def _trace(came_from: dict[S, tuple[S, str] | None], end: S) -> tuple[str, ...]:
    trace = []
    at = end
    while (previous := came_from[at]) is not None:
        at, label = previous
        trace.append(label)
    return tuple(reversed(trace))
