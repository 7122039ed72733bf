"""Carrying forward loses nothing in any interleaving of a small bound, and each of its rules is needed."""

import carry_model
import pytest


def test_no_interleaving_of_carrying_forward_loses_what_was_acknowledged() -> None:
    outcome = carry_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", carry_model.RULES)
def test_each_rule_of_carrying_forward_is_needed(rule: str) -> None:
    outcome = carry_model.check(without=rule)
    assert outcome.wrong is not None, str(outcome)
