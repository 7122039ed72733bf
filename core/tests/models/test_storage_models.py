"""The storage protocols hold in every interleaving of a small bound, and each rule is needed: without it something is lost.

Larger bounds, by hand: `python -c "import stream_model as m; print(m.check(m.Bounds(sealers=1, in_flight=3, last=4)))"` (3 M states, minutes).
"""

import flatlog_model
import pytest
import stream_model
import takeover_model

STREAM_BOUNDS = [
    stream_model.Bounds(sealers=1, last=2),
    stream_model.Bounds(sealers=2, last=1),
    stream_model.Bounds(sealers=2, last=1, ahead=2, resends=0),
]


@pytest.mark.parametrize("bounds", STREAM_BOUNDS, ids=str)
def test_no_interleaving_of_a_stream_loses_what_was_acknowledged(bounds: stream_model.Bounds) -> None:
    outcome = stream_model.check(bounds)
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.slow
def test_no_interleaving_of_a_longer_stream_with_two_sealers_loses_what_was_acknowledged() -> None:
    outcome = stream_model.check(stream_model.Bounds(sealers=2, last=2))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.parametrize("name", stream_model.SIMPLER)
def test_a_stream_protocol_that_looks_simpler_loses_or_reads_a_hole(name: str) -> None:
    bounds = stream_model.Bounds(sealers=2, last=2, ahead=2 if name == "adopt a seal above a hole" else 1)
    outcome = stream_model.check(bounds, without=stream_model.SIMPLER[name])
    assert outcome.wrong is not None, f"to {name} is enough?"
    assert len(outcome.trace) <= 14


def test_every_rule_of_a_stream_is_missing_from_a_simpler_protocol() -> None:
    assert {rule for rules in stream_model.SIMPLER.values() for rule in rules} == set(stream_model.RULES)


def test_no_interleaving_of_a_flat_log_drops_an_acknowledged_entry() -> None:
    outcome = flatlog_model.check(flatlog_model.Bounds(lost=0))
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.slow
def test_no_interleaving_of_a_flat_log_with_losses_drops_an_acknowledged_entry() -> None:
    outcome = flatlog_model.check(flatlog_model.Bounds(lost=1))
    assert outcome.wrong is None, str(outcome)


@pytest.mark.parametrize("rule", flatlog_model.RULES)
def test_each_rule_of_a_flat_log_is_needed(rule: str) -> None:
    assert flatlog_model.check(flatlog_model.Bounds(lost=0), without=rule).wrong is not None


def test_no_interleaving_of_a_take_over_loses_what_was_acknowledged() -> None:
    outcome = takeover_model.check()
    assert outcome.wrong is None, str(outcome)
    assert outcome.states > 10_000


@pytest.mark.parametrize("rule", takeover_model.RULES)
def test_each_rule_of_a_take_over_is_needed(rule: str) -> None:
    assert takeover_model.check(without=rule).wrong is not None
