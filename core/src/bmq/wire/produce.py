"""API key 0, Produce, by hand: the records stay where they arrived. Versions 0 to 13; 0 to 2 only so that they can be
answered.

Names up to version 12, topic ids from 13.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.cursor import Cursor, compact_size
from bmq.wire.limits import PRODUCE_PARTITIONS_MAX
from bmq.wire.primitives import write_count, write_sentence, write_string, write_uuid, write_uvarint

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
TRANSACTIONS_FROM: Final = 3

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INDEX_ERROR_OFFSET: Final = struct.Struct(">ihq")
_INT64: Final = struct.Struct(">q")
_LEADER: Final = struct.Struct(">iiB")

# A request with one batch, and its answer, are read and written in one piece each: nearly all are such.
_NAMED: Final = struct.Struct(">hhiih")
_PARTITION: Final = struct.Struct(">iii")
_COMPACT_NAMED: Final = struct.Struct(">BhiBB")
_COMPACT_PARTITION: Final = struct.Struct(">Bi")
_TOPIC_NAME: Final = struct.Struct(">ih")
_PRODUCED: Final = struct.Struct(">iihqqqihi")
_COMPACT_TOPIC_NAME: Final = struct.Struct(">BB")
_COMPACT_PRODUCED: Final = struct.Struct(">BihqqqBBBBiB")
ONE_BATCH_TAGS_BYTES: Final = 3
"""No tagged fields of the partition, the topic and the request."""
_SHORT_NAME_BYTES_MAX: Final = 126
"""So much a length of one byte tells where lengths are compact."""


class ProduceTopic(NamedTuple):
    """One topic: `name` up to version 12, `topic_id` from 13. Partitions are (index, records); records None or empty:
    an invalid request.
    """

    name: str | None
    topic_id: UUID | None
    partitions: list[tuple[int, memoryview | None]]


class ProduceRequest(NamedTuple):
    """The records are slices of the request's frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducedPartition(NamedTuple):
    """The answer for one partition. `record_errors` are (index in the batch, message); `current_leader` is (node id,
    epoch).
    """

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


class ProducedTopic(NamedTuple):
    """The answers for one topic, named as the request's version names it."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[ProducedPartition]


class NodeEndpoint(NamedTuple):
    """Where the leader of a partition can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class TooManyPartitions(WireError):
    """A Produce request names more partitions than it may, where it is parsed."""


def parse_produce(version: int, body: Buffer, *, partitions_max: int = PRODUCE_PARTITIONS_MAX) -> ProduceRequest:
    """The request. Raises TooManyPartitions, or another WireError for anything malformed."""
    if partitions_max and (one := _with_one_batch(version, memoryview(body))) is not None:
        return one
    return _with_batches(version, body, partitions_max=partitions_max)


def _with_one_batch(version: int, body: memoryview) -> ProduceRequest | None:
    """What `_with_batches` reads, where that is one batch for a topic by its name; None: it may be anything else."""
    size = body.nbytes
    try:
        if TRANSACTIONS_FROM <= version < FLEXIBLE_FROM:
            transaction, acks, timeout_ms, topics, length = _NAMED.unpack_from(body)
            at = _NAMED.size + length
            partitions, index, records_bytes = _PARTITION.unpack_from(body, at)
            begin = at + _PARTITION.size
            if transaction != -1 or topics != 1 or partitions != 1 or begin + records_bytes != size:
                return None
        elif FLEXIBLE_FROM <= version < TOPIC_IDS_FROM:
            transaction, acks, timeout_ms, topics, length = _COMPACT_NAMED.unpack_from(body)
            length -= 1
            at = _COMPACT_NAMED.size + length
            partitions, index = _COMPACT_PARTITION.unpack_from(body, at)
            records_bytes, begin = compact_size(body, at + _COMPACT_PARTITION.size)
            if (
                transaction
                or topics != 2
                or partitions != 2
                or begin + records_bytes + ONE_BATCH_TAGS_BYTES != size
                or any(body[-ONE_BATCH_TAGS_BYTES:])
            ):
                return None
        else:
            return None
        if not 0 < length <= _SHORT_NAME_BYTES_MAX or records_bytes <= 0:
            return None
        name = str(body[at - length : at], "utf-8")
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    records = body[begin : begin + records_bytes]
    return ProduceRequest(None, acks, timeout_ms, [ProduceTopic(name, None, [(index, records)])])


def _with_batches(version: int, body: Buffer, *, partitions_max: int) -> ProduceRequest:
    cursor = Cursor(body, flexible=version >= FLEXIBLE_FROM)
    transactional_id = cursor.nullable_string() if version >= TRANSACTIONS_FROM else None
    acks, timeout_ms = cursor.unpack(_ACKS_TIMEOUT)
    topics = []
    left = partitions_max
    for _ in range(cursor.count(element_bytes_min=2)):
        name, topic_id = None, None
        if version >= TOPIC_IDS_FROM:
            topic_id = cursor.uuid()
        else:
            name = cursor.string()
        count = cursor.count(element_bytes_min=5)
        # A topic counts too, so that empty ones cannot be sent without bound.
        left -= max(1, count)
        if left < 0:
            raise TooManyPartitions(f"a Produce request for more than {partitions_max} partitions")
        partitions = []
        for _ in range(count):
            index = cursor.int32()
            partitions.append((index, cursor.nullable_bytes()))
            cursor.skip_tags()
        cursor.skip_tags()
        topics.append(ProduceTopic(name, topic_id, partitions))
    cursor.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_request(version: int, request: ProduceRequest) -> bytes:
    """For clients: the simulator's, tests', tools'."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    if version >= TRANSACTIONS_FROM:
        write_string(out, request.transactional_id, flexible=flexible)
    out += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    write_count(out, len(request.topics), flexible=flexible)
    for topic in request.topics:
        _write_topic(out, version, topic.name, topic.topic_id)
        write_count(out, len(topic.partitions), flexible=flexible)
        for partition, records in topic.partitions:
            out += _INT32.pack(partition)
            write_count(out, None if records is None else memoryview(records).nbytes, flexible=flexible)
            out += records or b""
            _end(out, flexible)
        _end(out, flexible)
    _end(out, flexible)
    return bytes(out)


def encode_produce_response(
    version: int, topics: Sequence[ProducedTopic], *, throttle_ms: int = 0, node_endpoints: Sequence[NodeEndpoint] = ()
) -> bytes:
    """The body. `node_endpoints` name the nodes of `current_leader`s; both are left out below version 10."""
    if len(topics) == 1 and len(topics[0].partitions) == 1 and not node_endpoints:
        one = _of_one_batch(version, topics[0].name, topics[0].partitions[0], throttle_ms)
        if one is not None:
            return one
    return _of_batches(version, topics, throttle_ms=throttle_ms, node_endpoints=node_endpoints)


def _of_one_batch(version: int, topic: str | None, produced: ProducedPartition, throttle_ms: int) -> bytes | None:
    """What `_of_batches` writes, where that is one batch that was taken; None: it may be anything else."""
    index, error, base_offset, append_time_ms, log_start, errors, message, leader = produced
    if error or errors or message is not None or leader is not None or topic is None:
        return None
    name = topic.encode()
    if version == 8:
        produced_bytes = _PRODUCED.pack(1, index, 0, base_offset, append_time_ms, log_start, 0, -1, throttle_ms)
        return _TOPIC_NAME.pack(1, len(name)) + name + produced_bytes
    if FLEXIBLE_FROM <= version < TOPIC_IDS_FROM and len(name) <= _SHORT_NAME_BYTES_MAX:
        produced_bytes = _COMPACT_PRODUCED.pack(
            2, index, 0, base_offset, append_time_ms, log_start, 1, 0, 0, 0, throttle_ms, 0
        )
        return _COMPACT_TOPIC_NAME.pack(2, len(name) + 1) + name + produced_bytes
    return None


def _of_batches(
    version: int, topics: Sequence[ProducedTopic], *, throttle_ms: int, node_endpoints: Sequence[NodeEndpoint]
) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    write_count(out, len(topics), flexible=flexible)
    for topic in topics:
        _write_topic(out, version, topic.name, topic.topic_id)
        write_count(out, len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            _write_partition(out, version, partition, flexible)
        _end(out, flexible)
    if version >= 1:
        out += _INT32.pack(throttle_ms)
    if flexible:
        write_node_endpoints(out, node_endpoints if version >= 10 else ())
    return bytes(out)


def _write_partition(out: bytearray, version: int, partition: ProducedPartition, flexible: bool) -> None:
    out += _INDEX_ERROR_OFFSET.pack(partition.partition, partition.error_code, partition.base_offset)
    if version >= 2:
        out += _INT64.pack(partition.log_append_time_ms)
    if version >= 5:
        out += _INT64.pack(partition.log_start_offset)
    if version >= 8:
        write_count(out, len(partition.record_errors), flexible=flexible)
        for batch_index, message in partition.record_errors:
            out += _INT32.pack(batch_index)
            write_sentence(out, message, flexible=flexible)
            _end(out, flexible)
        write_sentence(out, partition.error_message, flexible=flexible)
    if partition.current_leader is not None and version >= 10:
        # One tagged field: tag 0, 9 bytes.
        out += b"\x01\x00\x09"
        out += _LEADER.pack(*partition.current_leader, 0)
    else:
        _end(out, flexible)


def write_node_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """The tagged fields that end a Produce or Fetch response: tag 0, the endpoints, where there are any."""
    if not endpoints:
        out.append(0)
        return
    value = bytearray()
    write_count(value, len(endpoints), flexible=True)
    for endpoint in endpoints:
        value += _INT32.pack(endpoint.node_id)
        write_string(value, endpoint.host, flexible=True)
        value += _INT32.pack(endpoint.port)
        write_string(value, endpoint.rack, flexible=True)
        value.append(0)
    out += b"\x01\x00"
    write_uvarint(out, len(value))
    out += value


def _write_topic(out: bytearray, version: int, name: str | None, topic_id: UUID | None) -> None:
    if version >= TOPIC_IDS_FROM:
        write_uuid(out, topic_id)
    else:
        assert name is not None, f"Produce version {version} names topics"
        write_string(out, name, flexible=version >= FLEXIBLE_FROM)


def _end(out: bytearray, flexible: bool) -> None:
    """No tagged fields."""
    if flexible:
        out.append(0)
