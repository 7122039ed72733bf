"""What is simulated, by name."""

from collections.abc import Mapping
from typing import Final

from bmq_sim.scenarios import engine, flat_logs, streams
from bmq_sim.world import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "engine": engine.scenario,
    "flat-logs": flat_logs.scenario,
    "streams": streams.scenario,
}
