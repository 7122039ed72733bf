"""A whole cluster, composed as `bmq server` composes it, in the simulator. More seeds: `python -m bmq_sim --scenario
cluster --seeds 0-9999`.
"""

import pytest

from bmq_sim.main import replay_command, run_seeds
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.world import simulate

SEEDS = {
    "cluster": 2,
    "cluster-calm": 5,
    "cluster-copy": 3,
    "cluster-island": 1,
    "cluster-lagging": 2,
    "cluster-lagging-brokers": 1,
    "cluster-late-handover": 1,
    "cluster-late-seal": 1,
    "cluster-late-versions": 1,
    "cluster-leader-replaced": 1,
    "cluster-leader-sleeps": 1,
    "cluster-moves": 2,
    "cluster-seals": 1,
    "cluster-several": 1,
    "cluster-topics": 2,
}


@pytest.mark.seeds
@pytest.mark.parametrize("name", SEEDS)
def test_every_invariant_holds_of_a_cluster(name: str) -> None:
    outcomes = run_seeds(name, range(SEEDS[name]))
    failed = [
        f"{outcome.error}\n  {replay_command(name, outcome.seed)}" for outcome in outcomes if outcome.error is not None
    ]
    assert failed == []


@pytest.mark.parametrize("name", ["cluster", "cluster-calm"])
def test_a_run_of_a_cluster_replays_exactly(name: str) -> None:
    first = simulate(SCENARIOS[name], 1)
    assert simulate(SCENARIOS[name], 1, trace=lambda _: None) == first


def test_every_scenario_of_a_cluster_is_run() -> None:
    assert SEEDS.keys() == {name for name in SCENARIOS if name.startswith("cluster")}
