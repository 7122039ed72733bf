"""Whether what owners serve with is there: every object that the manifest in force at a partition's owner names, on its
pages too. And whether they serve by what is configured.

The newest version in the log is another matter: one that came to stand late is not in force at an heir that began with
the one before.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from bmq.metadata.image import Image
from bmq.metadata.topic_configs import TopicConfigs
from bmq.storage.manifest import Manifest
from bmq.values import StreamId, TopicPartition
from bmq_broker.main import BrokerRole
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_sim.checkers import InvariantViolated
from bmq_sim.objects import named_by
from bmq_sim.store import SimStore

LOOK_S: Final = 0.5


class _Gap(NamedTuple):
    owner: StreamId
    leader_epoch: int
    tp: TopicPartition
    key: str


class OwnersEyes:
    """Looks now and then, past every service. What is missing at two looks in a row is: an image may be a moment
    old.
    """

    def __init__(
        self, store: SimStore, *, image: Callable[[], Image | None], brokers: Callable[[], Iterable[BrokerRole]]
    ) -> None:
        """`brokers`: those that run."""
        self._store = store
        self._image = image
        self._brokers = brokers
        self._gaps: frozenset[_Gap] = frozenset()
        self._wrong: dict[_Gap, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Compares what is named with what is there, now."""
        image = self._image()
        if image is None:
            return
        gaps = dict(self._missing(image))
        for gap in self._gaps & gaps.keys():
            self._wrong.setdefault(gap, gaps[gap])
        self._gaps = frozenset(gaps)

    def check(self) -> None:
        """For when all is well and every node has heard of everything. Raises InvariantViolated."""
        if self._wrong:
            raise InvariantViolated("what an owner serves with is there: " + "\n  ".join([*self._wrong.values()][:5]))
        image = self._image()
        if image is not None and (otherwise := list(self._configured_otherwise(image))):
            raise InvariantViolated("an owner serves by what is configured: " + "\n  ".join(otherwise[:5]))

    def _configured_otherwise(self, image: Image) -> Iterator[str]:
        configs = TopicConfigs({})
        for _, tp, partition in self._owned(image):
            if partition.config != (wanted := configs.of(image, tp.topic_id)):
                yield f"{tp}: {partition.config}, not {wanted}"

    def _missing(self, image: Image) -> Iterator[tuple[_Gap, str]]:
        for broker, tp, partition in self._owned(image):
            if partition.state is PartitionState.APPENDING:
                for key in self._not_there(tp, partition.manifest):
                    line = (
                        f"{tp}: manifest {partition.manifest_version}, in force at node "
                        f"{broker.stream.node_id}, names {key}"
                    )
                    yield _Gap(broker.stream, partition.leader_epoch, tp, key), line

    def _owned(self, image: Image) -> Iterator[tuple[BrokerRole, TopicPartition, Partition]]:
        for broker in self._brokers():
            for tp, partition in broker.partitions.items():
                meta = image.partition(tp)
                if (
                    meta is None
                    or (meta.node_id, meta.broker_epoch) != broker.stream
                    or partition.leader_epoch != meta.leader_epoch
                ):
                    continue
                yield broker, tp, partition

    def _not_there(self, tp: TopicPartition, manifest: Manifest) -> list[str]:
        return [
            key
            for key in named_by(self._store, tp, manifest)
            if key not in self._store.objects and key not in self._store.lost
        ]
