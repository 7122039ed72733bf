import pytest

from bmq_sim.main import run_seeds
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.world import simulate

STORAGE = ("flat-logs", "streams")


@pytest.mark.seeds
@pytest.mark.parametrize("name", STORAGE)
def test_logs_in_the_store_keep_their_promises(name: str) -> None:
    assert [outcome for outcome in run_seeds(name, range(150)) if outcome.error is not None] == []


@pytest.mark.parametrize("name", STORAGE)
def test_a_seed_replays_exactly(name: str) -> None:
    for seed in range(2):
        assert simulate(SCENARIOS[name], seed) == simulate(SCENARIOS[name], seed)


def test_a_trace_changes_nothing() -> None:
    lines: list[str] = []
    assert simulate(SCENARIOS["streams"], 3, trace=lines.append) == simulate(SCENARIOS["streams"], 3)
    assert any("sealed at" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "bug"), [("streams", "complete-out-of-order"), ("flat-logs", "claim-without-listing")]
)
def test_a_bug_planted_in_a_log_is_found(name: str, bug: str) -> None:
    assert any(outcome.error is not None for outcome in run_seeds(name, range(300), planted=bug))
