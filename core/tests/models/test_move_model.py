"""A planned move loses nothing in any interleaving of a small bound, and each of its rules is needed."""

import move_model
import pytest


def test_no_interleaving_of_planned_moves_loses_what_was_acknowledged() -> None:
    outcome = move_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", move_model.RULES)
def test_each_rule_of_a_planned_move_is_needed(rule: str) -> None:
    assert move_model.check(without=rule).wrong is not None
