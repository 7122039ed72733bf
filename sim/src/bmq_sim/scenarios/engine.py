"""One node with all roles over a store that fails, clients of every kind, kills, pauses, outages, and a second
incarnation now and then.

In the end everything is healed, the producers finish, every partition is read through the front door, and all
invariants are checked.
"""

import asyncio
from random import Random

from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.world import World, ordinary_network_faults, ordinary_store_faults


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    world.network.faults = ordinary_network_faults(rng)
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(rng.choice((1, 2)))]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    configs = {"segment.ms": str(rng.choice((500, 5_000, 604_800_000)))}
    await clients.client("admin").create_topic(TOPIC, partitions=len(places), configs=configs)
    _start(clients, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        await asyncio.sleep(rng.random() * rng.choice((0.2, 2, 8)))
        await _accident(world, supervisor, rng)
    await asyncio.sleep(rng.random() * 5)
    await finish(clients)


def _start(clients: Clients, rng: Random) -> None:
    for place in clients.places:
        for index in range(rng.choice((1, 2))):
            clients.idempotent(
                f"idempotent-{index}-{place.partition}",
                place,
                batches=rng.randint(5, 15),
                pace_s=rng.choice((0.01, 0.3, 2)),
            )
        if rng.random() < 0.5:
            clients.plain(
                f"plain-{place.partition}", place, batches=rng.randint(3, 10), pace_s=rng.choice((0.01, 0.3, 2))
            )
        if rng.random() < 0.7:
            clients.follower(f"follower-{place.partition}", place)
    for index in range(rng.choice((0, 1, 2))):
        clients.member(f"member-{index}")


async def _accident(world: World, supervisor: Supervisor, rng: Random) -> None:
    kind = rng.choice(("kill", "kill", "kill", "pause", "outage", "connections", "cut off", "second", "stop"))
    world.note(f"accident {kind}")
    match kind:
        case "kill":
            supervisor.kill_within(steps=rng.choice((10, 300, 3000)))
        case "pause":
            await supervisor.pause(rng.random() * rng.choice((1, 30)))
        case "outage":
            world.store.outage(rng.choice((5, 60)))
        case "connections":
            world.network.lose_connections(supervisor.addresses[0][0], probability=0.5)
        case "cut off":
            supervisor.cut_off(rng.random() * 20)
        case "second":
            supervisor.start_second()
        case "stop":
            supervisor.stop()
