"""What the API takes and answers of nodes, placement, balance and load, and of one node for who looks for a fault. See
`models`.
"""

from typing import Annotated

from pydantic import BaseModel, Field

from bmq.values import NODE_ID_MAX
from bmq_controller.api.models import VERSION, Asked

NodeNumber = Annotated[int, Field(ge=0, le=NODE_ID_MAX)]


class NodeView(BaseModel):
    """A node as the leader sees it. One that is cordoned and not registered has no roles."""

    node_id: int
    roles: list[str]
    rack: str
    pool: str = Field(
        description="Of a broker: it owns partitions of the topics of this pool alone; empty: of those that name none"
    )
    lane: str = Field(
        description="Of a proxy: the lane that it serves alone; empty: the base, and whoever names a lane"
    )
    host: str
    port: int
    listeners: dict[str, str] = Field(
        description="Where clients reach its proxy by further listeners, as far as is known: HOST:PORT by name"
    )
    internal_address: str
    epoch: int = Field(description="Of this start of it; -1: it is not registered")
    state: str = Field(description="alive, silent (nothing heard for half its lease), fencing or gone")
    trouble: str = Field(
        "",
        description="What ails a broker, as it said last: that its store takes nothing, that its clock is wrong; "
        "empty: nothing",
    )
    leads: bool = Field(description="Whether it is the leading controller")
    last_heard_s: float | None = Field(description="How long ago the leader heard it; null: not watched")
    cordoned: bool = Field(description="Gets no new partitions")
    draining: bool = Field(description="Its partitions are being moved away: it is drained, or stops")
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
