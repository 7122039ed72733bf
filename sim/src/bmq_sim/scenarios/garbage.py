"""A node that rolls and merges all the time is killed at every kind of moment: in the end nothing is left behind, and nothing that is named is gone.

A partition's owner collects after its own claim holds, so the last owner writes once to every partition.
"""

import asyncio

from bmq_sim.checkers import InvariantViolated
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.objects import missing, unreachable
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.world import World, ordinary_store_faults

QUIET_S = 120.0
"""Longer than readers may still want what was given up."""


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(2)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=2, configs={"segment.ms": "500"})
    for place in places:
        clients.idempotent(f"idempotent-{place.partition}", place, batches=rng.randint(5, 20), pace_s=0.5)
    for _ in range(rng.randint(1, 4)):
        await asyncio.sleep(rng.random() * 4)
        supervisor.kill_within(steps=rng.choice((10, 300, 1000)))
    await finish(clients)
    supervisor.kill()
    for place in places:
        clients.plain(f"last-{place.partition}", place, batches=1, pace_s=0.1)
    await asyncio.gather(*clients.finishing)
    await asyncio.sleep(QUIET_S)
    image = supervisor.image()
    wrong = [*missing(world.store, image), *(line for line in unreachable(world.store, image) if "coordinator" not in line)]
    if wrong:
        raise InvariantViolated("every object is reachable or collected: " + "\n  ".join(wrong[:10]))
