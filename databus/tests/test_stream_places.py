"""Places of streams: the quietest one gives way to a new one, and only so many are on their way out."""

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from bmq_databus.requests.places import QUIET_S, StreamPlaces
from bmq_databus.requests.room import TooMuchAtOnce

MOST = 8
LEAVING_MAX = 2


@dataclass(eq=False)
class Open:
    quiet_s: float = 0.0
    is_leaving: bool = False

    def give_way(self) -> None:
        self.is_leaving = True


def test_the_quietest_gives_way_and_only_where_all_places_are_taken() -> None:
    places = StreamPlaces[Open](MOST)
    with ExitStack() as opened:
        streams = [Open(quiet_s=QUIET_S + at) for at in range(MOST)]
        for one in streams:
            places.check()
            opened.enter_context(places.open(one))
        assert not any(one.is_leaving for one in streams)
        places.check()
        assert [one.is_leaving for one in streams] == [False] * (MOST - 1) + [True]
        places.check()
        assert sum(one.is_leaving for one in streams) == 1, "its place was not taken yet"
        opened.enter_context(places.open(Open()))
        places.check()
        assert [one.is_leaving for one in streams] == [False] * (MOST - 2) + [True] * 2


def test_who_writes_stays_and_who_comes_is_told() -> None:
    places = StreamPlaces[Open](MOST, what="streams of a kind")
    with ExitStack() as opened:
        streams = [Open(quiet_s=QUIET_S - 0.1) for _ in range(MOST)]
        for one in streams:
            opened.enter_context(places.open(one))
        with pytest.raises(TooMuchAtOnce, match="8 streams of a kind are open already"):
            places.check()
        assert not any(one.is_leaving for one in streams)
    places.check()


def test_few_are_on_their_way_out() -> None:
    places = StreamPlaces[Open](MOST)
    with ExitStack() as opened:
        for _ in range(MOST + LEAVING_MAX):
            places.check()
            opened.enter_context(places.open(Open(quiet_s=2 * QUIET_S)))
        assert len(places) == MOST + LEAVING_MAX
        with pytest.raises(TooMuchAtOnce):
            places.check()
