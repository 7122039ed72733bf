"""Manifest versions that come to stand late: their creates are slow, and their partitions move while they are on their
way.

What a version names no more may be in use: an heir that began with the version before serves with that until it writes
one itself.
"""

import asyncio

from bmq.values import TopicPartition
from bmq_node.configuration.values import Role
from bmq_sim.consumer import end_offset, start_offset
from bmq_sim.history import Place
from bmq_sim.process import SimProcess
from bmq_sim.producer import PlainProducer
from bmq_sim.programs.deleting import RecordDeleter
from bmq_sim.scenarios.cluster_stage import Stage
from bmq_sim.store import StoreFaults
from bmq_sim.world import World

SHAPE = {Role.CONTROLLER: 1, Role.BROKER: 2, Role.PROXY: 1}
ROUNDS = 6
ROLLED_S = 6.0
QUIET_S = 4.0


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    slow_s_max = rng.choice((1.0, 2.0, 4.0))
    world.store.faults = StoreFaults(
        latency_s_min=0.002, latency_s_max=0.02, slow_creates_of="/manifest/", slow_s_max=slow_s_max
    )
    stage = Stage(world, SHAPE, partitions=2, writes_only=True, deletes_soon=True)
    await stage.begin()
    await asyncio.sleep(rng.random() * 5)
    stage.workload.clients.stop()  # an heir that has nothing to write has no reason to look for a newer version
    programs = [_Moving(stage, place, slow_s_max=slow_s_max) for place in stage.workload.followed]
    await asyncio.gather(*(SimProcess(each.name, host=each.name).start(each.run()) for each in programs))
    await stage.end()


class _Moving:
    """Writes to a partition, deletes a part of it, and has it moved meanwhile; again and again."""

    def __init__(self, stage: Stage, place: Place, *, slow_s_max: float) -> None:
        self.name = f"moving-{place.partition}"
        self._stage = stage
        self._place = place
        self._slow_s_max = slow_s_max
        self._rng = stage.world.rng(self.name)
        self._client = stage.workload.clients.client(self.name)

    async def run(self) -> None:
        """All rounds."""
        history, client, place, rng = self._stage.world.history, self._client, self._place, self._rng
        deleter = RecordDeleter(client, history, [place], pause_s=1.0)
        for number in range(ROUNDS):
            writer = self._stage.workload.clients.client(f"{self.name}-{number}")
            await PlainProducer(writer, history, place, batches=rng.randint(1, 6), pace_s=0.1).run()
            await asyncio.sleep(ROLLED_S)
            start, end = await start_offset(client, history, place), await end_offset(client, history, place)
            deleting = asyncio.get_running_loop().create_task(deleter.delete(place, rng.randint(start, end)))
            await asyncio.sleep(self._slow_s_max * rng.random())
            self._move()
            await deleting
            await asyncio.sleep(QUIET_S * rng.random())

    def _move(self) -> None:
        image = self._stage.cluster.image()
        topic = image.topic(self._place.topic)
        assert topic is not None
        owner = topic.partitions[self._place.partition].node_id
        others = [
            node.spec.node_id for node in self._stage.cluster.with_role(Role.BROKER) if node.spec.node_id != owner
        ]
        self._stage.cluster.operator.move(
            TopicPartition(topic.topic_id, self._place.partition), self._rng.choice(others)
        )
