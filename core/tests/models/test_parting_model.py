"""A batch that is parted among lanes is in each log once and in order, and each of the rules for it is needed."""

import parting_model
import pytest


def test_no_interleaving_loses_doubles_or_reorders_what_is_parted() -> None:
    outcome = parting_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", parting_model.RULES)
def test_each_rule_of_parting_is_needed(rule: str) -> None:
    outcome = parting_model.check(without=rule)
    assert outcome.wrong is not None, str(outcome)
