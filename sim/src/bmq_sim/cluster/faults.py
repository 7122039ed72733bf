"""What goes wrong in a simulated cluster: with a node, between two nodes, with a clock, between one node and the store.

Each fault is counted with what its node was doing when it came.
"""

import contextvars
import enum
from collections.abc import Callable
from random import Random

from bmq_node.configuration.values import Role
from bmq_sim.cluster.activity import Activity
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.process import SimNode
from bmq_sim.cluster.steps import Step
from bmq_sim.store import Fault, StoreFaults
from bmq_sim.world import World


class Kind(enum.StrEnum):
    """Kinds of faults. Those of the store have the names that its requests are marked with."""

    KILL = "kill"
    PAUSE = "pause"
    STOP = "stop"
    PARTITION = "partition"
    ONE_WAY = "one way"
    CUT = "cut"
    CLOCK = "clock"
    SLOW = "slow"
    REFUSED = "503"
    THROTTLED = "throttle"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreach"


OF_STORE = {
    Fault.SLOW: Kind.SLOW,
    Fault.REFUSED: Kind.REFUSED,
    Fault.THROTTLED: Kind.THROTTLED,
    Fault.UNKNOWN: Kind.UNKNOWN,
    Fault.UNREACHABLE: Kind.UNREACHABLE,
}
SKEW_MS_MAX = 50 * 60_000
"""A record's timestamp may lie an hour ahead of its broker's clock; producers have no skew."""


class Faults:
    """Does to nodes what goes wrong in one run, and counts it."""

    def __init__(self, world: World, cluster: SimCluster, activity: Activity) -> None:
        self._world = world
        self._cluster = cluster
        self._activity = activity
        self._rng = world.rng("faults")

    def inject(self, kind: Kind, node: SimNode, *, step: Step | None = None) -> None:
        """Does it to the node now, and counts it; `step` is one that the node is certainly in."""
        rng, world = self._rng, self._world
        steps = self._activity.steps_of(node.host) | ({step} if step is not None else set())
        world.note(f"fault {kind} at {node.host}: {', '.join(sorted(steps))}")
        self.count(kind, steps)
        match kind:
            case Kind.KILL:
                node.kill()
            case Kind.PAUSE:
                self.pause(node, rng.choice((0.3, 2.0, 5.0, 12.0)) * (0.5 + rng.random()))
            case Kind.STOP:
                node.stop()
            case Kind.PARTITION | Kind.ONE_WAY:
                self._separate(node, both_ways=kind is Kind.PARTITION)
            case Kind.CUT:
                world.network.lose_connections(node.host, probability=rng.choice((0.5, 1.0)))
            case Kind.CLOCK:
                world.work.injected["clock"] += 1
                node.clock.skew_ms = round(rng.choice((0.001, 0.03, 1.0)) * SKEW_MS_MAX * (2 * rng.random() - 1))
            case Kind.UNREACHABLE:
                world.store.cut_off(node.host, self._duration_s())
            case _:
                world.store.trouble(node.host, _store_faults(kind, world.store.faults, rng), self._duration_s())

    def count(self, kind: str, steps: set[Step]) -> None:
        """One more."""
        work = self._world.work
        work.faults[kind] += 1
        for step in steps:
            work.pairs[kind, step] += 1

    def count_requests(self) -> None:
        """Adds what the store did to single requests."""
        work = self._world.work
        for (fault, step), count in self._activity.faults.items():
            work.faults[OF_STORE[fault]] += count
            work.pairs[OF_STORE[fault], step] += count
        self._activity.faults.clear()

    def pause(self, node: SimNode, duration_s: float) -> None:
        """STOP, a while, CONT."""
        node.pause()
        self._later(duration_s, node.resume)

    def _separate(self, node: SimNode, *, both_ways: bool) -> None:
        others = [other for other in self._cluster.nodes.values() if other is not node and other.wanted]
        other = self._rng.choice(others).host
        self._world.note(f"no way between {node.host} and {other}")
        if both_ways:
            self._world.network.block_both_ways(node.host, other)
        elif self._rng.random() < 0.5:
            self._world.network.block(node.host, other)
        else:
            self._world.network.block(other, node.host)
        self._later(self._duration_s(), lambda: self._world.network.unblock_both_ways(node.host, other))

    def _duration_s(self) -> float:
        return self._rng.choice((0.5, 2.0, 10.0)) * (0.5 + self._rng.random())

    def _later(self, delay_s: float, then: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_s, then, context=contextvars.Context())


def of_role(cluster: SimCluster, role: Role, rng: Random) -> SimNode | None:
    """Some serving node of a role."""
    nodes = [node for node in cluster.with_role(role) if node.serving]
    return rng.choice(nodes) if nodes else None


def _store_faults(kind: Kind, usual: StoreFaults, rng: Random) -> StoreFaults:
    latency_s_min, latency_s_max = usual.latency_s_min, usual.latency_s_max
    match kind:
        case Kind.SLOW:
            return StoreFaults(
                latency_s_min=latency_s_min,
                latency_s_max=latency_s_max,
                slow_probability=0.7,
                slow_s_max=rng.choice((1.0, 4.0)),
            )
        case Kind.REFUSED:
            return StoreFaults(
                latency_s_min=latency_s_min,
                latency_s_max=latency_s_max,
                not_applied_probability=0.6,
                unavailable_probability=0.6,
                timeout_s=1.0,
            )
        case Kind.THROTTLED:
            return StoreFaults(
                latency_s_min=latency_s_min,
                latency_s_max=latency_s_max,
                not_applied_probability=0.4,
                unavailable_probability=0.4,
                timeout_s=0.1,
                refusal=Fault.THROTTLED,
            )
        case _:
            return StoreFaults(
                latency_s_min=latency_s_min,
                latency_s_max=latency_s_max,
                unknown_applied_probability=0.25,
                unknown_not_applied_probability=0.2,
                unknown_late_probability=0.2,
                late_s_max=rng.choice((1.0, 15.0)),
                timeout_s=rng.choice((0.5, 2.0)),
            )
