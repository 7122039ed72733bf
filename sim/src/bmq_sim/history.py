"""What clients saw, in the order in which they saw it: the evidence that the checkers judge. Nobody else keeps it, nothing is thrown away.

Values are unique in a run, so a value is a record's identity. `turn` orders events: it grows with each one.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """A partition as clients name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One batch that a producer sent (an idempotent one possibly several times). `base_offset` None: no acknowledgement came.

    `base_offset` -1: acknowledged as a duplicate whose offset is not told.
    """

    producer: str
    place: Place
    values: tuple[bytes, ...]
    idempotent: bool
    sent: int
    """The turn at which it was first sent."""
    acknowledged: int | None = None
    """The turn at which it was acknowledged."""
    base_offset: int | None = None
    number: int = 0
    """Of the batch among its producer's of that partition."""
    connection: int = 0
    """Of its client, on which it was sent; 0 for an idempotent one, which may be sent on several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """A record that a Fetch returned, and the high watermark that came with it."""

    turn: int
    reader: str
    place: Place
    offset: int
    value: bytes
    leader_epoch: int
    timestamp_ms: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffset:
    """An answer to "latest": asked at one turn, told at another."""

    asked: int
    told: int
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """A Fetch at `offset`, asked at turn `asked`, was told that the offset does not exist."""

    asked: int
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A group's commit that was acknowledged."""

    sent: int
    acknowledged: int
    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSeen:
    """What OffsetFetch answered; -1: nothing committed."""

    asked: int
    told: int
    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerAppend:
    """A broker that thought itself the partition's owner in `leader_epoch` acknowledged an append. `owner` names its incarnation."""

    place: Place
    leader_epoch: int
    owner: str


@dataclass(slots=True)
class History:
    """Everything that was seen."""

    attempts: list[Attempt] = field(default_factory=list)
    seen: list[SeenRecord] = field(default_factory=list)
    ends: list[EndOffset] = field(default_factory=list)
    out_of_range: list[OutOfRange] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    commits_seen: list[CommitSeen] = field(default_factory=list)
    owner_appends: list[OwnerAppend] = field(default_factory=list)
    deleted_below: dict[Place, int] = field(default_factory=dict)
    """DeleteRecords that may have been applied."""
    deleted_topics: set[str] = field(default_factory=set)
    """Topics whose deletion was asked for: nothing is promised for what was in them."""
    refused: list[str] = field(default_factory=list)
    """Answers that no correct server gives (an idempotent producer told that its sequence is wrong)."""
    final: dict[Place, "FinalLog"] = field(default_factory=dict)
    turns: int = 0

    def turn(self) -> int:
        """The next turn."""
        self.turns += 1
        return self.turns

    def forget_deleted(self) -> None:
        """Drops what was sent to and read from topics that were deleted: nothing is promised for it any more."""
        self.attempts = [attempt for attempt in self.attempts if attempt.place.topic not in self.deleted_topics]
        self.seen = [record for record in self.seen if record.place.topic not in self.deleted_topics]
        self.ends = [end for end in self.ends if end.place.topic not in self.deleted_topics]
        self.commits = [commit for commit in self.commits if commit.place.topic not in self.deleted_topics]
        self.commits_seen = [seen for seen in self.commits_seen if seen.place.topic not in self.deleted_topics]

    def acknowledged(self) -> dict[Place, list[Attempt]]:
        """Attempts that were acknowledged with an offset, by partition."""
        found: dict[Place, list[Attempt]] = defaultdict(list)
        for attempt in self.attempts:
            if attempt.base_offset is not None and attempt.base_offset >= 0:
                found[attempt.place].append(attempt)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRecord:
    """A record as the whole log, read from its start to its end after the run, has it."""

    offset: int
    value: bytes
    leader_epoch: int
    timestamp_ms: int
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """A partition after the run."""

    start: int
    end: int
    records: tuple[FinalRecord, ...]
