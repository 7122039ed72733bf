"""API key 1, Fetch, by hand, versions 4 to 18: requests without a Message per partition, responses vectored without a
copy of the records.

Names up to version 12, topic ids from 13. What only replicas send (replica id, high watermark) is read so that it can
be refused.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.cursor import Cursor
from bmq.wire.limits import FETCH_PARTITIONS_MAX
from bmq.wire.primitives import write_count, write_string, write_uuid
from bmq.wire.produce import NodeEndpoint, write_node_endpoints

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
SESSIONS_FROM: Final = 7

_REPLICA_WAIT_MIN: Final = struct.Struct(">iii")
_WAIT_MIN: Final = struct.Struct(">ii")
_MAX_ISOLATION: Final = struct.Struct(">ib")
_QUESTION_4: Final = struct.Struct(">iqi")
_QUESTION_5: Final = struct.Struct(">iqqi")
_QUESTION_9: Final = struct.Struct(">iiqqi")
_QUESTION_12: Final = struct.Struct(">iiqiqi")
_ANSWER_4: Final = struct.Struct(">ihqq")
_ANSWER_5: Final = struct.Struct(">ihqqq")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_INT32: Final = struct.Struct(">i")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iqB")
_LEADER: Final = struct.Struct(">iiB")
_COPIED_BYTES_MAX: Final = 2 << 10
"""Batches up to this size are copied between headers: thousands of tiny buffers cost more than the copy."""


class FetchPartition(NamedTuple):
    """What is asked of one partition. Epochs -1: not given."""

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1 << 20


class FetchTopic(NamedTuple):
    """One topic: `name` up to version 12, `topic_id` from 13."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions to be dropped from the fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A consumer has replica id -1. Session id 0 and epoch -1: no session wanted."""

    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    cluster_id: str | None = None


class FetchedPartition(NamedTuple):
    """The answer for one partition. `records` are whole batches in order; `aborted` are (producer id, first offset),
    None: not asked for.

    `diverging_epoch` is (epoch, end offset), `current_leader` (node id, epoch): both only from version 12 on.
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Buffer] = ()
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None


class FetchedTopic(NamedTuple):
    """The answers for one topic, named as the request's version names it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[FetchedPartition]


def parse_fetch(version: int, body: Buffer, *, partitions_max: int = FETCH_PARTITIONS_MAX) -> FetchRequest:
    """The request. Raises WireError for anything malformed or with more than `partitions_max` partitions, forgotten
    ones included.
    """
    cursor = Cursor(body, flexible=version >= FLEXIBLE_FROM)
    replica_id, replica_epoch = -1, -1
    if version < REPLICA_STATE_FROM:
        replica_id, max_wait_ms, min_bytes = cursor.unpack(_REPLICA_WAIT_MIN)
    else:
        max_wait_ms, min_bytes = cursor.unpack(_WAIT_MIN)
    max_bytes, isolation_level = cursor.unpack(_MAX_ISOLATION)
    session_id, session_epoch = cursor.unpack(_SESSION) if version >= SESSIONS_FROM else (0, -1)
    topics, left = _parse_topics(version, cursor, partitions_max)
    forgotten = _parse_forgotten(version, cursor, left, partitions_max) if version >= SESSIONS_FROM else []
    rack_id = cursor.string() if version >= 11 else ""
    cluster_id = None
    for tag, value in cursor.tags():
        if tag == 0:
            cluster_id = value.nullable_string()
        elif tag == 1 and version >= REPLICA_STATE_FROM:
            replica_id, replica_epoch = value.unpack(_REPLICA_STATE)
    return FetchRequest(
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten=forgotten,
        rack_id=rack_id,
        cluster_id=cluster_id,
    )


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The body as buffers to be written one after the other; batches above 2 KiB are the caller's own buffers, not
    copies.
    """
    flexible = version >= FLEXIBLE_FROM
    parts: list[Buffer] = []
    out = bytearray()
    out += (
        _THROTTLE_ERROR_SESSION.pack(throttle_ms, error_code, session_id)
        if version >= SESSIONS_FROM
        else _INT32.pack(throttle_ms)
    )
    write_count(out, len(topics), flexible=flexible)
    fixed = _ANSWER_5 if version >= 5 else _ANSWER_4
    for topic in topics:
        _write_topic(out, version, topic.name, topic.topic_id)
        write_count(out, len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            _write_fixed(out, version, fixed, partition, flexible)
            write_count(out, sum([memoryview(batch).nbytes for batch in partition.records]), flexible=flexible)
            for batch in partition.records:
                if memoryview(batch).nbytes <= _COPIED_BYTES_MAX:
                    out += batch
                else:
                    parts += (out, batch)
                    out = bytearray()
            if flexible:
                _write_partition_tags(out, partition)
        if flexible:
            out.append(0)
    if flexible:
        write_node_endpoints(out, node_endpoints if version >= 16 else ())
    if out:
        parts.append(out)
    return parts


def _write_fixed(
    out: bytearray, version: int, fixed: struct.Struct, partition: FetchedPartition, flexible: bool
) -> None:
    """Everything before the records."""
    if version >= 5:
        out += fixed.pack(
            partition.partition,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    else:
        out += fixed.pack(
            partition.partition, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
    aborted = partition.aborted
    write_count(out, None if aborted is None else len(aborted), flexible=flexible)
    for one in aborted or ():
        out += _ABORTED.pack(*one)
        if flexible:
            out.append(0)
    if version >= 11:
        out += _INT32.pack(partition.preferred_read_replica)


def _write_partition_tags(out: bytearray, partition: FetchedPartition) -> None:
    diverging, leader = partition.diverging_epoch, partition.current_leader
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        # Tag 0, 13 bytes.
        out += b"\x00\x0d"
        out += _EPOCH_END.pack(*diverging, 0)
    if leader is not None:
        # Tag 1, 9 bytes.
        out += b"\x01\x09"
        out += _LEADER.pack(*leader, 0)


def _write_topic(out: bytearray, version: int, name: str | None, topic_id: UUID | None) -> None:
    if version >= TOPIC_IDS_FROM:
        write_uuid(out, topic_id)
    else:
        assert name is not None, f"Fetch version {version} names topics"
        write_string(out, name, flexible=version >= FLEXIBLE_FROM)


def _question(version: int) -> struct.Struct:
    """One partition of a request: partition, leader epoch (9), offset, last fetched epoch (12), log start (5), max
    bytes.
    """
    if version >= 12:
        return _QUESTION_12
    if version >= 9:
        return _QUESTION_9
    return _QUESTION_5 if version >= 5 else _QUESTION_4


def _asked(version: int, values: tuple[int, ...]) -> FetchPartition:
    if version >= 12:
        return FetchPartition._make(values)
    if version >= 9:
        partition, leader_epoch, offset, log_start, max_bytes = values
        return FetchPartition(partition, leader_epoch, offset, -1, log_start, max_bytes)
    if version >= 5:
        partition, offset, log_start, max_bytes = values
        return FetchPartition(partition, -1, offset, -1, log_start, max_bytes)
    partition, offset, max_bytes = values
    return FetchPartition(partition, -1, offset, -1, -1, max_bytes)


def _parse_topics(version: int, cursor: Cursor, partitions_max: int) -> tuple[list[FetchTopic], int]:
    fixed = _question(version)
    left = partitions_max
    topics = []
    for _ in range(cursor.count(element_bytes_min=2)):
        name, topic_id = _parse_name(version, cursor)
        count = cursor.count(element_bytes_min=fixed.size)
        left = _counted(left, count, partitions_max)
        partitions = []
        for _ in range(count):
            partitions.append(_asked(version, cursor.unpack(fixed)))
            cursor.skip_tags()
        cursor.skip_tags()
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, left


def _parse_forgotten(version: int, cursor: Cursor, left: int, partitions_max: int) -> list[ForgottenTopic]:
    forgotten = []
    for _ in range(cursor.count(element_bytes_min=2)):
        name, topic_id = _parse_name(version, cursor)
        count = cursor.count(element_bytes_min=_INT32.size)
        left = _counted(left, count, partitions_max)
        partitions = list(cursor.unpack(struct.Struct(f">{count}i")))
        cursor.skip_tags()
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten


def _counted(left: int, count: int, partitions_max: int) -> int:
    # A topic counts too, so that empty ones cannot be sent without bound.
    left -= max(1, count)
    if left < 0:
        raise WireError(
            f"a Fetch request for more than {partitions_max} partitions: ask for fewer at a time, or raise "
            "fetch_partitions_max"
        )
    return left


def _parse_name(version: int, cursor: Cursor) -> tuple[str | None, UUID | None]:
    if version >= TOPIC_IDS_FROM:
        return None, cursor.uuid()
    return cursor.string(), None
