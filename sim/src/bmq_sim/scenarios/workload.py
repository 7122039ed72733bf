"""Clients of every kind for scenarios with a whole node, and the end of such a run: heal, finish, read everything,
check.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from bmq_sim.checkers import InvariantViolated, check
from bmq_sim.client import Address, SimClient
from bmq_sim.consumer import FollowingConsumer, SeveralFollower, read_final
from bmq_sim.group_member import GroupMember
from bmq_sim.history import History, Place
from bmq_sim.process import SimProcess
from bmq_sim.producer import BATCH_RECORDS_MAX, Age, IdempotentProducer, PlainProducer, young
from bmq_sim.world import World, ordinary_network_faults

TOPIC = "orders"
HEALED_WITHIN_S = 900.0
"""Virtual time after healing by which every client must be done: what takes longer is stuck."""
PAGE_KEYS_HEALED = 100
"""Keys of a page of a listing then. By threes a start takes more than a minute to list a thousand entries of the
metadata log."""


class Deployment(Protocol):
    """What clients run against: one node, or a cluster."""

    def addresses_for(self, client: str) -> tuple[Address, ...]:
        """Where a Kafka client begins, by its name."""

    def settle(self) -> None:
        """No more accidents."""

    def kill(self) -> None:
        """kill -9 of all that own partitions."""

    def check(self) -> None:
        """Raises InvariantViolated where it did not live as it should have."""


@dataclass(slots=True, kw_only=True)
class Clients:
    """Clients that finish by themselves, and those that follow until they are told to stop."""

    world: World
    supervisor: Deployment
    places: list[Place]
    finishing: "list[asyncio.Task[None]]" = field(default_factory=list)
    following: "list[asyncio.Task[None]]" = field(default_factory=list)
    producers: list[IdempotentProducer | PlainProducer] = field(default_factory=list)
    before_check: Callable[[History], None] = lambda _: None
    """Adds what others than clients saw."""
    look: Callable[[], Awaitable[None]] | None = None
    """Adds what clients see in the end beside records."""

    def client(self, name: str, *, host: str | None = None) -> SimClient:
        """A new client program's connections; `host` is the one that it tries first."""
        addresses = sorted(self.supervisor.addresses_for(name), key=lambda address: address[0] != host)
        return SimClient(name, addresses, rng=self.world.rng(name), resolve=lambda: self.supervisor.addresses_for(name))

    def idempotent(
        self, name: str, place: Place, *, batches: int, pace_s: float, batch_records_max: int = BATCH_RECORDS_MAX
    ) -> None:
        """One more idempotent producer."""
        producer = IdempotentProducer(
            self.client(name),
            self.world.history,
            place,
            batches=batches,
            pace_s=pace_s,
            batch_records_max=batch_records_max,
        )
        self.producers.append(producer)
        self._begin(name, producer.run(), self.finishing)

    def plain(
        self, name: str, place: Place, *, batches: int, pace_s: float, host: str | None = None, age_ms: Age = young
    ) -> None:
        """One more plain producer."""
        producer = PlainProducer(
            self.client(name, host=host), self.world.history, place, batches=batches, pace_s=pace_s, age_ms=age_ms
        )
        self.producers.append(producer)
        self._begin(name, producer.run(), self.finishing)

    def follower(self, name: str, place: Place) -> None:
        """One more reader of a partition."""
        self._begin(name, FollowingConsumer(self.client(name), self.world.history, place).run(), self.following)

    def several(self, name: str, places: Sequence[Place]) -> None:
        """One more reader of many partitions at once."""
        self._begin(name, SeveralFollower(self.client(name), self.world.history, places).run(), self.following)

    def member(self, name: str, *, group: str = "group", instance_id: str | None = None) -> None:
        """One more member of a group; a static one with `instance_id`."""
        member = GroupMember(
            self.client(name), self.world.history, group=group, places=self.places, instance_id=instance_id
        )
        self._begin(name, member.run(), self.following)

    def stop(self) -> None:
        """Producers make nothing new."""
        for producer in self.producers:
            producer.stop()

    def _begin(self, name: str, program: Coroutine[Any, Any, None], tasks: "list[asyncio.Task[None]]") -> None:
        tasks.append(SimProcess(name, host=name).start(program))


async def finish(clients: Clients, *, within_s: float = HEALED_WITHIN_S) -> None:
    """Heals, lets the producers finish, stops the readers, reads every partition and checks all invariants. Raises
    InvariantViolated.
    """
    world, supervisor = clients.world, clients.supervisor
    world.note("heal")
    supervisor.settle()
    world.store.heal()
    world.store.page_keys = PAGE_KEYS_HEALED
    world.network.heal()
    world.network.faults = ordinary_network_faults(Random(0))
    finishing = asyncio.get_running_loop().create_task(_finish(clients))
    await asyncio.wait((finishing,), timeout=within_s)
    if not finishing.done():
        raise InvariantViolated("clients are stuck although all is well:\n" + "\n".join(world.loop.pending_tasks()))
    await finishing
    clients.before_check(world.history)
    world.history.forget_deleted()
    check(world.history)
    supervisor.check()


async def _finish(clients: Clients) -> None:
    rng = clients.world.rng("finish")
    await asyncio.gather(*clients.finishing)
    await asyncio.sleep(10)
    for task in clients.following:
        task.cancel()
    await asyncio.gather(*clients.following, return_exceptions=True)
    if rng.random() < 0.5:
        clients.supervisor.kill()
        await asyncio.sleep(rng.random() * 3)
    reader = clients.client("final-reader")
    for place in clients.places:
        await read_final(reader, clients.world.history, place)
    if clients.look is not None:
        await clients.look()
