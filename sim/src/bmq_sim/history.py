"""What clients saw, in the order in which they saw it: the evidence that the checkers judge. Nobody else keeps it,
nothing is thrown away.

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

    @property
    def name(self) -> str:
        """What the topic is called on the wire. One that is made again under its name is another topic: `orders#2`
        here.
        """
        return self.topic.partition("#")[0]

    @property
    def on_the_wire(self) -> "Place":
        """As requests and answers name it."""
        return Place(self.name, self.partition)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One batch that a producer sent (an idempotent one possibly several times). `base_offset` None: no acknowledgement
    came.

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
    """Which one of its producer's batches of that partition it is."""
    connection: int = 0
    """The number of its client's connection on which it was sent; 0 for an idempotent one, which may be sent on
    several."""
    timestamp_ms: int = 0
    """The time that its records have."""
    size_bytes: int = 0
    """How large the batch was, as it was sent."""


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
class StartOffset:
    """An answer to "earliest": asked at one turn, told at another."""

    asked: int
    told: int
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """DeleteRecords that was acknowledged: below `offset` there is nothing any more."""

    sent: int
    acknowledged: int
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What retention may take of a partition: what lies below the first record from `young_from_ms` on, or what more
    than `kept_bytes` follow.
    """

    young_from_ms: int | None = None
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundByTime:
    """ListOffsets of a timestamp. `offset` -1: no record is as young."""

    asked: int
    place: Place
    wanted_ms: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """OffsetForLeaderEpoch: where the log of a leader epoch ends. `asked`: the turn of the question."""

    asked: int
    place: Place
    leader_epoch: int
    end_offset: int


@dataclass(slots=True, kw_only=True)
class Written:
    """One try to set something that has one value at a time, such as an offset committed by one program. `acknowledged`
    None: no answer came.
    """

    register: str
    value: str
    sent: int
    acknowledged: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a register was said to be."""

    register: str
    value: str
    asked: int
    told: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerAppend:
    """A broker that thought itself the partition's owner in `leader_epoch` acknowledged an append. `owner` names its
    incarnation.
    """

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
    found_by_time: list[FoundByTime] = field(default_factory=list)
    epoch_ends: list[EpochEnd] = field(default_factory=list)
    starts: list[StartOffset] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    expires: dict[Place, Expiry] = field(default_factory=dict)
    """Partitions that have a retention."""
    initial: dict[str, str] = field(default_factory=dict)
    """What registers were at first."""
    written: list[Written] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
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
        self.starts = [start for start in self.starts if start.place.topic not in self.deleted_topics]
        self.deleted = [deleted for deleted in self.deleted if deleted.place.topic not in self.deleted_topics]
        self.final = {place: log for place, log in self.final.items() if place.topic not in self.deleted_topics}
        self.commits = [commit for commit in self.commits if commit.place.topic not in self.deleted_topics]
        self.commits_seen = [seen for seen in self.commits_seen if seen.place.topic not in self.deleted_topics]

    def write(self, register: str, value: str) -> Written:
        """A try that is sent now; set its `acknowledged` when an answer comes."""
        written = Written(register=register, value=value, sent=self.turn())
        self.written.append(written)
        return written

    def may_go(self, place: Place, below: int) -> None:
        """Somebody asks for the deletion of what lies below an offset."""
        self.deleted_below[place] = max(below, self.deleted_below.get(place, 0))

    def gone_below(self, place: Place) -> int:
        """Nothing is promised for what lies below: somebody asked for its deletion, or retention took it."""
        log = self.final.get(place)
        expired = log.start if log is not None and place in self.expires else 0
        return max(expired, self.deleted_below.get(place, 0))

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
