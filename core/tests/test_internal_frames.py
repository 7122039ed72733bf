"""Frames between nodes arrive whole however they are cut; what was changed on its way, or claims too much, is refused
before it costs anything.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import WireError
from bmq.internal.framing.frames import PREFIX_SIZE_BYTES, FrameReader, Kind, cut, decode_frame, encode_frame
from bmq.internal.limits import ATTACHMENT_BYTES_MAX, FRAME_TRUST_BYTES, HEADER_BYTES_MAX, HELLO_BYTES_MAX

attachments = st.lists(st.binary(max_size=40_000), max_size=3)
frames = st.tuples(
    st.sampled_from(list(Kind)),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=3000),
    attachments,
)
Given = tuple[Kind, int, int, bytes, list[bytes]]


def encoded(frame: Given) -> bytes:
    kind, api_key, correlation_id, header, parts = frame
    return b"".join(
        encode_frame(kind, api_key=api_key, correlation_id=correlation_id, header=header, attachments=parts)
    )


def trusting(scratch_bytes: int = 64 << 10) -> FrameReader:
    reader = FrameReader(scratch=bytearray(scratch_bytes))
    reader.trust()
    return reader


@given(
    st.lists(frames, max_size=6),
    st.lists(st.integers(1, 50_000), min_size=1, max_size=10),
    st.sampled_from([64, 4096, 256 << 10]),
)
@settings(max_examples=150, deadline=None)
def test_frames_come_out_as_sent_however_the_bytes_are_cut(
    sent: list[Given], cuts: list[int], scratch_bytes: int
) -> None:
    stream = memoryview(b"".join(map(encoded, sent)))
    reader = trusting(scratch_bytes)
    got = []
    turn = 0
    while stream:
        size_bytes = cuts[turn % len(cuts)] if turn < 200 else len(stream)
        got += reader.feed(stream[:size_bytes])
        stream = stream[size_bytes:]
        turn += 1
    assert [(one.kind, one.api_key, one.correlation_id, bytes(one.header), bytes(one.attachments)) for one in got] == [
        (kind, api_key, correlation_id, header, b"".join(parts))
        for kind, api_key, correlation_id, header, parts in sent
    ]
    assert reader.is_between_frames
    assert reader.held_bytes == 0


@given(frames, st.data())
@settings(max_examples=200, deadline=None)
def test_a_truncated_frame_is_never_taken_for_a_whole_one(frame: Given, data: st.DataObject) -> None:
    whole = encoded(frame)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WireError):
        decode_frame(whole[:length])
    reader = trusting()
    assert reader.feed(whole[:length]) == []
    assert reader.is_between_frames == (length == 0)


@given(frames, st.data())
@settings(max_examples=200, deadline=None)
def test_a_changed_byte_before_the_attachments_is_found_as_soon_as_that_part_is_there(
    frame: Given, data: st.DataObject
) -> None:
    whole = bytearray(encoded(frame))
    checked = PREFIX_SIZE_BYTES + len(frame[3])
    at = data.draw(st.integers(0, checked - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    reader = trusting()
    with pytest.raises(WireError):
        # A changed length is found by the prefix alone: nobody waits for bytes that will never come.
        reader.feed(whole[:PREFIX_SIZE_BYTES] if at < PREFIX_SIZE_BYTES else whole)


@given(frames.filter(lambda frame: any(frame[4])), st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_of_an_attachment_changes_that_attachment_and_nothing_else(
    frame: Given, data: st.DataObject
) -> None:
    whole = bytearray(encoded(frame))
    at = data.draw(st.integers(PREFIX_SIZE_BYTES + len(frame[3]), len(whole) - 1))
    whole[at] ^= 0xFF
    got = decode_frame(whole)
    assert (got.kind, got.api_key, got.correlation_id, bytes(got.header)) == frame[:4]
    assert len(got.attachments) == sum(map(len, frame[4]))


@given(st.binary(max_size=3000), st.integers(1, 500))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused_or_waited_for_and_cost_no_more_than_they_are(data: bytes, step: int) -> None:
    reader = FrameReader(scratch=bytearray(1024))
    try:
        for start in range(0, len(data), step):
            assert reader.feed(data[start : start + step]) == []
    except WireError:
        return
    assert len(data) < PREFIX_SIZE_BYTES
    assert reader.held_bytes == len(data)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: broker-1:9094\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00" + bytes(100), "TLS"),
        (struct.pack(">ihhih", 40, 18, 3, 1, 7) + b"console" + bytes(40), "Kafka clients"),
    ],
)
def test_strangers_are_told_apart(start: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        FrameReader().feed(start)


def test_a_stranger_may_send_a_hello_and_nothing_larger() -> None:
    reader = FrameReader()
    reader.feed(encode_frame(Kind.HELLO, header=bytes(HELLO_BYTES_MAX))[0])
    with pytest.raises(WireError, match="header of 4097"):
        reader.feed(encode_frame(Kind.HELLO, header=bytes(HELLO_BYTES_MAX + 1))[0])
    with pytest.raises(WireError, match="attachments of 1 bytes"):
        FrameReader().feed(encode_frame(Kind.HELLO, attachments=[b"x"])[0])


def test_of_what_a_stranger_sends_one_frame_is_split_before_it_is_known_what_becomes_of_it() -> None:
    """All that fits into the receive buffer was: 9,700 frames in 25 ms, of each of hundreds of strangers."""
    reader = FrameReader()
    buffer = reader.get_buffer()
    assert len(buffer) == PREFIX_SIZE_BYTES + HELLO_BYTES_MAX
    sent = encode_frame(Kind.PING)[0] * 100
    buffer[: len(sent)] = sent
    frames = reader.arrived(len(sent))
    assert next(frames).kind == Kind.PING
    assert reader.has_more
    assert reader.held_bytes == 99 * PREFIX_SIZE_BYTES
    reader.trust()
    assert len(list(frames)) == 99
    assert reader.is_between_frames
    assert len(reader.get_buffer()) > len(buffer)


@pytest.mark.parametrize(
    ("header_bytes", "attachment_bytes"), [(HEADER_BYTES_MAX + 1, 0), (0, ATTACHMENT_BYTES_MAX + 1)]
)
def test_a_frame_above_the_limits_is_refused_by_its_prefix(header_bytes: int, attachment_bytes: int) -> None:
    reader = trusting()
    parts = encode_frame(Kind.REQUEST, header=bytes(header_bytes), attachments=[bytes(attachment_bytes)])
    with pytest.raises(WireError, match="at most"):
        reader.feed(bytes(memoryview(parts[0])[:PREFIX_SIZE_BYTES]))
    assert reader.held_bytes == 0


def test_the_memory_of_a_large_frame_grows_with_what_has_come() -> None:
    reader = trusting()
    whole = b"".join(encode_frame(Kind.REQUEST, attachments=[bytes(32 << 20)]))
    reader.feed(whole[:1000])
    assert reader.held_bytes == FRAME_TRUST_BYTES
    reader.feed(whole[1000 : 8 << 20])
    assert reader.held_bytes <= 16 << 20
    [frame] = reader.feed(whole[8 << 20 :])
    assert len(frame.attachments) == 32 << 20


def test_large_attachments_are_handed_on_without_a_copy() -> None:
    batch = bytes(100_000)
    parts = encode_frame(Kind.REQUEST, header=b"h", attachments=[batch, batch])
    assert len(parts) == 3
    assert parts[1] is batch


def test_attachments_are_cut_where_the_header_says_or_not_at_all() -> None:
    view = memoryview(b"abcdef")
    assert [bytes(part) for part in cut(view, [1, 0, 5])] == [b"a", b"", b"bcdef"]
    assert cut(memoryview(b""), []) == []
    for sizes in ([1, 4], [7], [6, 1], [-1, 7], []):
        with pytest.raises(WireError):
            cut(view, sizes)
