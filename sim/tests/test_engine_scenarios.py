"""A whole node, unmodified, in the simulator. More seeds: `python -m bmq_sim --seeds 0-9999`."""

import pytest

from bmq_sim.main import replay_command, run_seeds
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.world import simulate

SEEDS = {"engine": 120, "retries": 80, "takeover": 40, "garbage": 40, "lost-object": 40, "tight-memory": 40, "quiet": 40, "sleeper": 8}


@pytest.mark.seeds
@pytest.mark.parametrize("name", SEEDS)
def test_every_invariant_holds(name: str) -> None:
    failed = [
        f"{outcome.error}\n  {replay_command(name, outcome.seed)}" for outcome in run_seeds(name, range(SEEDS[name])) if outcome.error is not None
    ]
    assert failed == []


@pytest.mark.parametrize("name", SEEDS)
def test_a_run_of_a_whole_node_replays_exactly(name: str) -> None:
    for seed in range(3):
        first = simulate(SCENARIOS[name], seed)
        assert simulate(SCENARIOS[name], seed, trace=lambda _: None) == first
