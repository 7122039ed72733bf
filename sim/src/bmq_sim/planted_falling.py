"""Bugs to plant in lanes whose messages go on to the base: whose turn it is, and who may do what in it.

As in bmq_sim.planted: each patches the real function and is what a hurried change would do.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from bmq.errors import TurnIsOver
from bmq_broker import handed_over
from bmq_broker.partitions import producers
from bmq_proxy.lanes.fallback import rewriting

Plant = Callable[[], AbstractContextManager[Any]]


def _closing_turn_goes_on() -> AbstractContextManager[Any]:
    """The base's owner takes batches of a turn of which it has said how far it got."""
    real = handed_over.check_handed_over

    def check_handed_over(image: Any, tp: Any, header: Any, *, is_handed_over: bool) -> None:
        try:
            real(image, tp, header, is_handed_over=is_handed_over)
        except TurnIsOver:
            return

    return patch("bmq_broker.broker.check_handed_over", new=check_handed_over)


def _turns_are_forgotten() -> AbstractContextManager[Any]:
    """A partition of the base forgets how far a turn got that goes on, as it does with producers that fall silent."""
    real = producers.Producers.without_turns

    def without_turns(self: producers.Producers, is_over: Callable[[int], bool]) -> producers.Producers:
        return real(self, lambda _: True)

    return patch.object(producers.Producers, "without_turns", new=without_turns)


def _nested_names_are_lost() -> AbstractContextManager[Any]:
    """What comes from a lane that is nested goes on under the name of the one around it."""
    real = rewriting._of_lane

    def of_lane(said: Any, lane: str, nested: Any) -> Any:
        return real(said, lane, ())

    return patch.object(rewriting, "_of_lane", new=of_lane)


PLANTED_FALLING: Final[Mapping[str, Plant]] = {
    "closing-turn-goes-on": _closing_turn_goes_on,
    "nested-names-are-lost": _nested_names_are_lost,
    "turns-are-forgotten": _turns_are_forgotten,
}
