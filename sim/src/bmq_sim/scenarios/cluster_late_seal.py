"""A broker that no controller hears writes on, while whoever seals its stream is slow, and so is its handing over."""

import asyncio

from bmq_node.configuration.values import Role
from bmq_sim.cluster.faults import Kind
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import Fault, StoreFaults
from bmq_sim.world import World

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 1}
UNHEARD_S = 20.0
ROUNDS = 2


async def deletes_soon(world: World) -> None:
    """The broker deletes its WAL as fast as it can: the seal may fall into the deleted past."""
    await _run(world, deletes_soon=True)


async def keeps(world: World) -> None:
    """The broker keeps its WAL, which its heirs need, and they come late: nobody may delete it meanwhile."""
    await _run(world, deletes_soon=False)


async def _run(world: World, *, deletes_soon: bool) -> None:
    rng = world.rng("scenario")
    world.list_by_seed()
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=0.01)
    stage = Stage(world, SHAPE, partitions=1, writes_only=True, deletes_soon=deletes_soon)
    cluster = stage.cluster
    await stage.begin()
    [controller] = cluster.with_role(Role.CONTROLLER)
    for _ in range(ROUNDS):
        await asyncio.sleep(2 + rng.random())
        brokers = cluster.with_role(Role.BROKER)
        for broker in brokers:
            if broker.spec.node_id == _owner(stage):
                stage.faults.count(Kind.PARTITION, stage.activity.steps_of(broker.host))
                world.network.block_both_ways(broker.host, controller.host)
                # It creates as fast as ever, and hears late, from the store, that it is taken for dead.
                deaf = StoreFaults(
                    latency_s_min=0.002,
                    latency_s_max=0.01,
                    unavailable_prefix="meta/",
                    refusal=Fault.THROTTLED,
                    timeout_s=0.5,
                )
                world.store.trouble(broker.host, deaf, UNHEARD_S)
        slow = StoreFaults(
            latency_s_min=0.1, latency_s_max=2.0, slow_probability=0.5, slow_s_max=rng.choice((3.0, 8.0))
        )
        world.store.trouble(controller.host, slow, UNHEARD_S)
        await asyncio.sleep(UNHEARD_S)
        for broker in brokers:
            world.network.unblock_both_ways(broker.host, controller.host)
    await stage.end()


def _owner(stage: Stage) -> int:
    """Who owns the one partition."""
    topic = stage.cluster.image().topic(stage.workload.followed[0].topic)
    return -1 if topic is None else topic.partitions[0].node_id
