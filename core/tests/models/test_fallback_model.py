"""What of a lane goes on to the base is handled once, whoever dies in between, and each of its rules is needed."""

import fallback_model
import pytest


def test_no_interleaving_has_a_message_handled_in_both_or_in_neither() -> None:
    outcome = fallback_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", fallback_model.RULES)
def test_each_rule_of_going_on_to_the_base_is_needed(rule: str) -> None:
    outcome = fallback_model.check(without=rule)
    assert outcome.wrong is not None, str(outcome)
