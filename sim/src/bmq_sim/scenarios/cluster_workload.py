"""What clients do to a cluster while things go wrong: produce with and without idempotence, follow, consume in a group,
create and delete topics.
"""

import asyncio
from random import Random

from bmq_sim.client import ConnectionLost
from bmq_sim.cluster.cluster import SimCluster
from bmq_sim.history import Place
from bmq_sim.process import SimProcess
from bmq_sim.producer import PlainProducer
from bmq_sim.scenarios.programs import Programs
from bmq_sim.scenarios.workload import TOPIC, Clients
from bmq_sim.world import World

BATCHES = 100_000
"""More than are ever made: producers go on until they are stopped."""
DELETED_SHARE = 0.6
ROLLS_SOON_MS = 5_000


class ClusterWorkload:
    """Clients of one run. `places` grows by the topics that are made and kept."""

    def __init__(
        self,
        world: World,
        cluster: SimCluster,
        *,
        partitions: int | None = None,
        writes_only: bool = False,
        light: bool = False,
        programs_share: float = 0.0,
    ) -> None:
        """`partitions` None: as the seed will. `writes_only`: no groups, no other topics. `light`: hardly more than a
        few batches each second.

        `programs_share`: how likely each kind of program (bmq_sim.scenarios.programs) is.
        """
        self._world = world
        self._rng = world.rng("workload")
        self._writes_only = writes_only
        self._light = light
        count = self._rng.choice((2, 4, 6)) if partitions is None else partitions
        self.places = [Place(TOPIC, partition) for partition in range(count)]
        self.followed = tuple(self.places)
        """The partitions of the topic that is always there."""
        self.clients = Clients(world=world, supervisor=cluster, places=self.places)
        self._segment_ms = self._rng.choice((500, 5_000, 604_800_000))
        self._configs = {"segment.ms": str(self._segment_ms)}
        self._administering: asyncio.Task[None] | None = None
        rng = world.rng("programs")
        self.programs = Programs(
            self.clients, cluster, self.followed, rng=rng, configs=self._configs, share=programs_share
        )

    @property
    def rolls_soon(self) -> bool:
        """Whether what is written once more is soon in a segment, so that every owner has claimed and collected."""
        return self._segment_ms <= ROLLS_SOON_MS

    async def start(self) -> None:
        """Returns once the topic is there and its clients have begun."""
        rng, clients = self._rng, self.clients
        await clients.client("admin").create_topic(TOPIC, partitions=len(self.places), configs=self._configs)
        for place in self.followed:
            records_max = 4 if self._light else rng.choice((4, 4, 40, 400))
            slower = 5 if self._light else 1
            pace_s = slower * rng.choice((0.1, 0.5))
            clients.idempotent(
                f"idempotent-{place.partition}", place, batches=BATCHES, pace_s=pace_s, batch_records_max=records_max
            )
            if rng.random() < 0.5:
                clients.plain(
                    f"plain-{place.partition}", place, batches=BATCHES, pace_s=slower * rng.choice((0.05, 0.5))
                )
            if rng.random() < 0.5:
                clients.follower(f"follower-{place.partition}", place)
        if self._writes_only:
            return
        for index in range(rng.choice((1, 2, 3))):
            clients.member(f"member-{index}")
        await self.programs.start()
        self.clients.look = self.programs.look
        self._administering = SimProcess("admin", host="admin").start(self._administer(Random(rng.random())))

    async def stop(self) -> None:
        """Nothing new is produced from now on, and no topic is made or deleted."""
        self.clients.stop()
        self.programs.stop()
        if self._administering is not None:
            self._administering.cancel()
            await asyncio.gather(self._administering, return_exceptions=True)

    async def write_once_more(self) -> None:
        """A batch to every partition: its owner collects what earlier ones left once it has claimed."""
        for place in self.places:
            producer = PlainProducer(
                self.clients.client(f"last-{place}"), self._world.history, place, batches=1, pace_s=0.1
            )
            await producer.run()

    async def _administer(self, rng: Random) -> None:
        """Makes a topic, writes a little to it, and deletes it or keeps it; again and again."""
        number = 0
        while True:
            await asyncio.sleep(rng.random() * 6)
            number += 1
            name = f"passing-{number}"
            client = self.clients.client(name)
            try:
                await client.create_topic(name, partitions=1, configs=self._configs)
                place = Place(name, 0)
                await client.refresh_until_known(place)
                self.places.append(place)
                await PlainProducer(client, self._world.history, place, batches=rng.randint(1, 4), pace_s=0.2).run()
                if rng.random() < DELETED_SHARE:
                    await asyncio.sleep(rng.random())
                    self._world.history.deleted_topics.add(name)
                    self.places.remove(place)
                    await client.delete_topic(name)
            except ConnectionLost:
                continue
            finally:
                client.close()
