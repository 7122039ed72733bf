"""Brokers that no controller hears, although clients do, and sealers that are slow, die or hang: a stream has one end,
and nothing below it goes.
"""

import asyncio

from bmq_node.configuration.values import Role
from bmq_sim.cluster.faults import Kind, of_role
from bmq_sim.cluster.steps import Step
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

SHAPE = {Role.CONTROLLER: 2, Role.BROKER: 2, Role.PROXY: 1}
ROUNDS = 4
UNHEARD_S = 14.0
"""Longer than a lease and a slow seal."""
AT_SEALERS = (Kind.KILL, Kind.PAUSE, Kind.SLOW, Kind.SLOW, Kind.UNKNOWN, Kind.UNREACHABLE)


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.list_by_seed()
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.01, 0.05)))
    stage = Stage(world, SHAPE)
    cluster = stage.cluster
    await stage.begin()
    for _ in range(ROUNDS):
        broker = of_role(cluster, Role.BROKER, rng)
        if broker is not None:
            hosts = [node.host for node in cluster.with_role(Role.CONTROLLER)]
            for host in hosts:
                world.network.block_both_ways(broker.host, host)
            await stage.campaign.run([(rng.choice(AT_SEALERS), Step.SEAL)])
            await asyncio.sleep(UNHEARD_S * rng.random())
            for host in hosts:
                world.network.unblock_both_ways(broker.host, host)
            if rng.random() < 0.5:
                stage.faults.inject(Kind.KILL, broker)
        await asyncio.sleep(rng.random() * 4)
    await stage.end()
