"""What the balancer sees and what it says: brokers with their partitions' loads, settings, and a plan of moves with
reasons. Values only.

Brokers and topics are in *pools*: a topic of a pool sits on brokers of that pool and nowhere else, and they own nothing
else. The pool "" is everybody's; a topic that is pinned to dedicated brokers (its configuration `bmq.pool`), or a lane
with brokers of its own, is a pool with a name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from bmq.values import NodeId, TopicId, TopicPartition

SHARED_POOL: Final = ""
"""The pool of every broker and topic that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """A broker that may own partitions. Cordoned: it keeps what it has and gets nothing new. Draining: it loses
    everything.
    """

    node_id: NodeId
    rack: str = ""
    cordoned: bool = False
    draining: bool = False
    pool: str = SHARED_POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """A topic's partitions by their index: the owner (NO_NODE: none) and the bytes per second that are written to each.

    Whole bytes: sums of them are exact, in whatever order they are made and undone.
    """

    topic_id: TopicId
    name: str
    owners: Sequence[NodeId]
    bytes_per_s: Sequence[int]
    moving: Mapping[int, NodeId] = field(default_factory=dict)
    """Partitions under way, and where to. They count as being there."""
    since_ms: Mapping[int, int] = field(default_factory=dict)
    """When partitions that moved lately came to their owner. Those that are not named came long ago."""
    pool: str = SHARED_POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    """Everything that a plan is made from. Partitions of an owner that is not among the brokers are left alone: it is
    being fenced.
    """

    brokers: Sequence[BrokerLoad]
    topics: Sequence[TopicLoad]
    now_ms: int = 0
    balancing: frozenset[str] = frozenset()
    """The `Plan.balancing` of the round before; empty for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a pool is out of balance, as shares of a broker's mean."""

    bytes: float
    """How far a broker's bytes per second may be from the mean."""
    counts: float
    """How far a broker's number of partitions may be from the mean."""
    margin: float
    """How far below the giver, as it was, the receiver has to stay. To go back, a partition needs loads that changed by
    twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceSettings:
    """The defaults suit a round a second."""

    moves_max: int = 100
    """Moves at a time: those under way count, so a cluster that moves slowly is not asked for more."""
    rest_ms: int = 60_000
    """How long a partition stays where it came to, unless it has to go."""
    quiet_bytes_per_s: int = 64 * 1024
    """Where brokers take less than this on average, shares are of this much: what is hardly there is not worth a
    move."""
    start: Thresholds = Thresholds(bytes=0.10, counts=0.20, margin=0.05)
    """Balancing of a pool begins beyond these."""
    stop: Thresholds = Thresholds(bytes=0.05, counts=0.10, margin=0.02)
    """Once begun it goes on to these. What lies between is the noise that moves nothing."""


class MoveKind(StrEnum):
    """Why a partition moves; in the order in which they are planned."""

    UNOWNED = "unowned"
    DRAIN = "drain"
    PIN = "pin"
    ZONE = "zone"
    BYTES = "bytes"
    COUNT = "count"


class Move(NamedTuple):
    """`source` NO_NODE: the partition has no owner, and is given one at once."""

    tp: TopicPartition
    topic: str
    source: NodeId
    target: NodeId
    kind: MoveKind
    bytes_per_s: int
    reason: str


class BrokerShare(NamedTuple):
    """What a broker has, with what is on its way to it counted and what leaves it not."""

    node_id: NodeId
    rack: str
    pool: str
    partitions_before: int
    partitions_after: int
    bytes_per_s_before: int
    bytes_per_s_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """How far from even. Of several pools the worst; only brokers that take partitions count."""

    bytes_high: float = 1.0
    """The bytes per second of the busiest broker, as a share of its pool's mean."""
    bytes_low: float = 1.0
    partitions_high: float = 1.0
    """The number of partitions of the broker with the most, as a share of its pool's mean."""
    partitions_low: float = 1.0
    misplaced: int = 0
    """Partitions that have to go: without owner, on a draining broker, outside their pool."""
    crowded: int = 0
    """Partitions by which zones have more or less of a topic than they should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round. The moves are independent of each other: each may fail or be late, and the next round plans from what
    came of them.
    """

    moves: tuple[Move, ...] = ()
    problems: tuple[str, ...] = ()
    """What no move can mend, in words, with what would."""
    before: Imbalance = Imbalance()
    after: Imbalance = Imbalance()
    brokers: tuple[BrokerShare, ...] = ()
    balancing: frozenset[str] = frozenset()
    """The pools that are being evened out; belongs into the next round's `ClusterLoad`."""
