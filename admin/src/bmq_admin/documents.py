"""What the pages of the API answer, as far as it is decided by: JSON objects, field by field. Answers have more fields.

A field that not all versions of bmq answer, which an operator meets while a cluster is upgraded, is not required here.
Shapes alone; the API itself says what each field means (docs/admin-api.md), and a test holds the two together.
"""

from typing import Annotated, Final, NotRequired, TypedDict

from bmq_admin.shapes import Printable, Within

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, which is the last that times are written in."""
Time = Annotated[int, Within(0, TIME_MS_MAX)]
"""In ms since 1970."""
Word = Annotated[str, Printable(200)]
"""What is sent back as it came, or stands in a status as it is."""


class Problem(TypedDict):
    """Why something cannot be had."""

    code: str
    what: str
    why: str
    remedy: str


class Cluster(TypedDict):
    """The cluster as the node that was asked knows it."""

    cluster_id: Word
    partitions_unowned: int
    partitions_unowned_of_lanes: NotRequired[int]


class Clock(TypedDict):
    """The time that the leading controller goes by."""

    now_ms: Time
    trusted: bool


class Node(TypedDict):
    """A node as the leader sees it."""

    node_id: int
    state: str
    leads: bool
    cordoned: bool
    draining: bool
    partitions: int
    moving_away: int
    moving_here: int
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

    partitions: int
    configs: dict[str, str]


class Partition(TypedDict):
    """A partition of a topic; None: its owner does not answer."""

    partition: int
    log_start: int | None
    high_watermark: int | None


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
    bytes_per_second: int


class Lane(TypedDict):
    """A lane."""

    name: str
    number: int
    version: Word
    created_ms: Time
    expires_ms: NotRequired[Time | None]
    ttl_seconds: int
    own_brokers: bool
    reads_base: BaseReads
    fallback: str
    topics: int


class Group(TypedDict):
    """A consumer group."""

    group_id: str
    lag_records: int
