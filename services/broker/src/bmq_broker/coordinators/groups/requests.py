"""What is asked of the group machine and what it answers, free of the wire's versions and error codes (`handlers`
choose those).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, NewType

from bmq.values import TopicId
from bmq_broker.coordinators.groups.states import GroupState

Ticket = NewType("Ticket", int)
"""Stands for one request until it is answered; the shell gives them out and never twice."""


class Now(NamedTuple):
    """The time of an operation in ms: `loop_ms` counts timeouts and only ever grows, `wall_ms` goes into records."""

    loop_ms: int
    wall_ms: int


class Refusal(Enum):
    """Why a request cannot be had."""

    INVALID_GROUP_ID = auto()
    INVALID_SESSION_TIMEOUT = auto()
    UNKNOWN_MEMBER = auto()
    FENCED_INSTANCE = auto()
    ILLEGAL_GENERATION = auto()
    INCONSISTENT_PROTOCOL = auto()
    REBALANCE_IN_PROGRESS = auto()
    MEMBER_ID_REQUIRED = auto()
    GROUP_FULL = auto()
    TOO_MANY_GROUPS = auto()
    OVERLOADED = auto()
    GROUP_NOT_FOUND = auto()
    GROUP_NOT_EMPTY = auto()
    SUBSCRIBED_TO_TOPIC = auto()
    METADATA_TOO_LARGE = auto()
    STORED_TOO_MUCH = auto()
    STORED_TOO_FAST = auto()
    UNKNOWN_TOPIC = auto()
    NOT_THE_LANES_TURN = auto()
    UNKNOWN_TOPIC_ID = auto()
    ASSIGNMENT_TOO_LARGE = auto()
    INVALID_REQUEST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `member_id` "": a new member, for which `fresh_id` is the id to give (ignored otherwise)."""

    group_id: str
    member_id: str
    fresh_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_member: bool
    """The client understands MEMBER_ID_REQUIRED (KIP-394)."""
    can_skip_assignment: bool
    """The client understands `skip_assignment` (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """With a refusal only `member_id` counts. `members` is there for the leader alone."""

    refusal: Refusal | None = None
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. Protocol type and name None: not checked (older clients do not send them)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    refusal: Refusal | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    refusal: Refusal | None = None


class Leaver(NamedTuple):
    """`member_id` "": whoever has the instance id (an administrator's removal)."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    group_id: str
    leavers: tuple[Leaver, ...]


class NewOffset(NamedTuple):
    """One partition of a commit. `topic_id` None: there is no such topic, which refuses this partition alone."""

    topic: str
    topic_id: TopicId | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """OffsetCommit. generation -1: a consumer without group membership, or a tool. `retention_ms` -1: the broker's."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    client_host: str = ""
    retention_ms: int
    offsets: Sequence[NewOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """One entry per offset, in order; or one refusal for all."""

    refusal: Refusal | None = None
    refusals: tuple[Refusal | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete. Each partition as (topic, whether the topic exists, partition)."""

    group_id: str
    partitions: Sequence[tuple[str, bool, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """`protocol` is the chosen one, "" unless the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState


Reply = JoinReply | SyncReply | HeartbeatReply | CommitReply
