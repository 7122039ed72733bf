"""Quiet partitions beside a busy one, a short WAL and much carrying, kills at every kind of moment, incarnations that
hang and wake up.

What is acknowledged outlives the WAL objects that it was in, again and again. In half of the seeds WAL objects are slow
to land, and whoever has it written down that something inherited is covered is killed: what covers it has to be durable
by then.
"""

import asyncio
from dataclasses import replace
from random import Random

from bmq.metadata.records import RangesCovered
from bmq_sim.checkers import InvariantViolated
from bmq_sim.cluster.steps import records_of
from bmq_sim.history import Place
from bmq_sim.node import NodeSettings, Supervisor
from bmq_sim.objects import missing
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import Request, StoreFaults
from bmq_sim.world import World

PARTITIONS = 4
COVERS_S = 20.0
"""In which what the last one who was killed left is covered."""


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
    covers = world.rng("covers")
    kills_at_covers = covers.random() < 0.5
    if kills_at_covers:
        world.store.faults = replace(world.store.faults, slow_creates_of="wal/")
    settings = NodeSettings(world.rng)
    broker = replace(
        settings.made.broker,
        eager=True,
        linger_ms=0.0,
        flush_bytes=300,
        in_flight_max=8,
        hedge_creates=False,
        lease_ms=1_000,
        tail_budget_bytes=rng.choice((10_000, 500_000)),
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
    await clients.client("admin").create_topic(
        TOPIC, partitions=PARTITIONS, configs={"segment.ms": str(rng.choice((2_000, 604_800_000)))}
    )
    for place in places:
        busy = place.partition == 0
        clients.idempotent(
            f"idempotent-{place.partition}",
            place,
            batches=rng.randint(20, 60) if busy else 4,
            pace_s=0.05 if busy else 1,
        )
        clients.follower(f"follower-{place.partition}", place)
    if kills_at_covers:
        world.store.watcher = _KillsAtCovers(supervisor, covers)
    for _ in range(rng.randint(2, 5)):
        await asyncio.sleep(rng.random() * rng.choice((2, 6)))
        if rng.random() < 0.2:
            supervisor.start_second()
        else:
            supervisor.kill_within(steps=rng.choice((10, 100, 300)))
    if kills_at_covers:
        await asyncio.sleep(COVERS_S)
        world.store.watcher = None
    await finish(clients)
    if wrong := list(missing(world.store, supervisor.image())):
        raise InvariantViolated("what is named is there: " + "\n  ".join(wrong[:10]))


class _KillsAtCovers:
    """Watches the store, and kills who has just had it written down that ranges are covered, some times."""

    def __init__(self, supervisor: Supervisor, rng: Random) -> None:
        self._supervisor = supervisor
        self._rng = rng
        self._left = rng.randint(2, 6)

    def began(self, request: Request) -> None:
        """Nothing is covered yet."""

    def ended(self, request: Request) -> None:
        """It may be."""
        if not self._left or request.verb != "create" or not request.key.startswith("meta/log/"):
            return
        if any(isinstance(record, RangesCovered) for record in records_of(request.data)) and self._rng.random() < 0.7:
            self._left -= 1
            self._supervisor.kill_within(steps=self._rng.choice((10, 100)))
