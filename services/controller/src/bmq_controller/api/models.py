"""What the API takes and answers. Sizes in bytes, times in ms since 1970, ages in seconds, lag in records and seconds."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

ConfigValue = str | int | float | bool | None
VERSION = Field(description="Of its metadata, and its ETag: give it as If-Match to change only this version")
NODE_ID_MAX = (1 << 31) - 1
NodeNumber = Annotated[int, Field(ge=0, le=NODE_ID_MAX)]


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


# --- cluster ---


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
    partitions_moving: int
    cordoned: list[int]
    features: dict[str, int]


# --- topics and configurations ---


class TopicSummary(BaseModel):
    """A topic in a list."""

    name: str
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
    partitions: int = Field(default=-1, description="-1: the cluster's default")
    configs: dict[str, ConfigValue] = Field(default_factory=dict, description="By Kafka's names")


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


# --- groups ---


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


class GroupView(GroupSummary):
    """A group with its members and offsets."""

    protocol: str
    members: list[MemberView]
    offsets: list[GroupOffsetView]
    lag_records: int = Field(description="Of all partitions for which it is known")
    lag_seconds: float = Field(description="The largest of all partitions for which it is known")


# --- nodes and placement ---


class NodeView(BaseModel):
    """A node as the leader sees it. One that is cordoned and not registered has no roles."""

    node_id: int
    roles: list[str]
    rack: str
    pool: str = Field(description="Of a broker: it owns partitions of the topics of this pool alone; empty: of those that name none")
    host: str
    port: int
    internal_address: str
    epoch: int = Field(description="Of this start of it; -1: it is not registered")
    state: str = Field(description="alive, silent (nothing heard for half its lease), fencing or gone")
    leads: bool = Field(description="Whether it is the leading controller")
    last_heard_s: float | None = Field(description="How long ago the leader heard it; null: not watched")
    cordoned: bool = Field(description="Gets no new partitions")
    draining: bool = Field(description="Is being emptied, or stops")
    partitions: int
    moving_away: int
    moving_here: int
    bytes_per_s: float = Field(description="Written to its partitions of late")
    version: str = VERSION


class RangeView(BaseModel):
    """What the owner must read of an earlier owner's stream besides the manifest."""

    node_id: int
    epoch: int
    leader_epoch: int
    start: int
    end: int


class PlacementView(BaseModel):
    """Who owns a partition."""

    topic: str
    topic_id: str
    partition: int
    owner: int = Field(description="-1: none")
    owner_epoch: int
    leader_epoch: int
    moving_to: int | None = Field(description="Where a planned move leads; null: there is none")
    ranges: list[RangeView]
    bytes_per_s: float
    version: str = VERSION


class MoveAsked(Asked):
    """Where a partition is to go."""

    to: NodeNumber


# --- balance ---


class MoveView(BaseModel):
    """A move that evens something out."""

    topic: str
    partition: int
    source: int = Field(description="-1: the partition has no owner")
    target: int
    kind: str = Field(description="unowned, drain, pin, zone, bytes or count")
    bytes_per_s: int
    reason: str


class ShareView(BaseModel):
    """What a broker has, and would have."""

    node_id: int
    rack: str
    pool: str
    partitions_before: int
    partitions_after: int
    bytes_per_s_before: int
    bytes_per_s_after: int


class ImbalanceView(BaseModel):
    """How far from even; shares of the mean, of the worst pool."""

    bytes_high: float
    bytes_low: float
    partitions_high: float
    partitions_low: float
    misplaced: int
    crowded: int


class PlanView(BaseModel):
    """A plan of moves with reasons."""

    moves: list[MoveView]
    problems: list[str] = Field(description="What no move can mend, with what would")
    before: ImbalanceView
    after: ImbalanceView
    brokers: list[ShareView]


class BegunView(BaseModel):
    """Moves that were begun."""

    begun: list[MoveView]
    planned: int = Field(description="Moves of this round's plan; what is planned and not begun is planned anew")
    problems: list[str]


class BalanceAsked(Asked):
    """One round."""

    moves_max: Annotated[int, Field(ge=1, le=1_000, description="Moves at a time, those under way counted")] = 100


class BusyPartition(BaseModel):
    """A partition and what is written to it."""

    topic: str
    partition: int
    owner: int
    bytes_per_s: float


class ShareOfLoad(BaseModel):
    """A broker's part of it."""

    node_id: int
    rack: str
    partitions: int
    bytes_per_s: float


class LoadView(BaseModel):
    """What is written, busiest first."""

    bytes_per_s: float
    brokers: list[ShareOfLoad]
    partitions: list[BusyPartition]


# --- a node of its own ---


class SelfView(BaseModel):
    """The node that was asked, and how it is configured; secrets are left out."""

    node_id: int
    version: str
    python: str
    platform: str
    started_ms: int
    uptime_s: float
    leads: bool
    metadata_position: int
    configuration: dict[str, object]


class StoreStep(BaseModel):
    """One request to the store."""

    name: str
    ok: bool
    seconds: float
    detail: str


class StoreView(BaseModel):
    """Whether the object store answers the node that was asked, and how quickly."""

    ok: bool
    steps: list[StoreStep]


class LogEntryView(BaseModel):
    """An entry of the metadata log."""

    position: int
    epoch: int
    claim: bool
    records: list[dict[str, object]]


class LogView(BaseModel):
    """The newest entries of the metadata log, oldest first, as they are in the store."""

    entries: list[LogEntryView]
