"""Readers of several partitions, of several owners, by one Fetch: of what an owner that hangs, dies or is left has, and
of what the others have.
"""

from bmq_node.configuration.values import Role
from bmq_sim.cluster.campaign import pairs_of
from bmq_sim.scenarios.cluster import moving
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

AIMS = 6
PARTITIONS = 6


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.02, 0.3)))
    stage = Stage(
        world, {Role.CONTROLLER: 1, Role.BROKER: 3, Role.PROXY: rng.choice((1, 2))}, partitions=PARTITIONS, light=True
    )
    await stage.begin()
    for number in range(rng.choice((1, 3))):
        stage.workload.clients.several(f"several-{number}", stage.workload.followed)
    async with moving(stage.campaign, moves=rng.random() < 0.5):
        await stage.campaign.run(pairs_of(world.seed, AIMS), operations_share=0.0)
    await stage.end()
