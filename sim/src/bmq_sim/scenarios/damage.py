"""One node over a store in which one partition's things are damaged for a while: the others go on, and once it is
restored nothing is lost.

Somebody puts what is no manifest where the partition's next version goes, loses a page of its manifest, its newest
versions, or all of them, or has the store refuse what is below its prefix; the node is killed meanwhile in some seeds.
Later it is restored, as an operator does from a backup.

Versions are lost with a node that is killed at once: one that runs knows what they said. What is left of them (in the
metadata, or segments that nothing names) tells that they are missing: until they are back the partition does not open,
and gives no offset that they cover.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from bmq.storage.flatlog import decode_entry
from bmq.storage.keys import manifest_page_prefix, manifest_prefix, segment_prefix
from bmq.storage.manifest_format import decode_manifest
from bmq.storage.numbered import number_of, numbered_key
from bmq.values import TopicPartition
from bmq_sim.checkers import InvariantViolated
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.scenarios.workload import TOPIC, Clients, finish
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

PARTITIONS = 3
ROUNDS = 3
BATCHES = 60
LOST_SHARE = 0.3
RESTORED_WITHIN_S = 200.0
"""A partition that stopped looks again after a minute, then after two."""
GOES_ON_S = 30.0
"""Within which a partition that nothing is wrong with takes records, also where the node has to start again."""


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    losing = world.rng("lost versions")
    world.store.faults = StoreFaults(latency_s_min=0.001, latency_s_max=0.01)
    supervisor = Supervisor(world)
    supervisor.start()
    places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
    clients = Clients(world=world, supervisor=supervisor, places=places)
    await clients.client("admin").create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.ms": "500"})
    for place in places:
        clients.idempotent(f"idempotent-{place.partition}", place, batches=BATCHES, pace_s=0.5)
    await asyncio.sleep(1 + 7 * rng.random())
    topic = supervisor.image().topic(TOPIC)
    assert topic is not None
    for _ in range(ROUNDS):
        hurt = rng.randrange(PARTITIONS)
        tp = TopicPartition(topic.topic_id, hurt)
        damage: _Damage = rng.choice((_Version, _Page, _Prefix))(world, tp, rng)
        if losing.random() < LOST_SHARE:
            damage = _Newest(world, tp, losing, supervisor)
        damage.do()
        world.work.injected["damage"] += 1
        await asyncio.sleep(rng.choice((1, 10, 30)) * rng.random())
        killed = rng.random() < 0.4
        if killed:
            supervisor.kill_within(steps=rng.choice((10, 300)))
        # a start waits for a store that does not answer, whatever it is asked for
        if killed and isinstance(damage, _Prefix):
            await asyncio.sleep(GOES_ON_S * rng.random())
        else:
            await _others_go_on(clients, [place for place in places if place.partition != hurt], rng)
        damage.restore()
        if killed and isinstance(damage, _Prefix):
            # nor may the next one that the store refuses meet a start that has waited for this one
            await _goes_on(clients, places[hurt], within_s=RESTORED_WITHIN_S, although="the store answers again")
        if isinstance(damage, _Newest):
            await _goes_on(clients, places[hurt], within_s=RESTORED_WITHIN_S, although="its manifest is as it was")
        await asyncio.sleep(10 * rng.random())
    clients.stop()
    await finish(clients)


async def _others_go_on(clients: Clients, places: list[Place], rng: Random) -> None:
    """A producer of one batch to one of them, each time a new one."""
    await _goes_on(clients, rng.choice(places), within_s=GOES_ON_S, although="only another partition is damaged")


async def _goes_on(clients: Clients, place: Place, *, within_s: float, although: str) -> None:
    history = clients.world.history
    before = len(history.attempts)
    clients.idempotent(f"other-{before}", place, batches=1, pace_s=0.1)
    written = clients.finishing.pop()
    await asyncio.wait((written,), timeout=within_s)
    if not written.done():
        raise InvariantViolated(f"{place} takes no records, although {although}")
    clients.finishing.append(written)


class _Version:
    """What is no manifest stands where the next version goes."""

    def __init__(self, world: World, tp: TopicPartition, rng: Random) -> None:
        self._world = world
        self._prefix = manifest_prefix(tp)
        self._put: str | None = None

    def do(self) -> None:
        """Does the damage."""
        store = self._world.store
        newest = max((number_of(self._prefix, key) or 0 for key in store.keys(self._prefix)), default=0)
        self._put = numbered_key(self._prefix, newest + 1)
        self._world.note(f"damage at {self._put}")
        store.apply_create("a disaster", self._put, b"no manifest")

    def restore(self) -> None:
        """Takes it away again."""
        assert self._put is not None
        self._world.note(f"restored: {self._put}")
        self._world.store.apply_delete("an operator", self._put)


class _Newest:
    """The newest versions of the manifest are lost, or all of them, where something is left that tells; with the node,
    which knew them.
    """

    def __init__(self, world: World, tp: TopicPartition, rng: Random, supervisor: Supervisor) -> None:
        self._world = world
        self._tp = tp
        self._rng = rng
        self._supervisor = supervisor
        self._lost: dict[str, bytes] = {}

    def do(self) -> None:
        """Does the damage."""
        store, prefix = self._world.store, manifest_prefix(self._tp)
        if not (self._supervisor.living and self._supervisor.living[-1].serving):
            return
        told = self._supervisor.image().partition(self._tp)
        keys = store.keys(prefix)
        first = self._rng.randrange(len(keys)) if keys else 0
        if (
            not keys
            or told is None
            or not ((number_of(prefix, keys[first]) or 0) <= told.manifest_version or self._left_segments(keys, first))
        ):
            return
        self._supervisor.kill()
        for key in keys[first:]:
            self._world.note(f"the store loses {key}")
            self._lost[key] = store.objects[key].data
            store.apply_delete("a bad disk", key)
        self._world.work.faults["lost manifest"] += 1

    def restore(self) -> None:
        """From a backup, unless the partition went on: then the WAL had all that they named, or the checks at the end
        find it.
        """
        if self._world.store.objects.keys() & self._lost.keys():
            self._world.note("the partition has gone on by itself")
            return
        for key, data in self._lost.items():
            self._world.note(f"restored: {key}")
            self._world.store.apply_create("an operator", key, data)

    def _left_segments(self, keys: list[str], first: int) -> bool:
        """Whether the first that is lost named a segment of the partition's own behind all that versions below it
        have.
        """
        if not first:
            return False
        before, lost = (
            decode_manifest(decode_entry(self._world.store.objects[key].data, what=key).payload)
            for key in keys[first - 1 : first + 1]
        )
        own = segment_prefix(self._tp)
        return any(entry.base_offset >= before.next_offset and entry.key.startswith(own) for entry in lost.entries)


class _Page:
    """A page of the manifest is lost, where it has any."""

    def __init__(self, world: World, tp: TopicPartition, rng: Random) -> None:
        self._world = world
        self._tp = tp
        self._rng = rng
        self._lost: dict[str, bytes] = {}

    def do(self) -> None:
        """Does the damage."""
        store = self._world.store
        for key in self._some(store.keys(manifest_page_prefix(self._tp))):
            self._world.note(f"the store loses {key}")
            self._lost[key] = store.objects[key].data
            store.apply_delete("a bad disk", key)
            store.lost.add(key)

    def restore(self) -> None:
        """From a backup."""
        for key, data in self._lost.items():
            self._world.note(f"restored: {key}")
            self._world.store.lost.remove(key)
            self._world.store.apply_create("an operator", key, data)

    def _some(self, keys: list[str]) -> Iterator[str]:
        if keys:
            yield self._rng.choice(keys)


class _Prefix:
    """The store takes and gives nothing below the partition's prefix."""

    def __init__(self, world: World, tp: TopicPartition, rng: Random) -> None:
        self._world = world
        self._prefix = manifest_prefix(tp).removesuffix("manifest/")

    def do(self) -> None:
        """Does the damage."""
        self._world.note(f"the store refuses {self._prefix}")
        self._world.store.faults = replace(
            self._world.store.faults, unavailable_prefix=self._prefix, refused_prefix=self._prefix
        )

    def restore(self) -> None:
        """It serves it again."""
        self._world.store.faults = replace(self._world.store.faults, unavailable_prefix="", refused_prefix="")


_Damage = _Version | _Newest | _Page | _Prefix
