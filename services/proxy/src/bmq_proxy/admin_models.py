"""What the REST API answers. Sizes in bytes, times in ms since 1970, lag in records and seconds."""

from pydantic import BaseModel, Field


class NodeView(BaseModel):
    """A registered node."""

    node_id: int
    roles: list[str]
    host: str
    port: int
    rack: str


class ClusterView(BaseModel):
    """The cluster as this node knows it."""

    cluster_id: str
    controller_id: int = Field(description="-1: none is known")
    metadata_position: int = Field(description="The newest entry of the metadata log that this node has seen")
    nodes: list[NodeView]
    topics: int
    partitions: int
    features: dict[str, int]


class TopicSummary(BaseModel):
    """A topic in a list."""

    name: str
    topic_id: str
    partitions: int
    internal: bool


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


class TopicView(BaseModel):
    """A topic; `configs` holds only what was set."""

    name: str
    topic_id: str
    internal: bool
    created_ms: int
    configs: dict[str, str]
    partitions: list[PartitionView]


class GroupSummary(BaseModel):
    """A consumer group in a list."""

    group_id: str
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
    lag_records: int | None = Field(description="Records between the committed offset and the high watermark; null: not known now")
    lag_seconds: float | None = Field(
        description="Age of the first record that the group has not committed; 0 where there is none; null: not known now"
    )


class GroupView(BaseModel):
    """A group with its members and offsets."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberView]
    offsets: list[GroupOffsetView]
    lag_records: int = Field(description="Of all partitions for which it is known")
    lag_seconds: float = Field(description="The largest of all partitions for which it is known")


class Problem(BaseModel):
    """Why something cannot be had."""

    detail: str
