"""Which of many has most, whatever they take and give back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.fairness.fullest import Fullest


@given(steps=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=200))
def test_the_fullest_is_one_that_has_most(steps: list[tuple[str, bool]]) -> None:
    fullest, held = Fullest[str](), Counter[str]()
    for holder, takes in steps:
        if takes:
            fullest.take(holder)
            held[holder] += 1
        elif held[holder]:
            fullest.give_back(holder)
            held[holder] -= 1
        assert fullest.total == held.total()
        if held.total():
            assert held[fullest.fullest] == max(held.values())
    for holder, pieces in held.items():
        for _ in range(pieces):
            fullest.give_back(holder)
    with pytest.raises(KeyError):
        _ = fullest.fullest


def test_of_two_that_have_as_much_the_one_that_has_had_it_for_longest_is_named() -> None:
    fullest = Fullest[str]()
    for holder in ("a", "b", "b", "a"):
        fullest.take(holder)
    assert fullest.fullest == "b"
