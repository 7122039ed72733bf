"""What is simulated, by name."""

from collections.abc import Mapping
from typing import Final

from bmq_sim.scenarios import engine, flat_logs, garbage, lost_object, retries, streams, takeover, tight_memory
from bmq_sim.world import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "engine": engine.scenario,
    "flat-logs": flat_logs.scenario,
    "garbage": garbage.scenario,
    "lost-object": lost_object.scenario,
    "retries": retries.scenario,
    "streams": streams.scenario,
    "takeover": takeover.scenario,
    "tight-memory": tight_memory.scenario,
}
