"""A whole cluster under a campaign of faults, with clients of every kind. In the end everything is healed and all
invariants are checked.

Controllers with standbys, brokers and proxies run what `bmq server` runs. Partitions are moved all the time, nodes come
and go.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

from bmq_node.configuration.values import Role
from bmq_sim.cluster.campaign import Campaign, pairs_of
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

AIMS = 20


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = _store_faults(rng)
    shape = {Role.CONTROLLER: rng.choice((1, 2, 3)), Role.BROKER: rng.choice((2, 3)), Role.PROXY: rng.choice((1, 2))}
    stage = Stage(world, shape, balance_interval_s=rng.choice((0.0, 1.0)), programs_share=0.1)
    await stage.begin()
    async with moving(stage.campaign, moves=rng.random() < 0.5):
        await stage.campaign.run(pairs_of(world.seed, AIMS), operations_share=0.1)
    await stage.end()


@contextlib.asynccontextmanager
async def moving(campaign: Campaign, *, moves: bool = True, pause_s_max: float = 3.0) -> AsyncIterator[None]:
    """Partitions move from broker to broker until the block ends."""
    if not moves:
        yield
        return
    task = asyncio.get_running_loop().create_task(campaign.keep_moving(pause_s_max=pause_s_max), name="moves")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _store_faults(rng: Random) -> StoreFaults:
    """A store that fails now and then by itself, for everyone."""
    level = rng.choice((0.0, 0.01, 0.03))
    return StoreFaults(
        latency_s_min=0.002,
        latency_s_max=rng.choice((0.01, 0.05, 0.2)),
        slow_probability=level,
        slow_s_max=2.0,
        not_applied_probability=level,
        unknown_applied_probability=level,
        unknown_not_applied_probability=level,
        unknown_late_probability=level,
        late_s_max=10.0,
        unavailable_probability=level,
        timeout_s=1.0,
    )
