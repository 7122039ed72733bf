"""An heir gives no offset again where what is left tells of lost manifest versions, and stops for nothing else; and
each of its rules is needed.
"""

import lost_versions_model
import pytest


def test_no_interleaving_with_lost_manifest_versions_gives_an_offset_again_or_stops_a_whole_partition() -> None:
    outcome = lost_versions_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", lost_versions_model.RULES)
def test_each_rule_of_opening_after_a_loss_is_needed(rule: str) -> None:
    assert lost_versions_model.check(without=rule).wrong is not None
