"""Bodies in chunks, looked at in parts."""

import re

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bmq.http.chunked_body import CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX, BrokenChunks, ChunkedBody

POST = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


def taken(body: ChunkedBody, held: bytearray) -> bytes:
    """All that there is."""
    payload = b""
    while True:
        before = len(held)
        payload += body.take(held)
        if len(held) == before:
            return payload


@given(parts=st.lists(st.binary(max_size=20), max_size=8), each=st.integers(1, 50), most=st.integers(1, 9))
def test_the_payload_comes_out_whole_however_it_came_in_and_what_follows_stays(
    parts: list[bytes], each: int, most: int
) -> None:
    body, held, payload = ChunkedBody(part_bytes=most, part_chunks=most), bytearray(), b""
    sent = chunked(parts) + b"GET /"
    for first in range(0, len(sent), each):
        held += sent[first : first + each]
        payload += taken(body, held)
    assert (payload, body.is_over, bytes(held)) == (b"".join(parts), True, b"GET /")


@example([b"0", b"\r\n", b"\n"])
@example([b"0", b"\r\n", b"a", b":", b"\n", b"\n"])
@given(st.lists(st.sampled_from([b"1", b"a", b";x", b"\r\n", b"\r", b"\n", b" ", b"0", b"zz", b":"]), max_size=12))
def test_what_is_taken_is_what_h11_takes_and_what_is_refused_it_refuses(words: list[bytes]) -> None:
    sent = b"".join(words)
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(POST + sent)
    theirs.next_event()
    wanted = b""
    try:
        while isinstance(event := theirs.next_event(), h11.Data):
            wanted += event.data
    except h11.RemoteProtocolError:
        event = None
    body, held = ChunkedBody(), bytearray(sent)
    try:
        payload = taken(body, held)
    except BrokenChunks:
        # h11 lets a lone carriage return into an extension, which ends no line (RFC 9112, section 2.2)
        assert event in (None, h11.NEED_DATA) or re.search(rb";[^\n]*\r[^\n]", sent)
        return
    if event is not None:
        assert payload == wanted
        assert body.is_over or not isinstance(event, h11.EndOfMessage)


def test_ten_thousand_chunks_of_one_byte_are_looked_at_in_parts_and_each_comes_out_as_one() -> None:
    body, held = ChunkedBody(part_chunks=1_000), bytearray(b"1\r\nx\r\n" * 10_000)
    sizes = []
    while held:
        sizes.append(len(body.take(held)))
    assert max(sizes) <= 1_000
    assert sum(sizes) == 10_000


def test_a_large_chunk_comes_out_in_parts() -> None:
    body, held = ChunkedBody(part_bytes=1_000), bytearray(b"%x\r\n%b" % (2_500, bytes(2_500)))
    assert [len(body.take(held)) for _ in range(4)] == [1_000, 1_000, 500, 0]
    assert not body.is_over


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"zz\r\nno chunk", "illegal chunk header: b'zz'"),
        (b"-1\r\n", "illegal chunk header"),
        (b"\r\n", "illegal chunk header"),
        (b"1" * 16 + b"\r\n", "illegal chunk header"),
        (b"1;" + b"x" * CHUNK_LINE_BYTES_MAX, "illegal chunk header"),
        (b"1\r\nxy\r\n", "illegal chunk footer"),
        (b"0\r\n" + b"a: b\r\n" * (TRAILER_BYTES_MAX // 6 + 1), "trailers have more than 8192 bytes"),
        (b"0\r\n" + b"a" * TRAILER_BYTES_MAX, "trailers have more than 8192 bytes"),
    ],
)
def test_what_is_no_chunk_is_told(sent: bytes, why: str) -> None:
    with pytest.raises(BrokenChunks, match=why):
        taken(ChunkedBody(), bytearray(sent))


def test_extensions_and_trailers_are_passed_over() -> None:
    body, held = ChunkedBody(), bytearray(b'1 ;a="b"\r\nx\r\n0\r\na: b\r\nc: d\r\n\r\nrest')
    assert (taken(body, held), body.is_over, bytes(held)) == (b"x", True, b"rest")
