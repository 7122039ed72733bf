"""What a store costs, by topic: bytes and requests as far as what is stored tells them, times prices. Pure.

What topics share (WAL, shared segments, metadata) is attributed by bytes; how is written beside each figure
(docs/store-cost.md).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bmq.metadata.image import Image
from bmq.values import TopicId
from bmq_audit.places import PlaceKind
from bmq_audit.survey import Sum, Survey

GIB: Final = 1 << 30
READ_BYTES: Final = 1 << 20
"""What a proxy asks for at a time of a segment that is read from the beginning."""
MONTH_MS: Final = 30 * 86_400_000
RATE_FROM_MS: Final = 3_600_000
"""Requests a month are told only where objects are at least so far apart in time."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars: of a GiB for a month, of a thousand PUT (also POST, LIST), of a thousand GET. Traffic is not in it."""

    name: str
    storage_gib_month: float
    put_per_1000: float
    get_per_1000: float


PRICE_LISTS: Final[Mapping[str, Prices]] = {
    "s3": Prices(
        name="Amazon S3 Standard, us-east-1, first 50 TB",
        storage_gib_month=0.023,
        put_per_1000=0.005,
        get_per_1000=0.0004,
    ),
    "gcs": Prices(
        name="Google Cloud Storage Standard, us-central1",
        storage_gib_month=0.020,
        put_per_1000=0.005,
        get_per_1000=0.0004,
    ),
    "free": Prices(name="a store of one's own", storage_gib_month=0.0, put_per_1000=0.0, get_per_1000=0.0),
}
"""List prices, which differ by region, by amount and in time: a file of one's own prices is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBytes:
    """How many bytes of the WAL and of shared segments are each topic's; those of topics that are gone, and overhead,
    are nobody's.
    """

    wal: Mapping[TopicId, int] = field(default_factory=dict)
    segments: Mapping[TopicId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCost:
    """A line of the bill. `own` is below the topic's prefix; the shares may be broken numbers."""

    name: str
    partitions: int
    own: Sum
    shared_bytes: float
    puts: float
    gets: float

    @property
    def size_bytes(self) -> float:
        """What it takes altogether."""
        return self.own.size_bytes + self.shared_bytes

    def storage_month(self, prices: Prices) -> float:
        """Dollars."""
        return self.size_bytes / GIB * prices.storage_gib_month

    def put_dollars(self, prices: Prices) -> float:
        """Dollars, for all that was written so far and left a trace."""
        return self.puts / 1000 * prices.put_per_1000

    def get_dollars(self, prices: Prices) -> float:
        """Dollars, for reading all of it once."""
        return self.gets / 1000 * prices.get_per_1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """`months` is the time from the oldest object to the newest; None where that is too short to tell a rate."""

    topics: tuple[TopicCost, ...]
    kinds: tuple[tuple[str, Sum], ...]
    total: TopicCost
    months: float | None


def bill_of(survey: Survey, image: Image, shared: SharedBytes) -> Bill:
    """The bill of a store."""
    names = _names(survey, image)
    own = {topic_id: survey.topics[topic_id].total if topic_id in survey.topics else Sum() for topic_id in names}
    extra: dict[TopicId | None, float] = defaultdict(float)
    kinds = survey.kinds
    _spread(extra, kinds[PlaceKind.WAL].size_bytes, {each: size for each, size in shared.wal.items() if each in names})
    _spread(
        extra,
        kinds[PlaceKind.SHARED_SEGMENT].size_bytes,
        {each: size for each, size in shared.segments.items() if each in names},
    )
    weights = {topic_id: own[topic_id].size_bytes + extra[topic_id] for topic_id in names}
    rest_bytes = sum(
        kinds[kind].size_bytes for kind in (PlaceKind.METADATA_ENTRY, PlaceKind.METADATA_SNAPSHOT, PlaceKind.SCRATCH)
    )
    _spread(extra, rest_bytes, weights)
    extra[None] += survey.foreign_sum.size_bytes
    puts: dict[TopicId | None, float] = defaultdict(float)
    _spread(puts, _shared_puts(survey), weights)
    costs = [
        TopicCost(
            name=name,
            partitions=len(image.topics[topic_id].partitions) if topic_id in image.topics else 0,
            own=own[topic_id],
            shared_bytes=extra[topic_id],
            puts=_own_puts(survey, topic_id) + puts[topic_id],
            gets=_gets(survey, topic_id, shared),
        )
        for topic_id, name in names.items()
    ]
    costs.sort(key=lambda cost: (-cost.size_bytes, cost.name))
    if extra[None] or puts[None]:
        foreign = Sum(survey.foreign_sum.objects, 0)
        costs.append(
            TopicCost(name="(no topic)", partitions=0, own=foreign, shared_bytes=extra[None], puts=puts[None], gets=0)
        )
    total = TopicCost(
        name="total",
        partitions=sum(cost.partitions for cost in costs),
        own=survey.total,
        shared_bytes=0,
        puts=sum(cost.puts for cost in costs),
        gets=sum(cost.gets for cost in costs),
    )
    rows = [(str(kind), kinds[kind]) for kind in PlaceKind if kinds[kind].objects]
    if survey.foreign_sum.objects:
        rows.append(("foreign", survey.foreign_sum))
    return Bill(topics=tuple(costs), kinds=tuple(rows), total=total, months=_months(survey))


def _names(survey: Survey, image: Image) -> dict[TopicId, str]:
    names = {topic_id: topic.name for topic_id, topic in image.topics.items()}
    for topic_id in survey.topics:
        if topic_id not in names:
            names[topic_id] = f"{image.deleted.get(topic_id, topic_id)} (deleted)"
    return names


def _spread(onto: dict[TopicId | None, float], amount: float, weights: Mapping[TopicId, float]) -> None:
    """The amount by weight; nobody's where nobody weighs anything."""
    whole = sum(weights.values())
    if not whole:
        onto[None] += amount
        return
    for key, weight in weights.items():
        onto[key] += amount * weight / whole


def _own_puts(survey: Survey, topic_id: TopicId) -> int:
    """Manifest versions ever written, and the other objects that are there."""
    topic = survey.topics.get(topic_id)
    if topic is None:
        return 0
    return topic.manifest_versions + sum(
        each.objects for kind, each in topic.kinds.items() if kind is not PlaceKind.MANIFEST
    )


def _shared_puts(survey: Survey) -> int:
    """The numbers of the WAL's streams and of the metadata log tell how many there ever were, deleted ones included."""
    kinds = survey.kinds
    return (
        sum(survey.stream_ends.values())
        + survey.metadata_end
        + kinds[PlaceKind.METADATA_SNAPSHOT].objects
        + kinds[PlaceKind.SHARED_SEGMENT].objects
    )


def _gets(survey: Survey, topic_id: TopicId, shared: SharedBytes) -> float:
    """To read all segments once: their bytes in pieces, and each one's index."""
    topic = survey.topics.get(topic_id)
    segments = topic.kinds[PlaceKind.SEGMENT] if topic is not None else Sum()
    size_bytes = segments.size_bytes + shared.segments.get(topic_id, 0)
    return segments.objects + -(-size_bytes // READ_BYTES)


def _months(survey: Survey) -> float | None:
    if survey.oldest_ms is None or survey.newest_ms is None or survey.newest_ms - survey.oldest_ms < RATE_FROM_MS:
        return None
    return (survey.newest_ms - survey.oldest_ms) / MONTH_MS
