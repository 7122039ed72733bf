"""Records of Confluent's REST API: what they become, what is refused, and what is told of them."""

import asyncio
import json
import math
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from requests_under_test import incoming

from bmq_databus.errors import BadMessage, NoObjects
from bmq_databus.http.answers import Reply
from bmq_databus.http.confluent import Confluent
from bmq_databus.http.records import RECORDS_MAX, Records
from bmq_databus.http.streams import End
from bmq_databus.messages.forms import HEADERS_MAX, NewMessage
from bmq_databus.messages.records import Record, record_of, time_text
from bmq_databus.producing.outcomes import ACCEPTED, SAMPLED_OUT, dead_letter, sent

MAYBE = "the cluster did not take it in time, and may have it all the same: see that it is there"


def message(**fields: Any) -> NewMessage:
    found = record_of(json.dumps(fields).encode())
    assert isinstance(found, Record), found
    return found.message


def refused(text: str) -> str:
    found = record_of(text.encode())
    assert isinstance(found, BadMessage), found
    return str(found)


def told(records: Records, *outcomes: Any) -> list[Any]:
    return [json.loads(line) for line in records.reply(list(outcomes)).body.splitlines()]


def test_keys_and_values_are_the_bytes_that_they_say() -> None:
    assert message(value={"type": "BINARY", "data": "AP8="}).value == b"\x00\xff"
    assert message(value={"type": "STRING", "data": "\u00e4"}).value == "\u00e4".encode()
    assert message(key={"type": "JSON", "data": {"a": [1]}}).key == b'{"a": [1]}'
    for data in ({"type": "JSON"}, {"type": "JSON", "data": None}, {"type": "BINARY", "data": None}):
        assert message(value=data).value is None
    assert message(value=None) == message() == NewMessage(None, None)
    exact = record_of(b'{"value": {"type": "JSON", "data":  1.50e3 }}')
    assert isinstance(exact, Record) and exact.message.value == b"1.50e3"


def test_partition_timestamp_and_headers_are_the_messages() -> None:
    one = message(
        partition_id=3,
        timestamp="2021-02-05T19:14:42.5Z",
        headers=[{"name": "a", "value": "AA=="}, {"name": "a", "value": None}, {"name": "b"}],
    )
    assert (one.partition, one.timestamp_ms) == (3, 1_612_552_482_500)
    assert one.headers == (("a", b"\x00"), ("a", None), ("b", None))
    assert message(partition_id=None, timestamp=None, headers=None) == NewMessage(None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"value": {"type": "AVRO", "data": "x"}}', "value.type 'AVRO' is not served"),
        ('{"key": {"data": "x"}}', "key.type is missing"),
        ('{"value": {"type": "JSON", "schema_id": 1, "data": 1}}', "value.schema_id: there is no schema registry"),
        ('{"value": {"type": "BINARY", "data": "?"}}', "data of BINARY is base64"),
        ('{"value": {"type": "STRING", "data": 1}}', "data of STRING is a text"),
        ('{"value": 1}', "a record is an object with"),
        ('{"values": {}}', "unknown field `values`"),
        ('{"partition_id": -1}', "partition_id"),
        ('{"timestamp": "2021-02-05T19:14:42"}', "timestamp"),
        ('{"timestamp": "1900-01-01T00:00:00Z"}', "a time since 1970"),
        ('{"headers": [{"name": "a", "value": "?"}]}', "headers: "),
        ('{"headers": [{"name": "a\\u0000"}]}', "NUL"),
        ('{"key": }', "malformed"),
        ('{"value": {"type": "JSON", "data": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested too deep"),
    ],
)
def test_what_is_no_record_is_told_so(text: str, why: str) -> None:
    assert why in refused(text)


def test_headers_of_a_record_are_as_many_as_a_message_may_have() -> None:
    one = {"name": "a"}
    assert len(message(headers=[one] * HEADERS_MAX).headers) == HEADERS_MAX
    assert "<= 1000" in refused(json.dumps({"headers": [one] * (HEADERS_MAX + 1)}))
    assert "quotes at most" in refused(json.dumps({"headers": [one] * 100_000}))


def test_what_is_written_is_told_with_where_it_is_and_what_is_not_with_a_code() -> None:
    records = Records("c1", "orders")
    texts = [b'{"key": {"type": "STRING", "data": "k"}, "value": {"type": "BINARY", "data": "AAA="}}'] + [b"{}"] * 7
    for text in texts:
        records.message(text)
    unavailable = {"status": 503, "error": "away"}
    found = told(
        records,
        sent(2, 17),
        ACCEPTED,
        SAMPLED_OUT,
        dead_letter(sent(0, 3), channel="dead", why="unfit"),
        {"status": 404, "error": "no topic"},
        unavailable,
        {"status": 503, "error": MAYBE},
        {"status": 429, "error": "too much", "retryAfter": 1},
    )
    where = {"error_code": 200, "cluster_id": "c1", "topic_name": "orders"}
    assert found[0] == {
        **where,
        "partition_id": 2,
        "offset": 17,
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "BINARY", "size": 2},
    }
    assert found[1] == found[2] == {**where, "partition_id": -1, "offset": -1}
    assert found[3] == {**where, "partition_id": -1, "offset": -1, "message": "unfit"}
    assert found[4] == {"error_code": 40403, "message": "no topic"}
    assert [one["error_code"] for one in found[5:]] == [50302, 50003, 429]


def test_a_whole_body_is_looked_at_before_any_of_it_is_written_and_is_bounded() -> None:
    def many(body: bytes) -> int:
        return sum(len(some) for some in Records("c", "t").messages(body, {}))

    assert many(b"{}" * RECORDS_MAX) == RECORDS_MAX
    with pytest.raises(BadMessage, match="a stream"):
        many(b"{}" * (RECORDS_MAX + 1))
    headers = json.dumps({"headers": [{"name": "a"}] * HEADERS_MAX}).encode()
    with pytest.raises(BadMessage, match="headers at most"):
        many(headers * 101)
    for body in (b"", b" \n"):
        with pytest.raises(BadMessage, match="no record"):
            many(body)
    with pytest.raises(NoObjects):
        many(b"{} [")


def test_a_large_record_is_looked_at_in_slices() -> None:
    body = b'{"value": {"type": "STRING", "data": "' + b"x" * 100_000 + b'"}}'
    assert len(list(Records("c", "t").messages(body, {}))) > 20


@pytest.mark.parametrize("headers", [{}, {"content-length": "2"}])
def test_the_id_of_a_cluster_is_no_longer_than_one_may_be_as_it_is_told_with_each_record(
    headers: dict[str, str],
) -> None:
    async def never() -> Any:
        raise AssertionError("nothing is read")

    nothing: Any = None
    request = incoming(never, **headers)
    request.scope["method"] = "POST"
    with ExitStack() as until_sent:
        path = ["x" * 65, "topics", "orders", "records"]
        reply = asyncio.run(Confluent(nothing, nothing, nothing).answer(path, request, until_sent))
    assert isinstance(reply, Reply) and reply.status == 404
    told = json.loads(reply.body)
    assert told["error_code"] == 40403
    assert "64 characters at most, not 65; take the one that GET /v3/clusters tells" in told["message"]


def test_a_stream_that_was_ended_says_why_last() -> None:
    records = Records("c", "t")
    assert records.last(End(200), written=3, refused=0) == b""
    last = json.loads(records.last(End(503, "this sidecar is ending"), written=3, refused=1))
    assert last["error_code"] == 50302 and "3 records were written, and 1 refused" in last["message"]


@given(
    st.datetimes(datetime(1970, 1, 1, 0, 0, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),
    st.integers(-14 * 60, 14 * 60),
)
@example(datetime(2001, 9, 9, 1, 46, 39, 1_000, tzinfo=UTC), 0)
def test_a_time_is_the_ms_that_it_is_in_and_is_told_so(time: datetime, minutes: int) -> None:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    exact = Fraction(since.days * 86_400 + since.seconds) * 1000 + Fraction(since.microseconds, 1000)
    local = time.astimezone(timezone(timedelta(minutes=minutes)))
    assert message(timestamp=local.isoformat()).timestamp_ms == math.floor(exact)
    again = datetime.fromisoformat(time_text(math.floor(exact)))
    assert again == time.replace(microsecond=time.microsecond // 1000 * 1000)
