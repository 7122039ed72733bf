"""Idempotent producers that lose their connections again and again over a slow store, and a node that is killed in the
middle of it.

So batches are sent again while the first ones are in flight, rolls run beside creates in flight, and what was in flight
is lost.
"""

import asyncio

from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    supervisor = Supervisor(world)
    supervisor.start()
    place = Place(TOPIC, 0)
    clients = Clients(world=world, supervisor=supervisor, places=[place])
    await clients.client("admin").create_topic(TOPIC, partitions=1)
    for index in range(2):
        clients.idempotent(f"idempotent-{index}", place, batches=rng.randint(10, 25), pace_s=0.3)
    world.store.faults = StoreFaults(
        latency_s_min=0.01,
        latency_s_max=rng.choice((0.2, 1.0)),
        slow_probability=0.2,
        slow_s_max=3.0,
        unknown_late_probability=0.05,
    )
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(1, 8)):
            await asyncio.sleep(rng.random() * 0.5)
            for host, _ in supervisor.addresses:
                world.network.lose_connections(host, probability=0.7)
        await asyncio.sleep(rng.random() * 0.3)
        supervisor.kill_within(steps=rng.choice((5, 50, 200)))
        await asyncio.sleep(rng.random() * 6)
    await finish(clients)
