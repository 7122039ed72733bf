"""What the client makes of messages and answers, and which messages it puts together."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.client.batching import Batching, Waiting
from bmq_databus.client.errors import Refused, Unreachable
from bmq_databus.client.messages import BODY_BYTES_MAX, MESSAGES_MAX, Message, Result, bodies_of
from bmq_databus.client.requests import RETRY_MAX_S, WriteRequest
from bmq_databus.messages.forms import NewMessage, from_json

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
headers = st.lists(st.tuples(names, st.one_of(st.none(), texts, st.binary(max_size=8))), max_size=4)


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@given(
    value=st.one_of(st.none(), texts, st.binary(max_size=20)),
    key=st.one_of(st.none(), texts, st.binary(max_size=20)),
    listed=headers,
    timestamp_ms=st.one_of(st.none(), st.integers(1, 1 << 40)),
    partition=st.one_of(st.none(), st.integers(0, 100)),
)
def test_the_sidecar_reads_a_message_as_it_was_made(
    value: str | bytes | None,
    key: str | bytes | None,
    listed: list[tuple[str, str | bytes | None]],
    timestamp_ms: int | None,
    partition: int | None,
) -> None:
    line = Message(value=value, key=key, headers=listed, timestamp_ms=timestamp_ms, partition=partition).line()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert from_json(line) == NewMessage(
        key=as_bytes(key),
        value=as_bytes(value),
        headers=tuple((name, as_bytes(one)) for name, one in listed),
        timestamp_ms=-1 if timestamp_ms is None else timestamp_ms,
        partition=-1 if partition is None else partition,
    )


def test_a_value_may_be_json_null_included() -> None:
    assert from_json(Message(json=None).line()).value == b"null"
    assert from_json(Message(json={"a": [1]}, headers={"n": "v"}).line()).value == b'{"a":[1]}'
    with pytest.raises(ValueError, match="not both"):
        Message(value="a", json=1).line()
    with pytest.raises(ValueError, match="JSON"):
        Message(json=float("nan")).line()


@given(sizes=st.lists(st.integers(1, 3), max_size=50))
def test_bodies_have_all_lines_in_their_order_within_their_bounds(sizes: list[int]) -> None:
    lines = [b"x" * (size * BODY_BYTES_MAX // 3) for size in sizes[:6]]
    bodies = list(bodies_of(lines))
    assert [line for body in bodies for line in body] == lines
    assert all(sum(map(len, body)) <= BODY_BYTES_MAX for body in bodies)
    assert [len(body) for body in bodies_of([b"\n"] * (MESSAGES_MAX + 1))] == [MESSAGES_MAX, 1]


def request() -> WriteRequest:
    return WriteRequest(channel="a/b", lines=[b"{}\n", b"{}\n"], token="t" * 16, key="k")


def test_a_request_says_its_key_and_token_and_names_the_channel_safely() -> None:
    assert request().path == "/v1/channels/a%2Fb/messages"
    assert request().headers["idempotency-key"] == '"k"'
    assert request().headers["authorization"] == "Bearer " + "t" * 16
    assert WriteRequest(channel="a", lines=[]).key != WriteRequest(channel="a", lines=[]).key


def test_an_answer_is_results_a_refusal_or_to_be_tried_again() -> None:
    results = [{"status": 200, "partition": 1, "offset": 2}, {"status": 503, "error": "later"}]
    found = request().results(207, json.dumps({"results": results, "later": 1}).encode())
    assert found == [Result(status=200, partition=1, offset=2), Result(status=503, error="later")]
    assert [one.is_written for one in found] == [True, False]
    for status in (408, 409, 429, 502, 503, 504):
        assert request().results(status, b'{"error": "busy"}') is None
    for status, body in ((404, b'{"error": "no channel"}'), (400, b"nonsense"), (200, b"[]")):
        with pytest.raises(Refused) as refused:
            request().results(status, body)
        assert refused.value.status == status
    with pytest.raises(Refused, match="1 results for 2"):
        request().results(200, json.dumps({"results": results[:1]}).encode())


def test_an_answer_that_is_nested_too_deeply_says_nothing() -> None:
    assert request().results(503, b"[" * 100_000) is None
    with pytest.raises(Refused, match="413"):
        request().results(413, b"[" * 100_000 + b"]" * 100_000)


def test_tries_come_later_and_later_until_there_is_no_time() -> None:
    asked, now_s, delays = request(), 0.0, []
    asked.results(503, b'{"error": "too much"}')
    with pytest.raises(Unreachable, match="too much"):
        while True:
            delays.append(asked.delay_s(until_s=60.0, now_s=now_s))
            now_s += delays[-1]
    assert delays == sorted(delays) and delays[-1] == RETRY_MAX_S and now_s < 60
    assert request().delay_s(until_s=60.0, now_s=0.0, retry_after="7") == 7.0
    assert request().delay_s(until_s=60.0, now_s=0.0, retry_after="Wed, 21 Oct") < 1.0


@given(sizes=st.lists(st.integers(1, 30), max_size=40))
def test_batches_have_all_lines_once_in_their_order(sizes: list[int]) -> None:
    batching = Batching(linger_s=1.0, messages_max=5, bytes_max=40, queue_bytes_max=1_000)
    waiting: Waiting[int] = Waiting(batching)
    for number, size in enumerate(sizes):
        waiting.add(b"x" * size, number, now_s=float(number))
    taken = []
    while waiting.due_s() is not None:
        batch = waiting.take()
        assert len(batch) <= 5 and (len(batch) == 1 or sum(len(line) for line, _ in batch) <= 40)
        taken += [whom for _, whom in batch]
    assert taken == list(range(len(sizes))) and waiting.size_bytes == 0


def test_a_batch_is_due_when_it_is_full_or_its_first_message_has_waited() -> None:
    waiting: Waiting[int] = Waiting(Batching(linger_s=1.0, messages_max=2, bytes_max=100, queue_bytes_max=100))
    assert waiting.due_s() is None and waiting.has_room(1_000)
    waiting.add(b"x" * 60, 0, now_s=7.0)
    assert waiting.due_s() == 8.0
    assert waiting.has_room(40) and not waiting.has_room(41)
    waiting.add(b"x", 1, now_s=7.5)
    assert waiting.due_s() == float("-inf")
