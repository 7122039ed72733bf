"""Producers whose sequences and epochs go wrong, at an owner that is killed, hangs, and is replaced by another process
over the same store.

What an owner refuses for good rests on what the producer sent before: that has to be durable, and the owner still the
owner.
"""

import asyncio

from bmq_sim.client import SimClient
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.odd_producer import OddProducer
from bmq_sim.process import SimProcess
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World, ordinary_network_faults

PARTITIONS = 2
ACCIDENTS = 4


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = ordinary_network_faults(rng)
    world.store.faults = StoreFaults(latency_s_min=0.005, latency_s_max=rng.choice((0.02, 0.3)))
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    configs = {
        "segment.ms": str(rng.choice((500, 5_000, 604_800_000))),
        "message.timestamp.type": rng.choice(("CreateTime", "LogAppendTime")),
    }
    await clients.client("admin").create_topic(TOPIC, partitions=PARTITIONS, configs=configs)
    for number in range(rng.choice((1, 2, 4))):
        name = f"odd-{number}"
        own = [
            SimClient(f"{name} by {at[0]}", [at], rng=world.rng(f"{name} by {at[0]}")) for at in supervisor.addresses
        ]
        producer = OddProducer(
            name,
            own,
            world.history,
            places[number % PARTITIONS],
            batches=rng.randint(10, 25),
            pace_s=rng.choice((0.05, 0.5)),
        )
        clients.finishing.append(SimProcess(name, host=name).start(producer.run()))
    for _ in range(ACCIDENTS):
        await asyncio.sleep(rng.random() * 4)
        match rng.choice(("kill", "second", "second", "lose")):
            case "kill":
                supervisor.kill_within(steps=rng.choice((5, 50, 200)))
            case "second":
                supervisor.start_second(hangs_s=rng.choice((0.0, 4.0)) * rng.random())
            case _:
                for host, _ in supervisor.addresses:
                    world.network.lose_connections(host, probability=0.7)
    await finish(clients)
