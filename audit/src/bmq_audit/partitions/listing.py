"""What a listing shows below `topics/`, partition by partition: never more than one partition in memory for each that
is being audited.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bmq.ports import ObjectMeta
from bmq.storage.keys import partition_prefix
from bmq.values import TopicPartition
from bmq_audit.places import Place, PlaceKind, place_of
from bmq_audit.reading import Reader


@dataclass(slots=True)
class PartitionListing:
    """A partition's objects with their sizes in bytes: manifest versions by number, the others by key. All
    ascending.
    """

    tp: TopicPartition
    manifests: dict[int, int] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    segments: dict[str, int] = field(default_factory=dict)
    snapshots: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """The leader epochs that keys of segments and snapshots tell."""

    @property
    def objects(self) -> int:
        """How many there are."""
        return len(self.manifests) + len(self.pages) + len(self.segments) + len(self.snapshots)

    @property
    def size_bytes(self) -> int:
        """How many bytes all of them have together."""
        return sum(
            sum(sizes)
            for sizes in (self.manifests.values(), self.pages.values(), self.segments.values(), self.snapshots.values())
        )

    def add(self, place: Place, meta: ObjectMeta) -> None:
        """One more of its objects."""
        match place.kind:
            case PlaceKind.MANIFEST:
                self.manifests[place.number] = meta.size_bytes
            case PlaceKind.MANIFEST_PAGE:
                self.pages[meta.key] = meta.size_bytes
            case PlaceKind.SEGMENT:
                self.segments[meta.key] = meta.size_bytes
                self.epochs[meta.key] = place.number
            case PlaceKind.COORDINATOR_SNAPSHOT:
                self.snapshots[meta.key] = meta.size_bytes
                self.epochs[meta.key] = place.number
            case _:
                pass


async def list_partitions(reader: Reader) -> AsyncIterator[PartitionListing]:
    """Every partition that has objects, in the order of their keys. Raises StoreLost."""
    listing: PartitionListing | None = None
    async for meta in reader.list("topics/"):
        place = place_of(meta.key)
        if place is None or place.tp is None:
            continue
        if listing is None or listing.tp != place.tp:
            if listing is not None:
                yield listing
            listing = PartitionListing(place.tp)
        listing.add(place, meta)
    if listing is not None:
        yield listing


async def list_partition(reader: Reader, tp: TopicPartition) -> PartitionListing:
    """One partition, again."""
    listing = PartitionListing(tp)
    async for meta in reader.list(partition_prefix(tp)):
        place = place_of(meta.key)
        if place is not None and place.tp == tp:
            listing.add(place, meta)
    return listing
