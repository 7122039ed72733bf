"""What the pages of the API answer, as far as it is decided by: JSON objects, field by field. Answers have more fields.

A field that not all versions of bmq answer, which an operator meets while a cluster is upgraded, is not required here.
Shapes alone, as msgspec reads them; the API itself says what each field means (docs/admin-api.md), and a test holds the
two together. Anybody may answer in a cluster's place: a number is one that a log could hold, and what is sent back as
it came is what a request can carry.
"""

import functools
from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

Kind: TypeAlias = Any
"""Which of these an answer is to be, or None."""
Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, which is the last that times are written in."""
Time = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
"""In ms since 1970."""
_PRINTABLE: Final = r"^[ -~]*\Z"
Word = Annotated[str, Meta(max_length=200, pattern=_PRINTABLE)]
"""What is sent back as it came, or stands in a status as it is."""
Token = Annotated[str, Meta(max_length=2_000, pattern=_PRINTABLE)]
"""Where the next page of a list begins."""


@functools.cache
def page_of(item: Kind) -> Kind:
    """A page of a list of these."""
    made: Any = TypedDict  # a type checker knows only those that are written down
    return made("Page", {"items": list[item], "continue": Token | None})


class Problem(TypedDict):
    """Why something cannot be had."""

    code: str
    what: str
    why: str
    remedy: str


class Cluster(TypedDict):
    """The cluster as the node that was asked knows it."""

    cluster_id: Word
    partitions_unowned: Integer
    partitions_unowned_of_lanes: NotRequired[Integer]


class Clock(TypedDict):
    """The time that the leading controller goes by."""

    now_ms: Time
    trusted: bool


class Node(TypedDict):
    """A node as the leader sees it."""

    node_id: Integer
    state: str
    leads: bool
    cordoned: bool
    draining: bool
    partitions: Integer
    moving_away: Integer
    moving_here: Integer
    pool: NotRequired[str]


class StoreStep(TypedDict):
    """One thing that was tried with the store."""

    name: str
    ok: bool
    detail: str


class Store(TypedDict):
    """Whether the store answers the node that was asked."""

    ok: bool
    steps: list[StoreStep]


class TopicSummary(TypedDict):
    """A topic in a list."""

    name: str
    topic_id: Word
    version: Word


class Topic(TopicSummary):
    """A topic; `configs` has only what was set."""

    partitions: Integer
    configs: dict[str, str]


class Partition(TypedDict):
    """A partition of a topic; None: its owner does not answer."""

    partition: Integer
    log_start: Integer | None
    high_watermark: Integer | None


class Config(TypedDict):
    """A configuration key; `source`: topic, cluster, static or default."""

    name: str
    value: str
    source: str


class Configs(TypedDict):
    """All keys of the cluster or of a topic."""

    version: Word
    configs: list[Config]


class BaseReads(TypedDict):
    """What a lane's clients may read of the base."""

    enabled: bool
    topics: list[str]
    bytes_per_second: Integer


class Quota(TypedDict):
    """How much a lane may take; 0: as much as there is."""

    write_bytes_per_second: Integer
    read_bytes_per_second: Integer
    partitions: Integer
    storage_bytes: Integer


class Lane(TypedDict):
    """A lane."""

    name: str
    number: Integer
    version: Word
    created_ms: Time
    expires_ms: NotRequired[Time | None]
    ttl_seconds: Integer
    own_brokers: bool
    reads_base: BaseReads
    fallback: str
    parent: NotRequired[str]
    quota: NotRequired[Quota]
    topics: Integer
    partitions: NotRequired[Integer]


class Channel(TypedDict):
    """A channel of Databus; `spec` as in a file, without what is as by default."""

    name: str
    version: Word
    created_ms: Time
    spec: dict[str, Any]


class Group(TypedDict):
    """A consumer group."""

    group_id: str
    lag_records: Integer
