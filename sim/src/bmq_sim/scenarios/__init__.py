"""What is simulated, by name."""

from collections.abc import Mapping
from typing import Final

from bmq_sim.scenarios import cluster_calm, engine, flat_logs, garbage, lost_object, quiet, retries, sleeper, streams, takeover, tight_memory
from bmq_sim.world import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "cluster-calm": cluster_calm.scenario,
    "engine": engine.scenario,
    "flat-logs": flat_logs.scenario,
    "garbage": garbage.scenario,
    "lost-object": lost_object.scenario,
    "quiet": quiet.scenario,
    "retries": retries.scenario,
    "sleeper": sleeper.scenario,
    "streams": streams.scenario,
    "takeover": takeover.scenario,
    "tight-memory": tight_memory.scenario,
}
