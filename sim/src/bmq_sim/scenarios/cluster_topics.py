"""A small cluster that is administered all the time, with few records and some faults: topics, offsets, configurations,
retention, deletions.
"""

from bmq_node.configuration.values import Role
from bmq_sim.cluster.campaign import pairs_of
from bmq_sim.scenarios.cluster import moving
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

AIMS = 6
PROGRAMS_SHARE = 0.6


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.01, 0.1)))
    shape = {Role.CONTROLLER: rng.choice((1, 2)), Role.BROKER: 2, Role.PROXY: rng.choice((1, 2))}
    stage = Stage(world, shape, partitions=2, light=True, programs_share=PROGRAMS_SHARE)
    await stage.begin()
    async with moving(stage.campaign, moves=rng.random() < 0.5):
        await stage.campaign.run(pairs_of(world.seed, AIMS))
    await stage.end()
