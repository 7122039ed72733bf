"""Partitions that move all the time while plain producers write several batches at once and readers keep up with the
tail. Nothing else happens.
"""

import asyncio

from bmq_node.configuration.values import Role
from bmq_sim.scenarios.cluster import moving
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 3, Role.PROXY: 1}
MOVING_S = 25.0


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.02, 0.3)))
    stage = Stage(world, SHAPE)
    await stage.begin()
    async with moving(stage.campaign, pause_s_max=rng.choice((0.3, 2.0))):
        await asyncio.sleep(MOVING_S)
    await stage.end()
