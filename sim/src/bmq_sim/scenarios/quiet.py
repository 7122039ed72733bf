"""Quiet partitions beside a busy one, a short WAL and much carrying, kills at every kind of moment, incarnations that hang and wake up.

What is acknowledged outlives the WAL objects that it was in, again and again.
"""

import asyncio
from dataclasses import replace

from bmq_sim.checkers import InvariantViolated
from bmq_sim.history import Place
from bmq_sim.limits import limits_of
from bmq_sim.node import NodeSettings, Supervisor
from bmq_sim.objects import missing
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

PARTITIONS = 4


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = StoreFaults(
        latency_s_min=0.001,
        latency_s_max=rng.choice((0.05, 0.3)),
        slow_probability=rng.choice((0.0, 0.1)),
        slow_s_max=2.0,
        unknown_not_applied_probability=rng.choice((0.0, 0.2)),
        unknown_late_probability=rng.choice((0.0, 0.1)),
        timeout_s=rng.choice((0.5, 2.0, 8.0)),
    )
    settings = NodeSettings(world.rng("settings"), limits_of(world.rng("limits of requests")))
    broker = replace(
        settings.made.broker,
        eager=True,
        linger_ms=0.0,
        flush_bytes=300,
        in_flight_max=8,
        hedge_creates=False,
        lease_ms=1_000,
        tail_budget_bytes=rng.choice((2_000, 100_000)),
        wal_budget_bytes=rng.choice((500, 1_000)),
        carry_share=8.0,
        carry_parts=1,
        ranges_max=rng.choice((1, 4)),
    )
    settings.made = replace(settings.made, broker=broker)
    supervisor = Supervisor(world, settings)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.ms": str(rng.choice((2_000, 604_800_000)))})
    for place in places:
        busy = place.partition == 0
        clients.idempotent(f"idempotent-{place.partition}", place, batches=rng.randint(20, 60) if busy else 4, pace_s=0.05 if busy else 1)
        clients.follower(f"follower-{place.partition}", place)
    for _ in range(rng.randint(2, 5)):
        await asyncio.sleep(rng.random() * rng.choice((2, 6)))
        if rng.random() < 0.2:
            supervisor.start_second()
        else:
            supervisor.kill_within(steps=rng.choice((10, 100, 300)))
    await finish(clients)
    if wrong := list(missing(world.store, supervisor.image())):
        raise InvariantViolated("what is named is there: " + "\n  ".join(wrong[:10]))
