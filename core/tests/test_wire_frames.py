"""Frames arrive whole however they are cut; what is not the protocol, or claims too much, is refused before it costs
anything.
"""

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer

from bmq.errors import WireError
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.frames import (
    FrameReader,
    RequestHeader,
    encode_request_frame,
    encode_response_frame,
    parse_request_header,
    parse_response_header,
)
from bmq.wire.limits import FIRST_FRAME_BYTES_MAX, FRAME_BYTES_MAX, PRODUCE_FRAME_BYTES_MAX
from bmq.wire.schemas import api_schema


def produce(size: int, fill: int = 7) -> bytes:
    body = struct.pack(">hhi", 0, 9, 1) + bytes([fill]) * (size - 8)
    return struct.pack(">i", size) + body


@given(
    st.lists(st.sampled_from([8, 9, 100, 5000, 70_000, 300_000]), max_size=8),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=10),
)
@settings(max_examples=100, deadline=None)
def test_frames_come_out_as_sent_however_the_bytes_are_cut(sizes: list[int], cuts: list[int]) -> None:
    sent = [produce(size, fill) for fill, size in enumerate(sizes)]
    stream = memoryview(b"".join(sent))
    reader = FrameReader(scratch=bytearray(64 << 10))
    frames = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)] if turn < 200 else len(stream)
        frames += reader.feed(stream[:cut])
        stream = stream[cut:]
        turn += 1
    assert [bytes(frame) for frame in frames] == [frame[4:] for frame in sent]
    assert reader.held_bytes == 0


def test_one_byte_at_a_time() -> None:
    reader = FrameReader(scratch=bytearray(64))
    frames = [bytes(frame) for byte in produce(300) + produce(8) for frame in reader.feed(bytes([byte]))]
    assert frames == [produce(300)[4:], produce(8)[4:]]


def test_a_shared_scratch_buffer_does_not_mix_connections() -> None:
    scratch = bytearray(1000)
    one, other = FrameReader(scratch=scratch), FrameReader(scratch=scratch)
    mine, theirs = produce(500, 1), produce(600, 2)
    assert one.feed(mine[:5]) == other.feed(theirs[:300]) == []
    (first,) = one.feed(mine[5:])
    (second,) = other.feed(theirs[300:])
    assert (bytes(first), bytes(second)) == (mine[4:], theirs[4:])


def test_what_a_peer_only_claims_is_not_allocated() -> None:
    reader = FrameReader(scratch=bytearray(4096))
    reader.feed(struct.pack(">ihhi", 100 << 20, 0, 9, 1))
    assert reader.held_bytes <= 4096
    reader.feed(bytes(1 << 20))
    assert reader.held_bytes <= 4 << 20


def test_a_frame_after_a_large_one_is_read_into_memory_of_its_size_at_once() -> None:
    reader = FrameReader(scratch=bytearray(4096))
    reader.feed(produce(1 << 20))
    reader.feed(produce(1 << 20)[:100])
    assert reader.held_bytes == 1 << 20


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /x", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"SSH-2.0-OpenSSH", "allowed"),
        (struct.pack(">ih", -1, 0), "not the Kafka protocol"),
        (struct.pack(">ih", 7, 0), "not the Kafka protocol"),
        (struct.pack(">ih", PRODUCE_FRAME_BYTES_MAX + 1, 0), "allowed"),
        (struct.pack(">ih", FRAME_BYTES_MAX + 1, 3), "allowed"),
        (struct.pack(">ih", FIRST_FRAME_BYTES_MAX + 1, 999), "allowed"),
    ],
)
def test_what_is_not_the_protocol_or_too_large_is_named(start: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        FrameReader().feed(start)
    with pytest.raises(WireError, match=why):
        reader = FrameReader()
        for byte in start:
            reader.feed(bytes([byte]))


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_frames_or_a_wire_error(data: bytes) -> None:
    try:
        for frame in FrameReader().feed(data):
            parse_request_header(frame)
    except WireError:
        return


@pytest.mark.parametrize("key", sorted(SERVED))
def test_headers_agree_with_kio_in_every_version(key: int) -> None:
    api = SERVED[key]
    for version in range(api.version_min, api.version_max + 1):
        kio_header = KioHeader2 if api.request_header_version(version) == 2 else KioHeader1
        for client_id in (None, "", "rdkafka", "grüße"):
            out = io.BytesIO()
            header = kio_header(
                request_api_key=key, request_api_version=version, correlation_id=77, client_id=client_id
            )
            entity_writer(kio_header)(out, header)
            frame = out.getvalue() + b"body"
            assert parse_request_header(frame) == (key, version, 77, client_id, len(frame) - 4)
            sent = encode_request_frame(
                api_key=key, api_version=version, correlation_id=77, client_id=client_id, body=b"body"
            )
            assert sent[4:] == frame


def test_a_header_of_an_api_or_version_that_is_not_known_is_read_as_far_as_it_is() -> None:
    assert parse_request_header(struct.pack(">hhi", 999, 0, 5) + b"junk") == RequestHeader(999, 0, 5, None, 12)
    header = parse_request_header(struct.pack(">hhi", 18, 99, 5))
    assert (header.correlation_id, header.is_served) == (5, False)


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x00",
        b"\x00\x05abc",
        b"\xff\xfe",
        b"\x00\x01\xff\x00",
        b"\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\x0f",
        b"\xff\xff\x41" + b"\x00\x00" * 65,
        b"\xff\xff\x01\x00\x09ab",
        b"\xff\xff\x80\x80\x80\x80\x80\x80",
    ],
)
def test_headers_that_do_not_fit_their_bytes_are_refused(rest: bytes) -> None:
    with pytest.raises(WireError):
        parse_request_header(struct.pack(">hhi", 12, 4, 5) + rest)


def test_unknown_tagged_header_fields_are_skipped() -> None:
    frame = struct.pack(">hhi", 12, 4, 5) + b"\x00\x01c" + b"\x02\x00\x03abc\x81\x01\x00" + b"body"
    header = parse_request_header(frame)
    assert (header.client_id, frame[header.body_position :]) == ("c", b"body")


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x05\x00", b"\x02\x05\x00\x04\x00"])
def test_tagged_header_fields_ascend(tags: bytes) -> None:
    with pytest.raises(WireError, match=r"tagged field . follows 5"):
        parse_request_header(struct.pack(">hhi", 12, 4, 5) + b"\x00\x01c" + tags)


@pytest.mark.parametrize("size", [0, 10, 100_000])
@pytest.mark.parametrize(("version", "header_version"), [(3, 0), (4, 1)])
def test_responses_are_framed_with_the_header_of_their_version(size: int, version: int, header_version: int) -> None:
    assert SERVED[12].response_header_version(version) == header_version
    data = bytes(size)
    buffers = encode_response_frame(header_version, 9, [b"xy", memoryview(data)])
    joined = b"".join(buffers)
    assert struct.unpack_from(">i", joined)[0] == len(joined) - 4
    assert parse_response_header(joined[4:], api_key=12, api_version=version) == (9, 4 + header_version)
    assert joined[8 + header_version :] == b"xy" + data
    if size > 50_000:
        assert any(buffer is data or getattr(buffer, "obj", None) is data for buffer in buffers)
    if header_version:
        assert entity_reader(ResponseHeader)(joined, 4)[1] == 5


def test_api_versions_always_answers_with_header_zero() -> None:
    assert {SERVED[ApiKey.API_VERSIONS].response_header_version(version) for version in range(6)} == {0}


def test_the_table_of_apis_agrees_with_the_schemas() -> None:
    for key, api in SERVED.items():
        schema = api_schema(key)
        assert (api.name, key) == (schema.name, schema.key)
        assert schema.versions[0] <= api.version_min <= api.version_max <= schema.versions[1]
        if schema.flexible_from <= api.version_max or api.flexible_from <= api.version_max:
            assert api.flexible_from == schema.flexible_from, api.name
    assert set(SERVED) == set(ApiKey)
