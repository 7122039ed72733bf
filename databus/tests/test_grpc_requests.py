"""Requests of gRPC: what is cut out of them is what protobuf itself finds, and what few bytes claim is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bmq_databus.errors import BadMessage
from bmq_databus.grpc.errors import BadRequest
from bmq_databus.grpc.requests import CUT_IN_ONE_GO, Cut, message_of
from bmq_databus.messages.forms import HEADERS_MAX, MESSAGES_MAX, TIMESTAMP_MS_MAX, NewMessage
from bmq_databus.v1.databus_pb2 import Header, Message, WriteRequest

short = some.binary(max_size=300)
headers = some.lists(some.builds(Header, name=some.text(max_size=8), value=some.none() | short), max_size=5)
messages = some.builds(
    Message,
    key=some.none() | short,
    value=some.none() | short,
    headers=headers,
    timestamp_ms=some.none() | some.integers(1, TIMESTAMP_MS_MAX),
    partition=some.none() | some.integers(0, 1 << 30),
)


def cut(wire: bytes) -> Cut:
    found = Cut(wire)
    while found.go_on():
        pass
    return found


@given(some.text(max_size=40), some.lists(messages, max_size=20))
def test_what_is_cut_and_decoded_is_what_was_written(channel: str, written: list[Message]) -> None:
    request = WriteRequest(channel=channel, messages=written)
    found = cut(request.SerializeToString())
    assert found.channel == channel
    assert [Message.FromString(one) for one in found.messages] == written
    for wire, message in zip(found.messages, written, strict=True):
        new = message_of(wire)
        if any("\0" in one.name for one in message.headers):
            assert isinstance(new, BadMessage)
            continue
        assert isinstance(new, NewMessage)
        assert new.key == (message.key if message.HasField("key") else None)
        assert new.value == (message.value if message.HasField("value") else None)
        assert new.headers == tuple((one.name, one.value if one.HasField("value") else None) for one in message.headers)
        assert new.timestamp_ms == (message.timestamp_ms if message.HasField("timestamp_ms") else -1)
        assert new.partition == (message.partition if message.HasField("partition") else -1)


@given(some.binary(max_size=2_000))
def test_garbage_is_a_request_or_told_to_be_none(wire: bytes) -> None:
    try:
        found = cut(wire)
        assert isinstance(found.channel, str)
    except BadRequest:
        return
    for one in found.messages:
        assert isinstance(message_of(one), NewMessage | BadMessage)


@pytest.mark.parametrize("end", range(1, 40))
def test_a_request_that_ends_within_a_message_is_none(end: int) -> None:
    wire = WriteRequest(messages=[Message(value=b"x" * 200)]).SerializeToString()
    with pytest.raises(BadRequest):
        cut(wire[:-end])


def test_who_goes_on_with_what_is_over_gets_nothing_twice() -> None:
    found = cut(WriteRequest(channel="a", messages=[Message(value=b"x")]).SerializeToString())
    assert not found.go_on()
    assert len(found.messages) == 1


def test_no_more_is_looked_at_than_there_may_be() -> None:
    """Two bytes are an empty message: 4 MiB would be two million of them."""
    assert len(cut(b"\x12\x00" * MESSAGES_MAX).messages) == MESSAGES_MAX
    empties = Cut(b"\x12\x00" * (2 << 20))
    looks = 0
    with pytest.raises(BadRequest, match="10000 messages at most"):
        while empties.go_on():
            looks += 1
    assert looks <= MESSAGES_MAX // CUT_IN_ONE_GO
    with pytest.raises(BadRequest, match="mean nothing"):
        cut(b"\x18\x01" * 17)  # fields that nobody knows
    with pytest.raises(BadRequest, match="mean nothing"):
        cut(b"\x0a\x00" * 17)  # the channel's name, again and again


def test_messages_with_too_many_headers_are_refused_before_they_are_decoded() -> None:
    most = Message(headers=[Header(name="a")] * HEADERS_MAX)
    assert isinstance(message_of(most.SerializeToString()), NewMessage)
    for wire in (
        Message(headers=[Header(name="a")] * (HEADERS_MAX + 1)).SerializeToString(),
        b"\x1a\x00" * (2 << 20),
        b"\x30\x01" * (2 << 20),
    ):
        refused = message_of(wire)
        assert isinstance(refused, BadMessage)
        assert "1000" in str(refused)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(timestamp_ms=0), "timestamp_ms 0"),
        (Message(timestamp_ms=TIMESTAMP_MS_MAX + 1), "timestamp_ms"),
        (Message(partition=-1), "partition -1"),
        (Message(headers=[Header(name="a\0")]), "NUL"),
    ],
    ids=["early", "late", "partition", "nul"],
)
def test_what_is_wrong_with_a_message_is_told(message: Message, why: str) -> None:
    refused = message_of(message.SerializeToString())
    assert isinstance(refused, BadMessage)
    assert why in str(refused)


def test_names_that_are_no_text_are_refused() -> None:
    assert isinstance(message_of(b"\x1a\x03\x0a\x01\xff"), BadMessage)
    with pytest.raises(BadRequest, match="UTF-8"):
        assert cut(b"\x0a\x01\xff").channel
