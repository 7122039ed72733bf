"""A cluster that works on, and another over a copy of its store: with its ids, its cluster id, and, in the metadata,
its addresses.

The copy is made by what `bmq store copy` runs, while the original is written to, moves partitions and has nodes killed.
The nodes over the copy know no other controller than the original's, and no other brokers: they have to be refused
there, and to become a cluster of their own. So nothing that clients of the original are told is in the copy alone, and
all that was acknowledged before the copy began is in it.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator

from bmq_audit.reading import Progress, Reader
from bmq_backup.copying import Copier
from bmq_node.configuration.values import Role
from bmq_sim.checkers import InvariantViolated
from bmq_sim.client import SimClient
from bmq_sim.clock import SimRng
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.cluster.settings import ClusterSettings
from bmq_sim.consumer import read_final
from bmq_sim.history import History, Place
from bmq_sim.network import NetworkFaults
from bmq_sim.process import SimProcess
from bmq_sim.producer import PlainProducer
from bmq_sim.scenarios.cluster import moving
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import SimStore, StoreFaults
from bmq_sim.world import World

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 1}
WHERE = "copy-of-"
COPIER = "copier"
SERVING_S = 120.0
"""In which a cluster over a copy serves, and has nobody of the original in its metadata: leases and what is being
fenced take a while."""
BESIDE_S = 20.0
COPIED_S = 600.0


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.network.faults = NetworkFaults(latency_s_min=0.001, latency_s_max=0.02, jitter_s=0.02, split_probability=0.1)
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.02, 0.1)))
    stage = Stage(world, SHAPE, partitions=2, writes_only=True, light=True)
    await stage.begin()
    await asyncio.sleep(2 + 6 * rng.random())
    before = world.history.turn()
    other = _beside(world)
    await SimProcess(COPIER, host=COPIER).start(_copy(world, other))
    world.note("the copy is made")
    cluster = SimCluster(other, SHAPE, ClusterSettings(other.rng), where=WHERE)
    cluster.start()
    async with (
        _killing(stage, rng.choice((4.0, 1_000.0))),
        moving(stage.campaign, pause_s_max=rng.choice((2.0, 1_000.0))),
    ):
        await _until_serving(cluster)
        await _use(other, cluster, stage.workload.followed, world.history, before)
        await asyncio.sleep(BESIDE_S * rng.random())
    cluster.settle()
    await cluster.until_found()
    cluster.check()
    world.note(f"the copy: {other.store.digest()}")
    await stage.end()


def _beside(world: World) -> World:
    """The same hosts and the same time, another store, and clients of its own."""
    other = copy.copy(world)
    other.store = SimStore(rng=world.rng("the copy's store"))
    other.store.listing, other.store.faults, other.store.trace = (
        world.store.listing,
        world.store.faults,
        world.store.trace,
    )
    other.history = History()
    return other


async def _copy(world: World, other: World) -> None:
    # Otherwise tiny settings have the WAL deleted faster than it is copied.
    for store in (world.store, other.store):
        store.trouble(COPIER, StoreFaults(latency_s_min=0.0, latency_s_max=0.0001), COPIED_S)
    source = Reader(
        world.store.for_node(COPIER), rng=SimRng(world.rng("reads the source")), at_once=16, progress=Progress()
    )
    await Copier(source, other.store.for_node(COPIER), rng=SimRng(world.rng(COPIER))).run()


@contextlib.asynccontextmanager
async def _killing(stage: Stage, pause_s_max: float) -> AsyncIterator[None]:
    """Some node of the original dies now and then, and begins again."""
    rng = stage.world.rng("kills")

    async def kill() -> None:
        while True:
            await asyncio.sleep(pause_s_max * (0.5 + rng.random()))
            rng.choice(list(stage.cluster.nodes.values())).kill()

    task = asyncio.get_running_loop().create_task(kill(), name="kills nodes of the original")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until_serving(cluster: SimCluster) -> None:
    try:
        async with asyncio.timeout(SERVING_S):
            await cluster.until_serving()
    except TimeoutError:
        raise InvariantViolated(f"the cluster over the copy does not serve after {SERVING_S} s") from None


async def _use(other: World, cluster: SimCluster, places: tuple[Place, ...], original: History, before: int) -> None:
    """Writes to the copy and reads it: what had been acknowledged before it was made is there, and what is new."""
    acknowledged = {
        (attempt.place, value): attempt.base_offset
        for attempt in original.attempts
        if attempt.acknowledged is not None and attempt.acknowledged < before
        for value in attempt.values
    }
    client = SimClient(
        "user of the copy", cluster.addresses, rng=other.rng("user of the copy"), resolve=lambda: cluster.addresses
    )
    found: set[tuple[Place, bytes]] = set()
    for place in places:
        await PlainProducer(client, other.history, place, batches=3, pace_s=0.1).run()
        log = await read_final(client, other.history, place)
        found |= {(place, record.value) for record in log.records}
    if missing := acknowledged.keys() - found:
        place, value = min(missing)
        raise InvariantViolated(
            f"{place}: {value!r} was acknowledged before the copy was made, and is not in it ({len(missing)} records)"
        )
    for attempt in other.history.attempts:
        if attempt.acknowledged is not None and any((attempt.place, value) not in found for value in attempt.values):
            raise InvariantViolated(
                f"{attempt.place}: {attempt.values!r} was acknowledged over the copy, and is not in it"
            )
