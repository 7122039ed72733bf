"""A planned move loses nothing in any interleaving of a small bound, and each of its rules is needed."""

import move_model
import pytest


@pytest.mark.parametrize("bounds", [move_model.STREAMS, move_model.MANIFESTS])
def test_no_interleaving_of_planned_moves_loses_what_was_acknowledged(bounds: move_model.Bounds) -> None:
    outcome = move_model.check(bounds)
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", move_model.RULES)
def test_each_rule_of_a_planned_move_is_needed(rule: str) -> None:
    assert any(
        move_model.check(bounds, without=rule).wrong is not None
        for bounds in (move_model.STREAMS, move_model.MANIFESTS)
    )
