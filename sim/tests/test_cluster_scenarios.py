"""A whole cluster, composed as `bmq server` composes it, in the simulator. More seeds: `python -m bmq_sim --scenario cluster --seeds 0-9999`."""

import pytest

from bmq_sim.main import replay_command, run_seeds
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.world import simulate

SEEDS = {"cluster-calm": 10}


@pytest.mark.parametrize("name", SEEDS)
def test_every_invariant_holds_of_a_cluster(name: str) -> None:
    failed = [
        f"{outcome.error}\n  {replay_command(name, outcome.seed)}" for outcome in run_seeds(name, range(SEEDS[name])) if outcome.error is not None
    ]
    assert failed == []


@pytest.mark.parametrize("name", SEEDS)
def test_a_run_of_a_cluster_replays_exactly(name: str) -> None:
    first = simulate(SCENARIOS[name], 0)
    assert simulate(SCENARIOS[name], 0, trace=lambda _: None) == first
