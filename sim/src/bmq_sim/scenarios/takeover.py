"""A node hangs, a second incarnation takes over, and the first one wakes up while clients still ask it: it must not
answer from its memory.
"""

import asyncio

from bmq_sim.client import SimClient
from bmq_sim.consumer import end_offset
from bmq_sim.history import Place
from bmq_sim.node import HOSTS, Supervisor
from bmq_sim.process import SimProcess
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

ASKED_EACH_S = 0.5


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.001, latency_s_max=rng.choice((0.01, 0.2)))
    supervisor = Supervisor(world)
    supervisor.start()
    place = Place(TOPIC, 0)
    clients = Clients(world=world, supervisor=supervisor, places=[place])
    await clients.client("admin").create_topic(
        TOPIC, partitions=1, configs={"segment.ms": str(rng.choice((500, 5_000, 604_800_000)))}
    )
    for index in range(2):
        clients.idempotent(f"idempotent-{index}", place, batches=rng.randint(10, 25), pace_s=0.5)
    clients.follower("follower", place)
    clients.member("member-0")
    await asyncio.sleep(rng.random() * 3)
    first = supervisor.living[0]
    other = next(host for host in HOSTS if host != first.host)
    askers = [clients.client(f"asker-{number}", host=first.host) for number in range(3)]
    for asker in askers:
        await asker.refresh_until_known(place)
    supervisor.start_second(hangs_s=rng.choice((0.0, 4.0, 8.0)) * rng.random())
    for _ in range(100):
        if any(each.serving for each in supervisor.living if each is not first):
            break
        await asyncio.sleep(0.05)
    clients.plain("plain", place, batches=rng.randint(5, 20), pace_s=0.2, host=other)
    if rng.random() < 0.5:
        world.network.lose_connections(first.host, probability=0.5)
    asking = []
    for number in range(rng.randint(5, 60)):
        asker = askers[number % len(askers)]
        asking.append(SimProcess(f"asks-{number}", host=asker.name).start(_ask(world, asker, place)))
        await asyncio.sleep(rng.random() * ASKED_EACH_S)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await finish(clients)


async def _ask(world: World, asker: SimClient, place: Place) -> None:
    await end_offset(asker, world.history, place)
