"""A node hangs for an hour with creates on their way. Another takes over, and everything that the first left is
collected. Then the first wakes up.

It still finds its seal: it says nothing, writes nothing that counts, and deletes nothing.
"""

import asyncio

from bmq_sim.checkers import InvariantViolated
from bmq_sim.history import Place
from bmq_sim.node import HOSTS, Supervisor
from bmq_sim.objects import missing
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

ASLEEP_S = 3_600.0
AWAKE_S = 30.0


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = StoreFaults(
        latency_s_min=0.001,
        latency_s_max=rng.choice((0.05, 0.3)),
        unknown_late_probability=rng.choice((0.0, 0.1)),
        late_s_max=ASLEEP_S / 2,
    )
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(2)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=2, configs={"segment.ms": "500"})
    for place in places:
        clients.idempotent(f"idempotent-{place.partition}", place, batches=rng.randint(10, 20), pace_s=0.1)
    await asyncio.sleep(rng.random() * 2)
    first = supervisor.living[0]
    other = next(host for host in HOSTS if host != first.host)
    supervisor.start_second(hangs_s=ASLEEP_S)
    await asyncio.gather(*clients.finishing)
    for place in places:
        clients.plain(f"meanwhile-{place.partition}", place, batches=3, pace_s=1, host=other)
    await asyncio.gather(*clients.finishing)
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(ASLEEP_S - (now_s - 1000) + AWAKE_S)
    if first.alive:
        raise InvariantViolated(f"{first.name} woke up {AWAKE_S} s ago and has not found that it was replaced")
    await finish(clients)
    if wrong := list(missing(world.store, supervisor.image())):
        raise InvariantViolated("what is named is there: " + "\n  ".join(wrong[:10]))
