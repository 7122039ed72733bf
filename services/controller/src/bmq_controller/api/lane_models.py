"""What the API takes and answers about lanes. Times in ms since 1970, sizes in bytes."""

from typing import Literal

from pydantic import BaseModel, Field

from bmq_controller.api.models import VERSION, Asked

_BYTES_PER_SECOND = (
    "How much all of the lane's clients together read of the base at most, in bytes per second and proxy"
)

_WRITE = "How much all of the lane's clients together write at most, in bytes of requests per second and proxy"
_READ = "How much all of the lane's clients together read at most, in bytes per second and proxy"
_PARTITIONS = "How many partitions all of its own topics have together at most"
_STORAGE = (
    "How many bytes all partitions that the quota allows keep together at most: each keeps an equal part, "
    "1048576 at least, whatever its topic says. Needs partitions"
)


class BaseReadsAsked(Asked):
    """Which topics of the base the lane's clients may read."""

    enabled: bool = Field(default=False, description="Whether they may read any")
    topics: list[str] = Field(default=["*"], description="Which ones, by name; * stands for any characters")
    bytes_per_second: int = Field(default=1_048_576, description=_BYTES_PER_SECOND)


class QuotaAsked(Asked):
    """How much the lane may take of the cluster; 0: as much as there is."""

    write_bytes_per_second: int = Field(default=0, description=_WRITE)
    read_bytes_per_second: int = Field(default=0, description=_READ)
    partitions: int = Field(default=0, description=_PARTITIONS)
    storage_bytes: int = Field(default=0, description=_STORAGE)


class LaneAsked(Asked):
    """What a lane is to be."""

    ttl_seconds: int = Field(
        default=0, description="It is deleted, with its topics and groups, so long after it was created; 0: it stays"
    )
    own_brokers: bool = Field(
        default=False, description="Whether its topics are on the brokers of the pool lane-NAME alone"
    )
    reads_base: BaseReadsAsked = Field(default=BaseReadsAsked(), description="What its clients may read of the base")
    fallback: Literal["none", "base"] = Field(
        default="none",
        description="What happens to messages that nobody in it consumes: none, they stay in it; base, they go on to "
        "the base. It stays as the lane was made",
    )
    parent: str = Field(
        default="",
        max_length=1_000,
        description="The lane that it is nested in: what nobody in it consumes goes on to that one first, which needs "
        "fallback base. Empty: to the base at once. It stays as the lane was made",
    )
    quota: QuotaAsked = Field(default=QuotaAsked(), description="How much it may take of the cluster")


class NewLaneAsked(LaneAsked):
    """A lane to be created."""

    name: str = Field(max_length=1_000, description="What clients write in lane=NAME")


class BaseReadsView(BaseModel):
    """Which topics of the base its clients may read; what it has a topic of its own for is not among them."""

    enabled: bool
    topics: list[str]
    bytes_per_second: int = Field(description=_BYTES_PER_SECOND)


class QuotaView(BaseModel):
    """How much the lane may take of the cluster; 0: as much as there is."""

    write_bytes_per_second: int = Field(description=_WRITE)
    read_bytes_per_second: int = Field(description=_READ)
    partitions: int = Field(description=_PARTITIONS)
    storage_bytes: int = Field(description=_STORAGE)


class ClockView(BaseModel):
    """What time it is, as the leading controller goes by it."""

    now_ms: int
    trusted: bool = Field(
        description="Whether anything is deleted by it now: not while it and the object store's clock are more than a "
        "minute apart, nor after it jumped"
    )


class LaneView(BaseModel):
    """A lane."""

    name: str
    number: int = Field(description="Of all lanes that there ever were, this one's alone")
    version: str = VERSION
    created_ms: int
    expires_ms: int | None = Field(description="When it is deleted by itself; null: never")
    ttl_seconds: int
    own_brokers: bool
    pool: str = Field(description="Of its own brokers; empty where it has none")
    reads_base: BaseReadsView
    fallback: str
    parent: str = Field(description="The lane that it is nested in; empty: none")
    quota: QuotaView
    topics: int = Field(description="How many it has of its own")
    partitions: int = Field(description="How many these have together")
    proxies: list[int] = Field(description="Those that serve it alone")
