"""One listing of the whole store: how many objects and bytes of each kind, by topic, and which keys are nobody's. Reads
no object.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from bmq.ports import ObjectMeta
from bmq.values import StreamId, TopicId, TopicPartition
from bmq_audit.places import Place, PlaceKind, place_of
from bmq_audit.reading import Reader

FOREIGN_MAX: Final = 10_000
_TELL_EVERY: Final = 1_000


@dataclass(slots=True)
class Sum:
    """So many objects of so many bytes."""

    objects: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """One more object."""
        self.objects += 1
        self.size_bytes += size_bytes


@dataclass(slots=True)
class TopicSum:
    """What lies below a topic's prefix. `manifest_versions` counts those ever written, not those still there."""

    kinds: dict[PlaceKind, Sum] = field(default_factory=lambda: defaultdict(Sum))
    manifest_versions: int = 0
    partitions: int = 0

    @property
    def total(self) -> Sum:
        """All kinds together."""
        return Sum(
            sum(each.objects for each in self.kinds.values()), sum(each.size_bytes for each in self.kinds.values())
        )


@dataclass(slots=True)
class Survey:
    """What a listing tells."""

    total: Sum = field(default_factory=Sum)
    kinds: dict[PlaceKind, Sum] = field(default_factory=lambda: defaultdict(Sum))
    topics: dict[TopicId, TopicSum] = field(default_factory=lambda: defaultdict(TopicSum))
    streams: dict[StreamId, Sum] = field(default_factory=lambda: defaultdict(Sum))
    stream_ends: dict[StreamId, int] = field(default_factory=dict)
    """One above the highest number of each stream."""
    metadata_end: int = 0
    """The number of the newest metadata entry."""
    foreign: list[ObjectMeta] = field(default_factory=list)
    foreign_sum: Sum = field(default_factory=Sum)
    oldest_ms: int | None = None
    newest_ms: int | None = None


async def survey_store(reader: Reader) -> Survey:
    """Lists everything. Raises StoreLost."""
    survey = Survey()
    last_tp: TopicPartition | None = None
    last_version = 0
    async for meta in reader.list(""):
        survey.total.add(meta.size_bytes)
        survey.oldest_ms = meta.modified_ms if survey.oldest_ms is None else min(survey.oldest_ms, meta.modified_ms)
        survey.newest_ms = meta.modified_ms if survey.newest_ms is None else max(survey.newest_ms, meta.modified_ms)
        place = place_of(meta.key)
        if place is None:
            survey.foreign_sum.add(meta.size_bytes)
            if len(survey.foreign) < FOREIGN_MAX:
                survey.foreign.append(meta)
        else:
            survey.kinds[place.kind].add(meta.size_bytes)
            _add(survey, place, meta)
            if place.tp is not None:
                topic = survey.topics[place.tp.topic_id]
                if place.tp != last_tp:
                    last_tp, last_version = place.tp, 0
                    topic.partitions += 1
                if place.kind is PlaceKind.MANIFEST:
                    topic.manifest_versions += place.number - last_version
                    last_version = place.number
        if survey.total.objects % _TELL_EVERY == 0:
            reader.progress.listed = survey.total.objects
            reader.progress.tell()
    reader.progress.listed = survey.total.objects
    reader.progress.tell()
    return survey


def _add(survey: Survey, place: Place, meta: ObjectMeta) -> None:
    match place.kind:
        case PlaceKind.WAL if place.stream is not None:
            survey.streams[place.stream].add(meta.size_bytes)
            survey.stream_ends[place.stream] = place.number + 1
        case PlaceKind.METADATA_ENTRY:
            survey.metadata_end = place.number
        case _ if place.tp is not None:
            survey.topics[place.tp.topic_id].kinds[place.kind].add(meta.size_bytes)
        case _:
            pass
