"""A whole node, unmodified, in the simulator. More seeds: `python -m bmq_sim --seeds 0-9999`."""

import pytest

from bmq_sim.main import replay_command, run_seeds
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.world import simulate

SEEDS = {
    "administration": 12,
    "damage": 20,
    "engine": 100,
    "garbage": 35,
    "lost-object": 40,
    "quiet": 35,
    "retries": 70,
    "sequences": 30,
    "sleeper": 5,
    "takeover": 35,
    "tight-memory": 40,
}


@pytest.mark.seeds
@pytest.mark.parametrize("name", SEEDS)
def test_every_invariant_holds(name: str) -> None:
    failed = [
        f"{outcome.error}\n  {replay_command(name, outcome.seed)}"
        for outcome in run_seeds(name, range(SEEDS[name]))
        if outcome.error is not None
    ]
    assert failed == []


@pytest.mark.parametrize("name", SEEDS)
def test_a_run_of_a_whole_node_replays_exactly(name: str) -> None:
    first = simulate(SCENARIOS[name], 1)
    assert simulate(SCENARIOS[name], 1, trace=lambda _: None) == first
