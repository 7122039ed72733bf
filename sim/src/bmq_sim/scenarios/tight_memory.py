"""A node whose memory for unrolled records is tight, over a store that fails: producers wait, and afterwards all goes
on by itself.
"""

import asyncio

from bmq_sim.history import Place
from bmq_sim.node import NodeSettings, Supervisor
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.world import World, ordinary_store_faults


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    supervisor = Supervisor(world, NodeSettings(world.rng, tail_limit_factor=2))
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(2)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=2)
    for place in places:
        for index in range(2):
            clients.idempotent(
                f"idempotent-{index}-{place.partition}", place, batches=15, pace_s=rng.choice((0.01, 0.3))
            )
    await asyncio.sleep(rng.random() * 2)
    world.store.outage(rng.choice((1, 60)))
    await asyncio.sleep(rng.random() * 80)
    await finish(clients)
