"""What is simulated, by name."""

from collections.abc import Mapping
from typing import Final

from bmq_sim.scenarios import (
    administration,
    cluster,
    cluster_calm,
    cluster_island,
    cluster_lagging,
    cluster_late_seal,
    cluster_late_versions,
    cluster_moves,
    cluster_seals,
    cluster_sleepers,
    cluster_topics,
    damage,
    engine,
    flat_logs,
    garbage,
    lost_object,
    quiet,
    retries,
    sleeper,
    streams,
    takeover,
    tight_memory,
)
from bmq_sim.world import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "administration": administration.scenario,
    "cluster": cluster.scenario,
    "cluster-calm": cluster_calm.scenario,
    "cluster-island": cluster_island.scenario,
    "cluster-lagging": cluster_lagging.proxies,
    "cluster-lagging-brokers": cluster_lagging.brokers,
    "cluster-late-seal": cluster_late_seal.deletes_soon,
    "cluster-late-handover": cluster_late_seal.keeps,
    "cluster-late-versions": cluster_late_versions.scenario,
    "cluster-leader-replaced": cluster_sleepers.replaced,
    "cluster-leader-sleeps": cluster_sleepers.alone,
    "cluster-moves": cluster_moves.scenario,
    "cluster-seals": cluster_seals.scenario,
    "cluster-topics": cluster_topics.scenario,
    "damage": damage.scenario,
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
