"""The bytes of a connection, before HTTP is made of them."""

import pytest

from bmq.http.request_bytes import HeadTooLarge, RequestBytes

HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"


def bytes_of(*parts: bytes, head_bytes_max: int = 200, headers_max: int = 5) -> RequestBytes:
    held = RequestBytes(head_bytes_max=head_bytes_max, headers_max=headers_max)
    for part in parts:
        held.add(part)
    return held


@pytest.mark.parametrize("each", [1, 2, 3, 7, 1_000])
def test_heads_come_out_whole_one_at_a_time_however_they_come_in(each: int) -> None:
    sent = HEAD + HEAD.replace(b"\r\n", b"\n") + HEAD[:10]
    held = bytes_of()
    found = []
    for first in range(0, len(sent), each):
        held.add(sent[first : first + each])
        while held.has_head():
            found.append(held.take_head())
    assert found == [HEAD, HEAD.replace(b"\r\n", b"\n")]
    assert len(held) == 10


def test_what_follows_a_head_is_not_part_of_it() -> None:
    held = bytes_of(HEAD + b"{}\n\n" + HEAD)
    assert held.has_head() and held.has_head()
    assert held.take_head() == HEAD
    assert held.take(4) == b"{}\n\n"
    assert held.has_head()


@pytest.mark.parametrize("each", [1, 10_000])
def test_a_header_too_many_is_refused_and_the_last_one_is_not(each: int) -> None:
    def sent(headers: int) -> bytes:
        return b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * headers + b"\r\n"

    assert bytes_of(sent(5)).has_head()
    held = bytes_of()
    with pytest.raises(HeadTooLarge, match="more than 5 headers"):
        for first in range(0, len(sent(6)), each):
            held.add(sent(6)[first : first + each])
            held.has_head()


def test_headers_are_counted_for_each_request_anew_and_before_the_end_is_there() -> None:
    held = bytes_of(HEAD * 10)
    for _ in range(10):
        assert held.has_head()
        held.take_head()
    held.add(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 7)
    with pytest.raises(HeadTooLarge, match="5 headers"):
        held.has_head()


def test_a_head_that_is_too_long_is_refused() -> None:
    assert not bytes_of(b"G" * 199).has_head()
    with pytest.raises(HeadTooLarge, match="200 bytes"):
        bytes_of(b"G" * 200).has_head()
    with pytest.raises(HeadTooLarge, match="200 bytes"):
        bytes_of(b"G" * 200 + b"\r\n\r\n").has_head()


@pytest.mark.parametrize("start", [b"\x16\x03\x01", b"\r\n", b"\n", b"\x00" * 500])
def test_what_can_be_no_request_is_not_waited_for(start: bytes) -> None:
    held = bytes_of(start)
    assert held.has_head()
    assert held.take_head() == start[:200]
