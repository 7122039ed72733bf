"""What the API takes and answers. Sizes in bytes, times in ms since 1970, ages in seconds, lag in records and
seconds.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

ConfigValue = str | int | float | bool | None


def _scalars(configs: object) -> object:
    """One error for the first value that is none, not one for each type that each of them is not: to put thousands of
    errors together takes longer than all else.
    """
    if isinstance(configs, dict):
        for name, value in configs.items():
            if not isinstance(value, (str, int, float)) and value is not None:
                raise PydanticCustomError(
                    "scalar", "{name}: a text, a number, true, false or null is wanted", {"name": str(name)[:100]}
                )
    return configs


ConfigValues = Annotated[dict[str, ConfigValue], BeforeValidator(_scalars)]
"""By Kafka's names."""
VERSION = Field(description="Of its metadata, and its ETag: give it as If-Match to change only this version")


class Asked(BaseModel):
    """The base of what is sent: a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Why something cannot be had (application/problem+json)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What, why and remedy in one line")
    code: str = Field(description="For programs, for example UnknownTopic")
    what: str
    why: str
    remedy: str


class MemberNode(BaseModel):
    """A registered node, as every node knows it."""

    node_id: int
    roles: list[str]
    host: str = Field(description="Where Kafka clients reach it; empty without a proxy")
    port: int
    rack: str


class ClusterView(BaseModel):
    """The cluster as the node that was asked knows it, also while no controller leads."""

    cluster_id: str
    controller_id: int = Field(description="Who led last, as far as this node knows; -1: none is known")
    controller_epoch: int
    metadata_position: int = Field(description="The newest entry of the metadata log that this node has seen")
    answered_by: int = Field(description="The node that was asked")
    nodes: list[MemberNode]
    topics: int
    partitions: int
    partitions_unowned: int
    partitions_unowned_of_lanes: int = Field(
        default=0, description="Those of them that wait for brokers of a lane's own"
    )
    partitions_moving: int
    cordoned: list[int]
    features: dict[str, int]


class TopicSummary(BaseModel):
    """A topic in a list."""

    name: str = Field(description="LANE:NAME where it is a lane's")
    lane: str = Field(description="The lane whose it is; empty: the base's")
    topic_id: str
    partitions: int
    internal: bool
    version: str = VERSION


class TopicView(TopicSummary):
    """A topic; `configs` holds only what was set."""

    created_ms: int
    configs: dict[str, str]


class PartitionView(BaseModel):
    """A partition. Offsets and sizes are null while its owner does not answer."""

    partition: int
    owner: int = Field(description="The broker that owns it, -1: none")
    leader_epoch: int
    log_start: int | None = None
    high_watermark: int | None = None
    tail_bytes: int | None = Field(default=None, description="In the owner's memory, not yet in a segment")
    segment_bytes: int | None = None
    segment_count: int | None = None


class NewTopicAsked(Asked):
    """A topic to be created."""

    name: str = Field(max_length=1_000)
    partitions: int = Field(
        default=-1, description="-1: the cluster's default; in a lane, as many as the base's topic of that name has"
    )
    lane: str = Field(default="", max_length=1_000, description="The lane whose it is to be; empty: the base's")
    configs: ConfigValues = Field(default_factory=dict, description="By Kafka's names")


class PartitionsAsked(Asked):
    """How many partitions a topic is to have."""

    total: int


class ConfigView(BaseModel):
    """A configuration key with its value and where that comes from."""

    name: str
    value: str
    source: str = Field(description="topic, cluster, static (command line or file) or default")
    read_only: bool
    documentation: str


class ConfigsView(BaseModel):
    """All keys of a topic or of the cluster."""

    version: str = VERSION
    configs: list[ConfigView]


class GroupSummary(BaseModel):
    """A consumer group in a list."""

    group_id: str = Field(description=":LANE#NUMBER:GROUP where it is a lane's")
    state: str
    protocol_type: str


class MemberView(BaseModel):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupOffsetView(BaseModel):
    """What a group committed for a partition, and how far that is behind."""

    topic: str
    partition: int
    committed_offset: int
    metadata: str
    log_start: int | None
    high_watermark: int | None
    lag_records: int | None = Field(
        description="Records between the committed offset and the high watermark; null: not known now"
    )
    lag_seconds: float | None = Field(
        description="Age of the first record that the group has not committed; 0 where there is none; null: not "
        "known now"
    )


class GroupView(GroupSummary):
    """A group with its members and a page of its offsets."""

    protocol: str
    members: list[MemberView]
    offsets: list[GroupOffsetView]
    lag_records: int = Field(description="Of all partitions on this page for which it is known")
    lag_seconds: float = Field(description="The largest of all partitions on this page for which it is known")
    next_token: str | None = Field(
        default=None,
        serialization_alias="continue",
        description="Give it as `continue` for the offsets that follow; null: these were the last",
    )
