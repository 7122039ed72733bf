"""Long work in a thread gives up the interpreter now and then."""

import pytest

from bmq.fairness import giving_way
from bmq.fairness.giving_way import STEPS, GivingWay


def test_the_interpreter_is_given_up_once_in_so_many_steps_for_no_time_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(giving_way, "sleep", slept.append)
    work = GivingWay()
    for _ in range(STEPS * 3 - 1):
        work.step()
    assert slept == [0, 0]
    work.step()
    assert slept == [0, 0, 0]
