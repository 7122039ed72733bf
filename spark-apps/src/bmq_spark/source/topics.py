"""From topic names, in a lane or in none, to topic ids and partitions: by the cluster's metadata as the store has it,
without a controller.
"""

from collections.abc import Sequence

from bmq.config.topic_config import first_offset_of
from bmq.errors import FormatError
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal, Position
from bmq.naming.lanes import BASE, matches, overlay_name
from bmq.storage.flatlog import GapFound
from bmq_spark.source.failures import SourceFailed, TopicGone
from bmq_spark.source.opening import OpenedStore
from bmq_spark.source.slices import SourceTopic


class Topics:
    """The metadata of one cluster. Keeps what it read, and reads only what came since."""

    def __init__(self, store: OpenedStore) -> None:
        self._store = store
        self._journal = MetadataJournal(store.objects, rng=store.rng)
        self._position: Position | None = None

    def image(self) -> Image:
        """The newest image. Raises SourceFailed."""
        try:
            self._position = self._store.run(self._load())
        except FormatError as error:
            raise SourceFailed(
                f"{error}: the metadata in {self._store.url} cannot be read: `bmq store check` says more"
            ) from error
        if self._position.entry is None:
            raise SourceFailed(
                f"option store={self._store.url}: no cluster of bmq is there: check folder or bucket, and the prefix"
            )
        return self._position.image

    async def _load(self) -> Position:
        if self._position is not None and self._position.entry is not None:
            try:
                return await self._journal.advance(self._position)
            except GapFound:
                pass  # snapshots have covered what came since
        return await self._journal.load()


def check_cluster(image: Image, cluster_id: str | None, *, url: str) -> None:
    """Raises SourceFailed where another cluster's store is open than the one that was named."""
    if cluster_id is not None and image.cluster_id != cluster_id:
        raise SourceFailed(
            f"option cluster_id={cluster_id}: the store {url} is that of the cluster {image.cluster_id}: check "
            "option store"
        )


def find_topics(image: Image, names: Sequence[str], *, lane: str) -> list[SourceTopic]:
    """The topics of these names; one that a lane has not written to yet is left out (it is empty, or a topic of the
    base that the lane reads).

    Raises TopicGone.
    """
    if lane and lane not in image.lanes:
        raise TopicGone(f"option lane={lane}: there is no such lane: `bmq lanes list` tells which there are")
    found = (_find(image, name, lane) for name in names)
    return [topic for topic in found if topic is not None]


def _find(image: Image, name: str, lane: str) -> SourceTopic | None:
    own = image.topic(overlay_name(lane, name))
    in_base = image.topic(name) if lane else None
    if own is not None:
        first_offset = first_offset_of(own.configs)
        return SourceTopic(
            name=name, lane=lane, topic_id=own.topic_id, partition_count=len(own.partitions), first_offset=first_offset
        )
    if in_base is not None and matches(name, image.lanes[lane].reads_base):
        return SourceTopic(name=name, lane=BASE, topic_id=in_base.topic_id, partition_count=len(in_base.partitions))
    if in_base is None:
        where = f" in the lane {lane}" if lane else ""
        raise TopicGone(f"option topic={name}: there is no such topic{where}: `bmq topics list` tells which there are")
    return None
