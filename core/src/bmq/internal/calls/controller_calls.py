"""The headers of the calls to the leading controller and of their replies (docs/formats/internal-protocol.md). Pure.

What `bmq.roles.controller` names travels as maps by field name, so that a node of another version passes over what it
does not know.
"""

from typing import Annotated, Final
from uuid import UUID

import msgspec

from bmq.errors import BmqError, WireError
from bmq.internal.framing.failures import Failure
from bmq.internal.framing.frames import Frame, cut
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Outgoing
from bmq.internal.limits import PARTITIONS_MAX
from bmq.roles.controller import (
    ConfigChange,
    ConfigResource,
    Heartbeat,
    HeartbeatReply,
    NewTopic,
    Reassignment,
    Registration,
    TopicResult,
)
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.values import TopicId

ENTRIES_BYTES_MAX: Final = 8 << 20
"""The most bytes of entries in one answer to a metadata poll; the first entry comes whole."""


_Topics = msgspec.Meta(max_length=PARTITIONS_MAX)


class CreateTopics(msgspec.Struct, frozen=True, array_like=True):
    """Topics that are to be created, or with `validate_only` only checked."""

    topics: list[NewTopic]
    validate_only: bool


class CreatePartitions(msgspec.Struct, frozen=True, array_like=True):
    """A topic that is to grow to `total` partitions, or with `validate_only` only to be checked."""

    topic: str
    total: int
    manual_assignment: bool
    """Whether there are `assignments`."""
    validate_only: bool
    assignments: list[list[int]] | None = None


class AlterConfigs(msgspec.Struct, frozen=True, array_like=True):
    """Changes of some keys of one resource's configuration, to be made, or with `validate_only` only checked."""

    resource: ConfigResource
    changes: list[ConfigChange]
    validate_only: bool


class ReplaceConfigs(msgspec.Struct, frozen=True, array_like=True):
    """All that one resource's configuration is to say, or with `validate_only` only a check of it: everything not named
    goes back to its default.
    """

    resource: ConfigResource
    configs: dict[str, str | None]
    validate_only: bool


class ReportStopped(msgspec.Struct, frozen=True, array_like=True):
    """A clean stop: the node sealed its own stream at `end` and is gone."""

    node_id: int
    broker_epoch: int
    end: int


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A partition that is to be moved, and the node that it is to be moved to."""

    topic_id: UUID
    partition: int
    to_node_id: int


class Cordon(msgspec.Struct, frozen=True, array_like=True):
    """Whether a node is to get no new partitions."""

    node_id: int
    cordoned: bool


class Poll(msgspec.Struct, frozen=True, array_like=True):
    """Asks for the metadata log's entries above `after_position`, and waits for one, not longer than `wait_ms`."""

    after_position: int
    wait_ms: int


class TopicOutcome(msgspec.Struct, frozen=True, array_like=True):
    """A TopicResult as it travels."""

    name: str
    topic_id: UUID | None
    failure: Failure | None
    partitions: int
    replication_factor: int
    configs: dict[str, str]


CREATE_TOPICS: Final = Packed[CreateTopics](CreateTopics)
DELETE_TOPICS: Final = Packed[list[UUID]](list[UUID])
CREATE_PARTITIONS: Final = Packed[CreatePartitions](CreatePartitions)
ALTER_CONFIGS: Final = Packed[AlterConfigs](AlterConfigs)
REPLACE_CONFIGS: Final = Packed[ReplaceConfigs](ReplaceConfigs)
NUMBER: Final = Packed[int](int)
NUMBERS: Final = Packed[tuple[int, int]](tuple[int, int])
REGISTER: Final = Packed[Registration](Registration)
REPORT_STOPPED: Final = Packed[ReportStopped](ReportStopped)
HEARTBEAT: Final = Packed[Heartbeat](Heartbeat)
HEARTBEAT_REPLY: Final = Packed[HeartbeatReply](HeartbeatReply)
MOVE: Final = Packed[Move](Move)
CORDON: Final = Packed[Cordon](Cordon)
POLL: Final = Packed[Poll](Poll)
REASSIGN: Final = Packed[list[Reassignment]](list[Reassignment])
TOPICS: Final = Packed[list[UUID]](Annotated[list[UUID], _Topics])
"""What CONSUMED and UNCONSUMED are about."""
LEASE: Final = Packed[LaneLease](LaneLease)
UNCONSUMED_REPLY: Final = Packed[list[Unconsumed | None]](Annotated[list[Unconsumed | None], _Topics])
TURNED: Final = Packed[list[NextTurn]](Annotated[list[NextTurn], _Topics])
NOTHING: Final = Packed[None](None)
_OUTCOMES: Final = Packed[list[TopicOutcome]](list[TopicOutcome])
_SIZES: Final = Packed[list[int]](list[int])
_FAILURES: Final = Packed[list[Failure | None]](list[Failure | None])


def encode_results(results: list[TopicResult]) -> Outgoing:
    """The reply of the calls about topics."""
    return Outgoing(_OUTCOMES.encode([_outcome(result) for result in results]))


def decode_results(frame: Frame) -> list[TopicResult]:
    """The same again. Raises WireError."""
    return [_result(outcome) for outcome in _OUTCOMES.decode(frame.header)]


def encode_result(result: TopicResult) -> Outgoing:
    """A frame of one result, as `encode_results` has them."""
    return encode_results([result])


def decode_result(frame: Frame) -> TopicResult:
    """One of them. Raises WireError."""
    results = decode_results(frame)
    if len(results) != 1:
        raise WireError(f"{len(results)} results instead of one")
    return results[0]


def encode_refusals(refusals: list[BmqError | None]) -> Outgoing:
    """The reply of REASSIGN and TURNED."""
    return Outgoing(_FAILURES.encode([None if error is None else Failure.of(error) for error in refusals]))


def decode_refusals(frame: Frame) -> list[BmqError | None]:
    """The same again. Raises WireError."""
    return [None if failure is None else failure.error() for failure in _FAILURES.decode(frame.header)]


def encode_entries(entries: list[bytes]) -> Outgoing:
    """As many of the log's entries as fit, from the first on."""
    kept: list[bytes] = []
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry)
        if kept and size_bytes > ENTRIES_BYTES_MAX:
            break
        kept.append(entry)
    return Outgoing(_SIZES.encode([len(entry) for entry in kept]), kept)


def decode_entries(frame: Frame) -> list[bytes]:
    """The same again. Raises WireError."""
    return [bytes(entry) for entry in cut(frame.attachments, _SIZES.decode(frame.header))]


def _outcome(result: TopicResult) -> TopicOutcome:
    failure = None if result.error is None else Failure.of(result.error)
    return TopicOutcome(
        result.name, result.topic_id, failure, result.partitions, result.replication_factor, dict(result.configs)
    )


def _result(outcome: TopicOutcome) -> TopicResult:
    return TopicResult(
        name=outcome.name,
        topic_id=None if outcome.topic_id is None else TopicId(outcome.topic_id),
        error=None if outcome.failure is None else outcome.failure.error(),
        partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
        configs=outcome.configs,
    )
