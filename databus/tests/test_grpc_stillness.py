"""Which connection gives way: the longest still, and one that had a call only where it was still for much longer."""

from bmq_databus.grpc.stillness import CALLED_COUNTS, Still, Stillness


def entered(stillness: Stillness[str], name: str, at_s: float, *, called: bool = False) -> Still[str]:
    one = stillness.enter(name, at_s)
    if called:
        stillness.begin_call(one)
        stillness.end_call(one, at_s)
    return one


def leaving(stillness: Stillness[str], now_s: float) -> str | None:
    found = stillness.gives_way(now_s)
    return None if found is None else found.of


def test_the_one_that_moved_first_gives_way() -> None:
    stillness = Stillness[str]()
    first = entered(stillness, "first", 0)
    entered(stillness, "second", 1)
    assert leaving(stillness, 2) == "first"
    stillness.moved(first, 2)
    assert leaving(stillness, 3) == "second"


def test_one_that_had_a_call_stays_before_those_that_never_had_one_unless_it_was_still_for_much_longer() -> None:
    stillness = Stillness[str]()
    entered(stillness, "called", 0, called=True)
    entered(stillness, "never", 9)
    assert leaving(stillness, 10) == "never"
    assert leaving(stillness, 9.9) == "called", "who has just come has had no time to make a call"
    assert 10 / 1 <= CALLED_COUNTS < 9.9 / 0.9


def test_one_with_a_call_gives_way_to_nobody() -> None:
    stillness = Stillness[str]()
    one = entered(stillness, "one", 0)
    stillness.begin_call(one)
    assert leaving(stillness, 1_000) is None
    stillness.begin_call(one)
    stillness.end_call(one, 1_000)
    assert leaving(stillness, 2_000) is None
    stillness.end_call(one, 2_000)
    assert leaving(stillness, 2_001) == "one"


def test_who_is_gone_does_not_come_back() -> None:
    stillness = Stillness[str]()
    one = entered(stillness, "one", 0)
    stillness.leave(one)
    stillness.moved(one, 1)
    stillness.leave(one)
    assert len(stillness) == 0
    assert leaving(stillness, 2) is None
