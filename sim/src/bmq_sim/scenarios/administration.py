"""One node with all roles that is administered all the time, with few records, kills, stops and outages."""

import asyncio

from bmq.storage.durable import cancelled
from bmq_sim.clock_jumps import ClockJumps
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.scenarios.programs import Programs
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

PARTITIONS = 2
PROGRAMS_SHARE = 0.4
ACCIDENTS = 4


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    level = rng.choice((0.0, 0.01))
    world.store.faults = StoreFaults(
        latency_s_min=0.001,
        latency_s_max=rng.choice((0.005, 0.02)),
        not_applied_probability=level,
        unknown_applied_probability=level,
        unknown_not_applied_probability=level,
        unknown_late_probability=level,
        unavailable_probability=level,
        timeout_s=0.5,
        late_s_max=5.0,
    )
    world.network.faults = ordinary_network_faults(rng)
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    configs = {"segment.ms": str(rng.choice((500, 5_000, 604_800_000)))}
    await clients.client("admin").create_topic(TOPIC, partitions=PARTITIONS, configs=configs)
    programs = Programs(clients, supervisor, places, rng=world.rng("programs"), configs=configs, share=PROGRAMS_SHARE)
    await programs.start()
    clients.look = programs.look
    for place in places:
        clients.idempotent(f"idempotent-{place.partition}", place, batches=30, pace_s=0.5)
    jumps = ClockJumps(world, supervisor.clock)
    jumping = asyncio.get_running_loop().create_task(jumps.run(), name="clock jumps")
    for _ in range(ACCIDENTS):
        await asyncio.sleep(2 + 8 * rng.random())
        match rng.choice(("kill", "kill", "kill", "stop", "outage", "connections")):
            case "kill":
                supervisor.kill_within(steps=rng.choice((10, 300, 3000)))
            case "stop":
                supervisor.stop()
            case "outage":
                world.store.outage(rng.choice((1, 5)))
            case _:
                world.network.lose_connections(supervisor.addresses[0][0], probability=0.5)
    await asyncio.sleep(2 + rng.random() * 5)
    await cancelled((jumping,))
    clients.stop()
    programs.stop()
    await finish(clients)
