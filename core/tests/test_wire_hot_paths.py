"""Produce and Fetch by hand agree with the schemas (and so with kio) in every version, and with kio's own reader."""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from bmq.errors import WireError
from bmq.wire.batches import Record, build_batch
from bmq.wire.cursor import Cursor
from bmq.wire.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_response,
    parse_fetch,
)
from bmq.wire.limits import STRUCT_TAGS_MAX
from bmq.wire.messages import Message, decode_response, encode_request
from bmq.wire.primitives import write_uvarint
from bmq.wire.produce import (
    NodeEndpoint,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    _of_batches,
    _with_batches,
    encode_produce_request,
    encode_produce_response,
    parse_produce,
)

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20) | st.just("n" * 200)
ids = st.uuids().filter(lambda value: value.int != 0)
errors = st.sampled_from([0, 1, 3, 6, -1, 87])
pairs = st.tuples(int32s, int32s)
endpoints = st.lists(st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names), max_size=2)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


def topics_of(version: int, partitions: Any, *, ids_from: int = 13, make: Any = tuple) -> Any:
    named = st.tuples(st.just(None), ids) if version >= ids_from else st.tuples(names, st.just(None))
    return st.lists(
        st.builds(lambda name, several: make((*name, several)), named, st.lists(partitions, max_size=4)), max_size=4
    )


@given(st.sampled_from(PRODUCE_VERSIONS), st.data())
@settings(max_examples=200, deadline=None)
def test_produce_requests_agree_with_the_schema(version: int, data: st.DataObject) -> None:
    partitions = st.tuples(int32s, st.none() | st.binary(max_size=200).map(memoryview))
    topics = data.draw(topics_of(version, partitions, make=ProduceTopic._make))
    request = ProduceRequest(data.draw(st.none() | names), data.draw(int16s), data.draw(int32s), topics)
    body = encode_request(
        0,
        version,
        {
            "transactional_id": request.transactional_id,
            "acks": request.acks,
            "timeout_ms": request.timeout_ms,
            "topic_data": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partition_data": [{"index": index, "records": records} for index, records in topic.partitions],
                }
                for topic in topics
            ],
        },
    )
    entity_reader(load_request_schema(0, version))(body, 0)
    assert parse_produce(version, body) == request
    assert parse_produce(version, memoryview(body)) == request
    assert encode_produce_request(version, request) == body


def test_produce_records_are_slices_of_the_frame() -> None:
    body = bytearray(
        encode_request(
            0,
            9,
            {
                "acks": -1,
                "timeout_ms": 5,
                "topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": b"abc" * 100}]}],
            },
        )
    )
    ((index, records),) = parse_produce(9, body).topics[0].partitions
    assert records is not None
    assert (index, records.obj is body, bytes(records)) == (1, True, b"abc" * 100)


@given(st.sampled_from(PRODUCE_VERSIONS), st.data())
@settings(max_examples=200, deadline=None)
def test_produce_responses_agree_with_the_schema(version: int, data: st.DataObject) -> None:
    partitions = st.builds(
        ProducedPartition,
        int32s,
        errors,
        int64s,
        st.integers(-1, 2**40),
        int64s,
        st.lists(st.tuples(int32s, st.none() | names), max_size=2),
        st.none() | names,
        st.none() | pairs,
    )
    topics = data.draw(topics_of(version, partitions, make=ProducedTopic._make))
    throttle_ms = data.draw(st.integers(0, 2**31 - 1))
    nodes = data.draw(endpoints)
    body = encode_produce_response(version, topics, throttle_ms=throttle_ms, node_endpoints=nodes)
    _, size = entity_reader(load_response_schema(0, version))(body, 0)
    assert size == len(body)
    message = decode_response(0, version, body)
    assert message.throttle_time_ms == throttle_ms
    assert node_endpoints(message) == (nodes if version >= 10 else [])
    for topic, read in zip(topics, message.responses, strict=True):
        assert (read.name, read.topic_id) == (topic.name, topic.topic_id)
        for partition, one in zip(topic.partitions, read.partition_responses, strict=True):
            assert (one.index, one.error_code, one.base_offset) == partition[:3]
            assert one.log_append_time_ms == partition.log_append_time_ms
            assert one.log_start_offset == (partition.log_start_offset if version >= 5 else -1)
            errors_read = [(error.batch_index, error.batch_index_error_message) for error in one.record_errors]
            assert (errors_read, one.error_message) == (
                (partition.record_errors, partition.error_message) if version >= 8 else ([], None)
            )
            assert leader(one) == (partition.current_leader if version >= 10 else None)


lone_requests = st.builds(
    ProduceRequest,
    st.none() | names,
    int16s,
    int32s,
    st.builds(
        lambda name, index, records: [ProduceTopic(name, None, [(index, memoryview(records))])],
        st.text(min_size=1, max_size=20) | st.sampled_from(["n" * 126, "n" * 127, "é" * 63]),
        int32s,
        st.binary(max_size=300) | st.sampled_from([bytes(20_000), bytes(3_000_000)]),
    ),
)


@given(st.integers(3, 12), lone_requests, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2))
@settings(max_examples=400, deadline=None)
def test_a_request_with_one_batch_is_read_as_any_other_whatever_is_wrong_with_it(
    version: int, request: ProduceRequest, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encode_produce_request(version, request))
    for at, byte in changes:
        body[at % len(body)] = byte

    def read(by: Callable[..., ProduceRequest]) -> ProduceRequest | None:
        try:
            return by(version, body, partitions_max=10)
        except WireError:
            return None

    assert read(parse_produce) == read(_with_batches)
    if not changes and request.transactional_id is None:
        assert parse_produce(version, body) == request


@given(
    st.integers(3, 13),
    names,
    st.tuples(int32s, st.just(0), int64s, st.integers(-1, 2**40), int64s).map(lambda five: ProducedPartition(*five)),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=200, deadline=None)
def test_the_answer_to_one_batch_is_written_as_any_other(
    version: int, name: str, produced: ProducedPartition, throttle_ms: int
) -> None:
    topic = ProducedTopic(name, None, [produced]) if version < 13 else ProducedTopic(None, UUID(int=7), [produced])
    written = encode_produce_response(version, [topic], throttle_ms=throttle_ms)
    assert written == _of_batches(version, [topic], throttle_ms=throttle_ms, node_endpoints=())


def leader(partition: Message) -> tuple[int, int] | None:
    found = partition.current_leader
    return None if found is None else (found.leader_id, found.leader_epoch)


def node_endpoints(message: Message) -> list[NodeEndpoint]:
    return [NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in message.node_endpoints]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_requests_can_be_read_and_answered(version: int) -> None:
    body = struct.pack(">hiih1siii3s", 1, 500, 1, 1, b"t", 1, 7, 3, b"abc")
    assert parse_produce(version, body) == ProduceRequest(
        None, 1, 500, [ProduceTopic("t", None, [(7, memoryview(b"abc"))])]
    )
    answer = encode_produce_response(version, [ProducedTopic("t", None, [ProducedPartition(7, 35)])])
    expected = struct.pack(">ih1siihq", 1, 1, b"t", 1, 7, 35, -1)
    expected += struct.pack(">q", -1) if version == 2 else b""
    assert answer == expected + (struct.pack(">i", 0) if version >= 1 else b"")


@given(st.sampled_from(FETCH_VERSIONS), st.data())
@settings(max_examples=200, deadline=None)
def test_fetch_requests_agree_with_the_schema(version: int, data: st.DataObject) -> None:
    partitions = st.builds(
        FetchPartition,
        int32s,
        int32s if version >= 9 else st.just(-1),
        int64s,
        int32s if version >= 12 else st.just(-1),
        int64s if version >= 5 else st.just(-1),
        int32s,
    )
    request = data.draw(
        st.builds(
            FetchRequest,
            replica_id=int32s,
            replica_epoch=int64s if version >= 15 else st.just(-1),
            max_wait_ms=int32s,
            min_bytes=int32s,
            max_bytes=int32s,
            isolation_level=st.integers(0, 1),
            session_id=int32s if version >= 7 else st.just(0),
            session_epoch=int32s if version >= 7 else st.just(-1),
            topics=topics_of(version, partitions, make=FetchTopic._make),
            forgotten=topics_of(version, int32s, make=ForgottenTopic._make) if version >= 7 else st.just([]),
            rack_id=names if version >= 11 else st.just(""),
            cluster_id=st.none() | names if version >= 12 else st.just(None),
        )
    )
    fields = {
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "forgotten_topics_data": [
            {"topic": topic.name, "topic_id": topic.topic_id, "partitions": topic.partitions}
            for topic in request.forgotten
        ],
        "topics": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition": one.partition,
                        "current_leader_epoch": one.current_leader_epoch,
                        "fetch_offset": one.fetch_offset,
                        "last_fetched_epoch": one.last_fetched_epoch,
                        "log_start_offset": one.log_start_offset,
                        "partition_max_bytes": one.max_bytes,
                        "replica_directory_id": UUID(int=9),
                        "high_watermark": 5,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
    same = (
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "rack_id",
        "cluster_id",
    )
    fields |= {name: getattr(request, name) for name in same}
    body = encode_request(1, version, fields)
    if version < 12:
        entity_reader(load_request_schema(1, version))(body, 0)
    assert parse_fetch(version, body) == request


@given(st.sampled_from(FETCH_VERSIONS), st.data())
@settings(max_examples=200, deadline=None)
def test_fetch_responses_agree_with_the_schema(version: int, data: st.DataObject) -> None:
    batches = st.lists(st.binary(max_size=50) | st.just(bytes(3000)), max_size=3)
    partitions = st.builds(
        FetchedPartition,
        int32s,
        errors,
        int64s,
        int64s,
        int64s,
        st.none() | st.lists(st.tuples(int64s, int64s), max_size=3),
        int32s,
        batches,
        st.none() | st.tuples(int32s, int64s),
        st.none() | pairs,
    )
    topics = data.draw(topics_of(version, partitions, make=FetchedTopic._make))
    error_code, session_id, throttle_ms = data.draw(errors), data.draw(int32s), data.draw(st.integers(0, 2**31 - 1))
    nodes = data.draw(endpoints)
    parts = encode_fetch_response(
        version, topics, throttle_ms=throttle_ms, error_code=error_code, session_id=session_id, node_endpoints=nodes
    )
    body = b"".join(parts)
    _, size = entity_reader(load_response_schema(1, version))(body, 0)
    assert size == len(body)
    message = decode_response(1, version, body)
    assert message.throttle_time_ms == throttle_ms
    assert (message.error_code, message.session_id) == ((error_code, session_id) if version >= 7 else (0, 0))
    assert node_endpoints(message) == (nodes if version >= 16 else [])
    for topic, read in zip(topics, message.responses, strict=True):
        assert (read.topic, read.topic_id) == (topic.name, topic.topic_id)
        for partition, one in zip(topic.partitions, read.partitions, strict=True):
            assert (one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset) == partition[:4]
            assert one.log_start_offset == (partition.log_start_offset if version >= 5 else -1)
            aborted = (
                None
                if one.aborted_transactions is None
                else [(a.producer_id, a.first_offset) for a in one.aborted_transactions]
            )
            assert aborted == partition.aborted
            assert one.preferred_read_replica == (partition.preferred_read_replica if version >= 11 else -1)
            assert one.records == b"".join(partition.records)
            assert leader(one) == (partition.current_leader if version >= 12 else None)
            diverging = (
                None if one.diverging_epoch is None else (one.diverging_epoch.epoch, one.diverging_epoch.end_offset)
            )
            assert diverging == (partition.diverging_epoch if version >= 12 else None)


def test_fetched_batches_are_not_copied() -> None:
    batch = memoryview(build_batch([Record(0, 1, None, bytes(5000))]))
    parts = encode_fetch_response(
        11, [FetchedTopic("t", None, [FetchedPartition(0, records=[batch, batch]), FetchedPartition(1)])]
    )
    assert [part for part in parts if part is batch] == [batch, batch]


@given(st.sampled_from(range(14)), st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_a_produce_request_or_a_wire_error(version: int, body: bytes) -> None:
    try:
        parse_produce(version, body)
    except WireError:
        return


@given(st.sampled_from(FETCH_VERSIONS), st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_a_fetch_request_or_a_wire_error(version: int, body: bytes) -> None:
    try:
        parse_fetch(version, body)
    except WireError:
        return


@given(st.booleans(), st.sampled_from(range(4, 14)), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_hot_requests_are_read_or_a_wire_error(is_produce: bool, version: int, data: st.DataObject) -> None:
    topic = {"name": "topic"} if is_produce else {"topic": "topic"}
    if version >= 13:
        topic = {"topic_id": UUID(int=5)}
    if is_produce:
        fields: dict[str, Any] = {
            "topic_data": [{**topic, "partition_data": [{"index": n, "records": b"xyz"} for n in range(3)]}] * 2
        }
    else:
        fields = {
            "topics": [{**topic, "partitions": [{"partition": n} for n in range(3)]}] * 2,
            "forgotten_topics_data": [{**topic}],
        }
    body = bytearray(encode_request(0 if is_produce else 1, version, fields))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del body[data.draw(st.integers(0, len(body))) :]
    try:
        (parse_produce if is_produce else parse_fetch)(version, body)
    except WireError:
        return


def test_more_partitions_than_allowed_are_refused() -> None:
    partitions = [{"index": 0, "records": None}] * 20_001
    with pytest.raises(WireError, match="20000"):
        parse_produce(9, encode_request(0, 9, {"topic_data": [{"name": "t", "partition_data": partitions}]}))
    with pytest.raises(WireError, match="20000"):
        parse_produce(9, encode_request(0, 9, {"topic_data": [{"name": "", "partition_data": []}] * 20_001}))
    with pytest.raises(WireError, match="100000"):
        parse_fetch(11, encode_request(1, 11, {"forgotten_topics_data": [{"topic": "t", "partitions": [0] * 100_001}]}))


def test_a_text_that_no_answer_could_repeat_is_refused() -> None:
    body = encode_request(0, 9, {"topic_data": [{"name": "t" * 32_767, "partition_data": []}]})
    assert parse_produce(9, body).topics[0].name == "t" * 32_767
    longer = body.replace(b"\x80\x80\x02", b"\x81\x80\x02").replace(b"t" * 32_767, b"t" * 32_768)
    with pytest.raises(WireError, match="a text has 32768 bytes"):
        parse_produce(9, longer)


PARSED: Final = ((parse_produce, encode_request(0, 9, {})), (parse_fetch, encode_request(1, 12, {})))


def tagged(tags: Sequence[int]) -> bytes:
    """Empty tagged fields."""
    out = bytearray()
    write_uvarint(out, len(tags))
    for tag in tags:
        write_uvarint(out, tag)
        out.append(0)
    return bytes(out)


@pytest.mark.parametrize(("parse", "body"), PARSED)
def test_more_tagged_fields_than_allowed_are_refused_before_one_is_read(
    parse: Callable[[int, bytes], object], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    uvarint = Cursor.uvarint

    def counted(cursor: Cursor) -> int:
        read.append(1)
        return uvarint(cursor)

    monkeypatch.setattr(Cursor, "uvarint", counted)
    parse(12, body[:-1] + tagged(range(3, 3 + STRUCT_TAGS_MAX)))
    taken = len(read)
    assert taken >= 2 * STRUCT_TAGS_MAX
    for tags in (range(3, 4 + STRUCT_TAGS_MAX), range(10_000), [0] * 9_999):
        read.clear()
        with pytest.raises(WireError, match="tagged fields end one struct; at most 64"):
            parse(12, body[:-1] + tagged(tags))
        assert len(read) <= taken - 2 * STRUCT_TAGS_MAX


@pytest.mark.parametrize(("parse", "body"), PARSED)
@pytest.mark.parametrize("tags", [(5, 5), (6, 5), (5, 7, 6), (300, 7)])
def test_tagged_fields_ascend(parse: Callable[[int, bytes], object], body: bytes, tags: Sequence[int]) -> None:
    with pytest.raises(WireError, match=f"tagged field {tags[-1]} follows {tags[-2]}"):
        parse(12, body[:-1] + tagged(tags))


@pytest.mark.parametrize(("each", "partitions"), [(1, 2_000), (STRUCT_TAGS_MAX, 4), (3, 128)])
def test_tagged_fields_of_all_partitions_count_together_beside_one_in_each(each: int, partitions: int) -> None:
    def body(count: int) -> bytes:
        one = b"\0\0\0\0\0" + tagged(range(each))
        written = bytearray()
        write_uvarint(written, count + 1)
        return b"\0\xff\xff\0\0\0\1\x02\x02t" + bytes(written) + one * count + b"\0\0"

    parse_produce(9, body(partitions))
    if each > 1:
        with pytest.raises(WireError, match="more than 256 tagged fields in one request"):
            parse_produce(9, body(partitions + 1))


@pytest.mark.parametrize("count", [2**31 - 1, -2, 1000])
def test_counts_beyond_the_bytes_are_refused(count: int) -> None:
    with pytest.raises(WireError, match="array"):
        parse_produce(3, struct.pack(">hhii", -1, 1, 1, count))
    with pytest.raises(WireError, match="array"):
        parse_fetch(4, struct.pack(">iiiibi", -1, 1, 1, 1, 0, count))
