"""Proxies, or brokers, whose metadata is seconds behind, while partitions move and topics are deleted and made again
under their names.

What a proxy that lags is asked, it answers by the cluster of a moment ago: it knows no topic that is new, sends to
owners that were, and learns of both in the middle of what a client has in flight. Every idempotent producer has five
batches in flight, by name or by id, and begins as soon as its topic is there: its first batch is refused where its
second one may find the topic.

A broker that lags goes on as owner of what it has to hand over, knows nothing of what it is to take, and works for
topics that are gone. Batches of a topic that was made again come to it before it has heard of that.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from uuid import UUID

from bmq_node.configuration.values import Role
from bmq_sim.cluster.process import SimNode
from bmq_sim.consumer import read_final
from bmq_sim.history import Place
from bmq_sim.network import NetworkFaults
from bmq_sim.process import SimProcess
from bmq_sim.producer import IdempotentProducer
from bmq_sim.scenarios.cluster import moving
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 3, Role.PROXY: 2}
TOPIC = "again"
PARTITIONS = 4
MADE_TIMES = 6
CAUGHT_UP_S = 1.5
"""How long a node that has caught up may keep up."""
LAG_S_MAX = 4.0
"""Shorter than a lease: nobody takes the node for dead."""


async def proxies(world: World) -> None:
    """One run."""
    await _run(world, Role.PROXY)


async def brokers(world: World) -> None:
    """One run."""
    await _run(world, Role.BROKER)


async def _run(world: World, role: Role) -> None:
    rng = world.rng("scenario")
    world.network.faults = NetworkFaults(
        latency_s_min=0.001, latency_s_max=0.02, jitter_s=rng.choice((0.02, 0.1)), split_probability=0.1
    )
    world.store.faults = StoreFaults(latency_s_min=0.002, latency_s_max=rng.choice((0.02, 0.1)))
    stage = Stage(world, SHAPE, partitions=2, writes_only=True, light=True)
    await stage.begin()
    lagging = _Lagging(world, stage)
    async with moving(stage.campaign, pause_s_max=rng.choice((0.5, 3.0))):
        tasks = [
            asyncio.get_running_loop().create_task(lagging.run(node), name=f"{node.host} lags")
            for node in stage.cluster.with_role(role)
        ]
        knows = Role.PROXY if role is Role.BROKER else Role.BROKER
        await SimProcess(TOPIC, host=TOPIC).start(_Remaking(world, stage, knows=knows).run())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await stage.end()


class _Lagging:
    """Keeps from a node for a while what controllers say and what the metadata log has, and nothing else."""

    def __init__(self, world: World, stage: Stage) -> None:
        self._world = world
        self._rng = world.rng("lags")
        self._cluster = stage.cluster

    async def run(self, node: SimNode) -> None:
        """Until it is cancelled."""
        world, rng = self._world, self._rng
        while True:
            await asyncio.sleep(CAUGHT_UP_S * rng.random())
            lag_s = LAG_S_MAX * rng.random()
            world.note(f"{node.host} hears nothing new for {lag_s:.3f} s")
            for controller in self._cluster.with_role(Role.CONTROLLER):
                world.network.block(controller.host, node.host)
            usual = world.store.faults
            unread = StoreFaults(
                latency_s_min=usual.latency_s_min,
                latency_s_max=usual.latency_s_max,
                unavailable_prefix="meta/",
                timeout_s=0.2,
            )
            world.store.trouble(node.host, unread, lag_s)
            await asyncio.sleep(lag_s)
            for controller in self._cluster.with_role(Role.CONTROLLER):
                world.network.unblock_both_ways(controller.host, node.host)
            newest = self._cluster.image().position
            while node.current is None or node.current.image.position < newest:
                await asyncio.sleep(0.05)


class _Remaking:
    """Makes the topic, has it written to at once, reads all of it, deletes it, and makes it again at once."""

    def __init__(self, world: World, stage: Stage, *, knows: Role) -> None:
        """`knows`: nodes of which role know the topic before it is written to. The others may learn of it in the middle
        of that.
        """
        self._world = world
        self._stage = stage
        self._knows = knows
        self._rng = world.rng("remaking")
        self._client = stage.workload.clients.client(TOPIC)

    async def run(self) -> None:
        """All times."""
        client = self._client
        last: UUID | None = None
        for number in range(1, MADE_TIMES + 1):
            places = [Place(f"{TOPIC}#{number}", partition) for partition in range(PARTITIONS)]
            await client.create_topic(TOPIC, partitions=PARTITIONS)
            made = await self._until(partial(self._made, last))
            # Owners or proxies know which topic is meant by the name, or what is acknowledged could be its
            # predecessor's. Not both need to.
            await self._until(partial(self._all_know, self._knows, made))
            producers = [self._producer(place, made if by_id else None) for place in places for by_id in (False, True)]
            await asyncio.gather(*(producer.run() for producer in producers))
            await self._until(partial(self._all_know, Role.PROXY, made))
            client.forget_leaders()
            for place in places:
                await read_final(client, self._world.history, place)
            await client.delete_topic(TOPIC)
            last = made

    def _producer(self, place: Place, topic_id: UUID | None) -> IdempotentProducer:
        client = self._stage.workload.clients.client(f"{place}-by-{'name' if topic_id is None else 'id'}")
        batches, pace_s = self._rng.randint(5, 12), self._rng.choice((0.1, 0.5))
        return IdempotentProducer(client, self._world.history, place, batches=batches, pace_s=pace_s, topic_id=topic_id)

    def _made(self, last: UUID | None) -> UUID | None:
        """The topic's id, once it is another one."""
        topic_id = self._stage.cluster.image().topic_ids.get(TOPIC)
        return None if topic_id == last else topic_id

    def _all_know(self, role: Role, made: UUID) -> UUID | None:
        images = [node.current.image for node in self._stage.cluster.with_role(role) if node.current is not None]
        return made if all(image.topic_ids.get(TOPIC) == made for image in images) else None

    async def _until(self, found: Callable[[], UUID | None]) -> UUID:
        while (one := found()) is None:
            await asyncio.sleep(0.05)
        return one
