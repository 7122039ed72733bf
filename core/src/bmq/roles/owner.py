"""What a proxy asks of the broker that owns a partition (or a group). Keys are topic ids; batches are opaque bytes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import Buffer

from bmq.errors import BmqError
from bmq.fairness.turns import NOBODY, Party
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.batch_headers import BatchHeader

HANDED_OVER: Final = 1 << 14
"""In place of Produce's version, of what a lane hands over to the base: no client sends that."""
PARTED: Final = HANDED_OVER + 1
"""The same, of what is left to the base of a batch that was parted among lanes: it has gaps, and may have no record. It
was ASKED for before."""
OF_LANE: Final = HANDED_OVER + 2
"""And of a lane's part: its producer's sequence may leave out what had nothing for the lane."""
ASKED: Final = HANDED_OVER + 3
"""The same, of a batch that is not there yet: nothing is appended. The answer is that of the batch where the owner has
it, else one with the base offset NEXT: it would be appended now."""
NEXT: Final = Offset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """A batch that is durable, or NEXT. `log_append_time_ms` is -1 with CreateTime."""

    base_offset: Offset
    log_append_time_ms: int
    log_start: Offset


class AppendedAlike(NamedTuple):
    """Batches of one partition that are durable, by their base offsets; as `Appended`."""

    base_offsets: Sequence[int]
    log_append_time_ms: int
    log_start: Offset


class Proved(NamedTuple):
    """One batch that readers can open, as far as its topic asks for that to be known: `is_whole` where its checksum was
    compared. `header` None: it is left to the owner to refuse.
    """

    records: Buffer
    header: BatchHeader | None
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRequest:
    """`current_leader_epoch` -1: not checked. `max_bytes` is soft: the first batch comes whole (KIP-74)."""

    tp: TopicPartition
    offset: Offset
    max_bytes: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TailAnswer:
    """What the owner has at an offset.

    error None and `offset >= tail_start`: `batches`, whole record batches in order, the first one holding the offset;
    all below the high watermark. error None and `offset < tail_start`: nothing here: the records are in segments; read
    `manifest_version` (or a later one). error OffsetOutOfRange: below `log_start` or above `high_watermark`, and the
    owner made sure that it still is the owner.
    """

    tp: TopicPartition
    error: BmqError | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    manifest_version: ManifestVersion = ManifestVersion(0)
    log_start: Offset = Offset(-1)
    tail_start: Offset = Offset(-1)
    high_watermark: Offset = Offset(-1)
    last_stable_offset: Offset = Offset(-1)
    batches: tuple[Buffer, ...] = ()
    size_bytes: int = 0
    unsent_bytes: int = 0
    """Instead of batches: how many bytes they would be, where there was no room for them."""


class TailRoom(Protocol):
    """Memory of one who reads, for what has to be fetched from another process: it is asked for before that is."""

    def take(self, size_bytes: int) -> bool:
        """Holds so much, or says that there is no room: then only sizes are fetched."""

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        """Holds what came instead of what was taken for it; that is more where one batch is larger."""

    def leave(self) -> None:
        """Nothing of what was fetched is held any more, or it is counted elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForTime:
    """The first record at or after a timestamp. offset -1 and timestamp_ms -1: there is none."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The largest epoch at or below the asked one and the offset where it ends; both -1 where there is none."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """Figures for DescribeLogDirs and the admin pages."""

    tp: TopicPartition
    log_start: Offset
    high_watermark: Offset
    tail_bytes: int
    segment_bytes: int
    segment_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An offset of a partition, such as a consumer group committed."""

    tp: TopicPartition
    offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What lies behind a position: records up to the high watermark, and for how many seconds the first of them has
    been there (0: none).
    """

    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """How many messages of a lane's turn a partition of the base has taken. `is_final`: it takes no more of that turn,
    and all of them are durable.
    """

    count: int
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: recorded with group members. `api_version` is the request's as the client sent it (-1: the newest);
    some answers depend on it.

    `taken` is called once who serves a JoinGroup or SyncGroup has, and counts, what it says: the request itself is
    needed no more, though its answer may take as long as its group wants.
    """

    client_id: str
    client_host: str
    api_version: int = -1
    taken: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)


class Owner(Protocol):
    """The broker, as a proxy sees it. Every method may raise NotOwner, NotReady, PartitionStopped or Fenced; requests
    may raise RequestError.
    """

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Submits one produce payload (one or more whole record batches) before it returns, so calls keep their order.

        The future resolves when everything that the answer rests on is durable (a duplicate batch gives its first
        offsets), or raises: RequestErrors and NotOwner/NotReady mean *not applied*; Fenced or StoreError after
        submission mean *unknown*. `records` must not be changed afterwards. `produce_version`: the client's, or
        HANDED_OVER, PARTED, OF_LANE or ASKED. `party`: by whose turn the partition is opened, where it is not yet.
        """

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        """Submits as many of a client's batches, from the first on, as are plainly the next ones, and says how many.

        None: not even the first is, or nothing can be said at once; why not, `append` tells. Nothing of the others is
        looked at. The future is as that of `append`, and has an error for all that were taken.
        """

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        """One answer per request, in order.

        Waits until `min_bytes` are there in all, an answer has an error or lies below the tail, or the time is up. A
        partition that is being opened is waited for like records; it is NotReady where others have enough after a
        moment, or when the time is up.

        An owner of another process fetches into the `room` (None: its caller counts `max_bytes` itself), and says
        `unsent_bytes` of what has none. Nothing that was fetched is held while it waits. `party`: by whose turns very
        many requests are looked at.
        """

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        """Exact to the record.

        -1 latest (with `committed` the last stable offset), -2 earliest, -3 the record with the largest timestamp,
        -4 earliest local (the same as -2), -5 latest tiered (the end of the newest segment).

        `address`: where the client is that asks, as Kafka writes it: times are looked up by turns of addresses. "" is
        one for all of whom nobody knows it.
        """

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """For OffsetForLeaderEpoch."""

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Raises the log start to `before` (-1: the high watermark) and returns it, durable."""

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> HandedOver:
        """How far the lane's turn with this producer id got here. Raises TurnIsOver, InvalidBatch."""

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """Figures of those that are open here, or can be within a moment; others are left out."""

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        """One answer per position, in order, from memory alone; None for partitions that are not open here, nor can be
        within a moment.
        """

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """One request to the coordinator that lives in this partition of `__consumer_offsets`.

        request and reply are wire Messages (bmq.wire.messages) of that API key, with the field names of kio's newest
        version. Of one that waits for others of its group the coordinator has what it says, and nobody else: see
        `let_go`.
        """


class Tails(Protocol):
    """The tails of an owner in this process, at the moment and as they change, for one who follows them. Of one
    incarnation of the owner.
    """

    def watch(self, tp: TopicPartition) -> None:
        """From now on whoever follows is told when something about the partition changed; once for each `watch`, until
        it is left.
        """

    def leave(self, tp: TopicPartition) -> None:
        """The other way round."""

    def read(self, request: TailRequest) -> TailAnswer:
        """What is there from memory, at once; the first batch comes whole. Nothing is opened, and what is out of range
        is not made sure of.

        Raises what ended the incarnation.
        """


class OwnerHere(Owner, Protocol):
    """A broker of this process."""

    def tails(self, changed: Callable[[TopicPartition], None]) -> Tails:
        """For one who follows; `changed` is told of partitions, within the turn of the loop in which they change.
        Raises NotReady.
        """

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether what is appended to the partition waits for nothing but its being durable."""


SAID: Final[Mapping[int, str]] = {ApiKey.JOIN_GROUP: "protocols", ApiKey.SYNC_GROUP: "assignments"}
"""Requests that wait for others of their group, and what each of them says."""


LANE_OFFSETS: Final = 10_000
"""The key of a call to coordinators that no client can make: what the groups of a lane have committed."""
TOPIC_CONSUMERS: Final = 10_001
"""Another one: which groups with members consume a topic, in the base and in lanes."""


def let_go(api_key: int, request: Any) -> None:
    """Empties the array of a JoinGroup or SyncGroup in its place, for all who still hold the request while it waits,
    minutes perhaps.

    A hundred thousand texts of three letters are 300 KB that are counted, and as many objects that are not.
    """
    said: list[Any] = vars(request).get(SAID.get(api_key, ""), [])
    said.clear()
