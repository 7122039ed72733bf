"""A node that rolls, carries and merges all the time is killed at every kind of moment. In the end nothing is left
behind, and nothing named is gone.

Quiet partitions share segments with busy ones and with those of a topic that is deleted. A partition's owner collects
after its own claim holds, so the last owner writes once to every partition.
"""

import asyncio
from dataclasses import replace
from random import Random

from bmq_sim.checkers import InvariantViolated
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.objects import missing, unreachable
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.world import World, ordinary_store_faults

PARTITIONS = 4
PASSING = "passing"
QUIET_S = 200.0
"""Longer than readers may still want what was given up, and than rounds that look for what landed late are apart."""


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = replace(
        ordinary_store_faults(rng), slow_probability=rng.choice((0.0, 0.1, 0.3)), slow_s_max=2.0
    )
    world.store.page_keys = 10  # with more faults than pages a listing never ends
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    admin = clients.client("admin")
    await admin.create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.ms": str(rng.choice((500, 5_000)))})
    await admin.create_topic(PASSING, partitions=2, configs={"segment.ms": "500"})
    for place in places:
        busy = place.partition < 2
        clients.idempotent(
            f"idempotent-{place.partition}", place, batches=rng.randint(5, 20) if busy else 6, pace_s=0.5 if busy else 1
        )
    passing = [_pass(clients, Place(PASSING, partition), rng) for partition in range(2)]
    for _ in range(rng.randint(1, 4)):
        await asyncio.sleep(rng.random() * 4)
        supervisor.kill_within(steps=rng.choice((10, 300, 1000)))
    await asyncio.gather(*passing)
    world.history.attempts = [attempt for attempt in world.history.attempts if attempt.place.topic != PASSING]
    await admin.delete_topic(PASSING)
    await finish(clients)
    supervisor.kill()
    for place in places:
        clients.plain(f"last-{place.partition}", place, batches=1, pace_s=0.1)
    await asyncio.gather(*clients.finishing)
    await asyncio.sleep(QUIET_S)
    image = supervisor.image()
    wrong = [*missing(world.store, image), *unreachable(world.store, image)]
    if wrong:
        raise InvariantViolated("every object is reachable or collected: " + "\n  ".join(wrong[:10]))


def _pass(clients: Clients, place: Place, rng: Random) -> "asyncio.Task[None]":
    """A few batches to a topic that does not stay."""
    clients.plain(f"passing-{place.partition}", place, batches=rng.randint(1, 6), pace_s=0.5)
    return clients.finishing.pop()
