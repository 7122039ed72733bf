"""The headers of the calls to a partition's owner and of their replies (docs/formats/internal-protocol.md). Pure."""

from collections.abc import Sequence
from typing import Annotated, Final
from uuid import UUID

import msgspec

from bmq.errors import WireError
from bmq.internal.framing.failures import Failure
from bmq.internal.framing.frames import Frame, cut
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Outgoing
from bmq.internal.limits import BATCHES_MAX, PARTITIONS_MAX
from bmq.roles.owner import (
    Appended,
    EpochEnd,
    HandedOver,
    OffsetForTime,
    PartitionStatus,
    Position,
    TailAnswer,
    TailRequest,
    Unread,
)
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicId, TopicPartition

_Partitions = msgspec.Meta(max_length=PARTITIONS_MAX)
_Batches = msgspec.Meta(max_length=BATCHES_MAX)


class AppendCall(msgspec.Struct, frozen=True, array_like=True):
    """The batches are the attachment. `refusal_heard`: the newest refusal of the connection that its sender knows
    (bmq.internal.framing.refusals). Earlier nodes do not say the client's address.
    """

    topic_id: UUID
    partition: int
    produce_version: int
    refusal_heard: int
    address: str = ""


class AppendReply(msgspec.Struct, frozen=True, array_like=True):
    """An Appended as it travels."""

    base_offset: int
    log_append_time_ms: int
    log_start: int


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A TailRequest as it travels."""

    topic_id: UUID
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int


class TailCall(msgspec.Struct, frozen=True, array_like=True):
    """Asks an owner for what it has of tails (Owner.read_tail). `sizes_only`: instead of batches, answers say how many
    bytes they would be. Earlier nodes do not say the client's address.
    """

    requests: Annotated[list[Wanted], _Partitions]
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    sizes_only: bool = False
    address: str = ""


class Found(msgspec.Struct, frozen=True, array_like=True):
    """A TailAnswer as it travels. The batches are attachments of these sizes; its partition is its request's."""

    failure: Failure | None
    leader_epoch: int
    manifest_version: int
    log_start: int
    tail_start: int
    high_watermark: int
    last_stable_offset: int
    batch_bytes: Annotated[list[int], _Batches]
    unsent_bytes: int = 0


class TimeCall(msgspec.Struct, frozen=True, array_like=True):
    """Asks a partition's owner for the first record at or after a timestamp, or for what a negative one stands for in
    Owner.offset_for_time. Earlier nodes do not say the client's address.
    """

    topic_id: UUID
    partition: int
    timestamp_ms: int
    current_leader_epoch: int
    committed: bool
    address: str = ""


class EpochCall(msgspec.Struct, frozen=True, array_like=True):
    """Asks a partition's owner for the largest epoch at or below `leader_epoch`, and for the offset where it ends."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    current_leader_epoch: int


class DeleteCall(msgspec.Struct, frozen=True, array_like=True):
    """Asks a partition's owner to raise the log start to `before` (-1: the high watermark)."""

    topic_id: UUID
    partition: int
    before: int


class HandedOverCall(msgspec.Struct, frozen=True, array_like=True):
    """Asks the owner of a partition of the base how far a lane's turn got there."""

    topic_id: UUID
    partition: int
    producer_id: int


class UnreadCall(msgspec.Struct, frozen=True, array_like=True):
    """One position of Owner.unread."""

    topic_id: UUID
    partition: int
    offset: int


class UnreadReply(msgspec.Struct, frozen=True, array_like=True):
    """An Unread as it travels."""

    records: int
    seconds: float


class GroupCall(msgspec.Struct, frozen=True, array_like=True):
    """A request to the coordinator that lives in this partition of `__consumer_offsets`, and who asks. `request` is a
    packed wire Message, as is the whole header of the reply.
    """

    partition: int
    api_key: int
    client_id: str
    client_host: str
    api_version: int
    request: msgspec.Raw


APPEND_CALL: Final = Packed[AppendCall](AppendCall)
APPEND_REPLY: Final = Packed[AppendReply](AppendReply)
TAIL_CALL: Final = Packed[TailCall](TailCall)
TAIL_REPLY: Final = Packed[list[Found]](Annotated[list[Found], _Partitions])
TIME_CALL: Final = Packed[TimeCall](TimeCall)
TIME_REPLY: Final = Packed[OffsetForTime](OffsetForTime)
EPOCH_CALL: Final = Packed[EpochCall](EpochCall)
EPOCH_REPLY: Final = Packed[EpochEnd](EpochEnd)
DELETE_CALL: Final = Packed[DeleteCall](DeleteCall)
HANDED_OVER_CALL: Final = Packed[HandedOverCall](HandedOverCall)
HANDED_OVER_REPLY: Final = Packed[HandedOver](HandedOver)
OFFSET_REPLY: Final = Packed[int](int)
STATUS_CALL: Final = Packed[list[TopicPartition]](Annotated[list[TopicPartition], _Partitions])
STATUS_REPLY: Final = Packed[list[PartitionStatus]](Annotated[list[PartitionStatus], _Partitions])
UNREAD_CALL: Final = Packed[list[UnreadCall]](Annotated[list[UnreadCall], _Partitions])
UNREAD_REPLY: Final = Packed[list[UnreadReply | None]](Annotated[list[UnreadReply | None], _Partitions])
GROUP_CALL: Final = Packed[GroupCall](GroupCall)
NOTHING: Final = Packed[None](None)


def encode_appended(done: Appended) -> Outgoing:
    """The reply to APPEND."""
    return Outgoing(APPEND_REPLY.encode(AppendReply(done.base_offset, done.log_append_time_ms, done.log_start)))


def decode_appended(frame: Frame) -> Appended:
    """Raises WireError."""
    reply = APPEND_REPLY.decode(frame.header)
    return Appended(
        base_offset=Offset(reply.base_offset),
        log_append_time_ms=reply.log_append_time_ms,
        log_start=Offset(reply.log_start),
    )


def encode_positions(positions: Sequence[Position]) -> bytes:
    """The header of UNREAD."""
    return UNREAD_CALL.encode([UnreadCall(one.tp.topic_id, one.tp.partition, one.offset) for one in positions])


def positions_of(calls: list[UnreadCall]) -> list[Position]:
    """What the calls were made from."""
    return [
        Position(tp=TopicPartition(TopicId(one.topic_id), one.partition), offset=Offset(one.offset)) for one in calls
    ]


def encode_unread(found: list[Unread | None]) -> Outgoing:
    """The reply to UNREAD."""
    return Outgoing(
        UNREAD_REPLY.encode([None if one is None else UnreadReply(one.records, one.seconds) for one in found])
    )


def decode_unread(frame: Frame, count: int) -> list[Unread | None]:
    """One answer per position. Raises WireError."""
    found = UNREAD_REPLY.decode(frame.header)
    if len(found) != count:
        raise WireError(f"{len(found)} answers to {count} positions")
    return [None if one is None else Unread(records=one.records, seconds=one.seconds) for one in found]


def wanted(request: TailRequest) -> Wanted:
    """A request as it travels."""
    return Wanted(
        request.tp.topic_id, request.tp.partition, request.offset, request.max_bytes, request.current_leader_epoch
    )


def tail_request(asked: Wanted) -> TailRequest:
    """What the call was made from."""
    return TailRequest(
        tp=TopicPartition(TopicId(asked.topic_id), asked.partition),
        offset=Offset(asked.offset),
        max_bytes=asked.max_bytes,
        current_leader_epoch=asked.current_leader_epoch,
    )


def found_of(answer: TailAnswer) -> Found:
    """An answer as it travels, without its batches."""
    return Found(
        None if answer.error is None else Failure.of(answer.error),
        answer.leader_epoch,
        answer.manifest_version,
        answer.log_start,
        answer.tail_start,
        answer.high_watermark,
        answer.last_stable_offset,
        [memoryview(batch).nbytes for batch in answer.batches],
        answer.unsent_bytes,
    )


def tail_answer(tp: TopicPartition, found: Found, batches: list[memoryview]) -> TailAnswer:
    """The same again."""
    return TailAnswer(
        tp=tp,
        error=None if found.failure is None else found.failure.error(),
        leader_epoch=LeaderEpoch(found.leader_epoch),
        manifest_version=ManifestVersion(found.manifest_version),
        log_start=Offset(found.log_start),
        tail_start=Offset(found.tail_start),
        high_watermark=Offset(found.high_watermark),
        last_stable_offset=Offset(found.last_stable_offset),
        batches=tuple(batches),
        size_bytes=sum(found.batch_bytes),
        unsent_bytes=found.unsent_bytes,
    )


def encode_tails(answers: list[TailAnswer]) -> Outgoing:
    """The reply to READ_TAIL; batches are not copied."""
    return Outgoing(
        TAIL_REPLY.encode([found_of(answer) for answer in answers]),
        [batch for answer in answers for batch in answer.batches],
    )


def decode_tails(frame: Frame, requests: list[TailRequest]) -> list[TailAnswer]:
    """One answer per request; batches are views of the frame. Raises WireError."""
    found = TAIL_REPLY.decode(frame.header)
    if len(found) != len(requests):
        raise WireError(f"{len(found)} answers to {len(requests)} requests")
    batches = cut(frame.attachments, [size_bytes for one in found for size_bytes in one.batch_bytes])
    answers = []
    position = 0
    for request, one in zip(requests, found, strict=True):
        count = len(one.batch_bytes)
        answers.append(tail_answer(request.tp, one, batches[position : position + count]))
        position += count
    return answers
