"""Leading controllers that hang, are replaced, and wake up: what happened meanwhile is not theirs to judge."""

import asyncio

from bmq_node.configuration.values import Role
from bmq_sim.checkers import InvariantViolated
from bmq_sim.cluster.faults import Kind
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

REPLACED_S = 9.0
ROUNDS = 3
ASLEEP_S_MIN = 3.0
ASLEEP_S_MAX = 11.0


async def replaced(world: World) -> None:
    """With a standby, which leads while the leader hangs; topics come and go all the time."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.01, 0.05)))
    stage = Stage(world, {Role.CONTROLLER: 2, Role.BROKER: 2, Role.PROXY: 1})
    await stage.begin()
    for _ in range(ROUNDS):
        leader = stage.cluster.leader()
        if leader is not None and leader.serving:
            stage.faults.count(Kind.PAUSE, stage.activity.steps_of(leader.host))
            stage.faults.pause(leader, 3 + REPLACED_S * rng.random())
        await asyncio.sleep(REPLACED_S + 5 * rng.random())
    await stage.end()


async def alone(world: World) -> None:
    """Without a standby: whoever was not heard because the leader hung is not taken for dead."""
    rng = world.rng("scenario")
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=0.02)
    stage = Stage(world, {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 1})
    await stage.begin()
    await asyncio.sleep(5)
    before = _epochs(stage)
    for _ in range(ROUNDS):
        leader = stage.cluster.leader()
        assert leader is not None
        stage.faults.count(Kind.PAUSE, stage.activity.steps_of(leader.host))
        stage.faults.pause(leader, ASLEEP_S_MIN + (ASLEEP_S_MAX - ASLEEP_S_MIN) * rng.random())
        await asyncio.sleep(ASLEEP_S_MAX + 3)
    if (after := _epochs(stage)) != before:
        raise InvariantViolated(
            f"nobody is taken for dead while its leader sleeps: node epochs were {before}, they are {after}"
        )
    await stage.end()


def _epochs(stage: Stage) -> dict[int, int]:
    return {int(node_id): int(node.broker_epoch) for node_id, node in stage.cluster.image().nodes.items()}
