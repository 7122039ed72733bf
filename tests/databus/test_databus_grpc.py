"""A sidecar that is called by gRPC, beside a started bmq."""

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from compat_server import Bmq
from databus_process import CHANNELS, Databus
from grpc import StatusCode
from grpc_calls import LISTEN, NO_WINDOW, WITHIN_S, Client, Frames, frames, texts
from test_databus import MEBIBYTE, records, values
from test_databus_fairness import peak_mib
from tests.waiting import until

from bmq_databus.v1.databus_pb2 import Header, Message, WriteRequest, WriteStreamRequest

TOKEN = "a-token-of-24-characters"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LANES = """
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: laned}
spec: {lane: {header: x-lane}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: checked}
spec: {schema: {json: {type: object}}, deadLetter: dead, rate: {messagesPerSecond: 2}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: dead}
spec: {acknowledgement: accepted}
"""


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    sidecar = Databus(bmq.servers, CHANNELS + LANES, tmp_path, options=LISTEN)
    try:
        yield sidecar
    finally:
        sidecar.stop()


@pytest.fixture
def client(bmq: Bmq, databus: Databus) -> Iterator[Client]:
    bmq.start()
    databus.start()
    with Client(databus) as opened:
        yield opened


def test_what_is_written_is_in_the_topic_where_the_result_says(bmq: Bmq, client: Client) -> None:
    headers = [Header(name="a", value=b"\xff"), Header(name="a", value=b""), Header(name="b")]
    messages = [
        Message(key=b"k1", value=b"\x00raw\xff", headers=headers, timestamp_ms=1_700_000_000_000, partition=0),
        Message(key=b"tombstone"),
        Message(value=b""),
    ]
    results = client.write("orders", *messages, traceparent=TRACE, baggage="a=1")
    found = records(bmq, "orders", 3)
    assert [(one.written.partition, one.written.offset) for one in results] == [
        (one.partition(), one.offset()) for one in found
    ]
    assert [(one.key(), one.value()) for one in found] == [(b"k1", b"\x00raw\xff"), (b"tombstone", None), (None, b"")]
    context = [("traceparent", TRACE.encode()), ("baggage", b"a=1")]
    assert found[0].headers() == [("a", b"\xff"), ("a", b""), ("b", None), *context]
    assert found[0].timestamp()[1] == 1_700_000_000_000
    assert found[1].headers() == context
    accepted = client.write("clicks", *texts("one", "two"))
    assert [one.WhichOneof("outcome") for one in accepted] == ["accepted"] * 2
    assert values(bmq, "clicks-raw", 2) == ["one", "two"]


def test_each_message_that_is_not_written_is_told_and_no_status_hides_it(client: Client, databus: Databus) -> None:
    mixed = client.write("orders", Message(partition=-1), *texts("good"), Message(value=b"x", partition=7))
    assert [one.WhichOneof("outcome") for one in mixed] == ["error", "written", "error"]
    assert [mixed[0].error.code, mixed[2].error.code] == [
        StatusCode.INVALID_ARGUMENT.value[0],
        StatusCode.NOT_FOUND.value[0],
    ]
    all_bad = client.refusal("orders", Message(partition=-1), Message(partition=-2))
    assert (all_bad.code(), "none of 2 messages: partition -1" in all_bad.details()) == (
        StatusCode.INVALID_ARGUMENT,
        True,
    )
    too_large = client.refusal("orders", Message(value=bytes(3 * MEBIBYTE)))
    assert (too_large.code(), "max.message.bytes" in too_large.details()) == (StatusCode.INVALID_ARGUMENT, True)
    assert client.refusal("nowhere", *texts("x")).code() is StatusCode.NOT_FOUND
    assert client.refusal("closed", *texts("x")).code() is StatusCode.PERMISSION_DENIED
    assert client.write("orders") == []
    assert databus.value("bmq_databus_messages_total", channel="orders", status="400") == 3
    assert databus.value("bmq_databus_messages_total", channel="closed", status="403") == 1


def test_rules_are_those_of_http(bmq: Bmq, client: Client) -> None:
    [bad, good] = client.write("checked", *texts("no json", "{}"))
    assert (bad.WhichOneof("outcome"), bad.dead_letter.channel) == ("accepted", "dead")
    assert good.WhichOneof("outcome") == "written"
    assert values(bmq, "dead", 1) == ["no json"]
    [*_, late] = client.write("checked", *texts("{}", "{}", "{}"))
    assert (late.error.code, late.error.retry_after_seconds) == (StatusCode.RESOURCE_EXHAUSTED.value[0], 1)
    nowhere = client.refusal("laned", *texts("x"), x_lane="dev")
    assert (nowhere.code(), "lane dev" in nowhere.details()) == (StatusCode.PERMISSION_DENIED, True)
    assert client.refusal("laned", *texts("x"), x_lane="no lane!").code() is StatusCode.INVALID_ARGUMENT
    assert client.write("laned", *texts("x"))[0].written.offset == 0


def test_who_has_no_token_writes_nothing(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    databus = Databus(bmq.servers, CHANNELS, tmp_path, options=[*LISTEN, "--token-file", str(tokens)])
    databus.start()
    try:
        with Client(databus) as client:
            for metadata in ({}, {"authorization": "Bearer another-one-of-24-chars!"}):
                assert client.refusal("orders", *texts("x"), **metadata).code() is StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as refused:
                list(client.stream(iter([WriteStreamRequest(channel="orders")]), timeout=30))
            assert refused.value.code() is StatusCode.UNAUTHENTICATED
            assert client.write("orders", *texts("x"), authorization=f"Bearer {TOKEN}")[0].written.offset == 0
    finally:
        databus.stop()


@pytest.mark.parametrize("channel", ["orders", "clicks"])
def test_a_call_that_comes_again_with_its_key_is_written_once(
    bmq: Bmq, databus: Databus, client: Client, channel: str
) -> None:
    first = client.write(channel, *texts("a", "b"), idempotency_key="key-1")
    assert client.write(channel, *texts("a", "b"), idempotency_key="key-1") == first
    assert client.refusal(channel, *texts("c"), idempotency_key="key-1").code() is StatusCode.INVALID_ARGUMENT
    assert databus.post(channel, b"a", headers={"idempotency-key": "key-1"})[0] == 422
    assert client.refusal(channel, *texts("c"), idempotency_key="k" * 300).code() is StatusCode.INVALID_ARGUMENT
    if channel == "clicks":
        databus.kill9()
        databus.start()
        with Client(databus) as again:
            assert again.write(channel, *texts("a", "b"), idempotency_key="key-1") == first
        # What was on its way when it was killed may be there twice.
        assert set(values(bmq, "clicks-raw", 2)) == {"a", "b"}
    else:
        assert values(bmq, "orders", 2) == ["a", "b"]


class Stream:
    """One whose requests are put in one by one."""

    def __init__(self, client: Client) -> None:
        self._requests: queue.Queue[WriteStreamRequest | None] = queue.Queue()
        self.responses = client.stream(iter(self._requests.get, None), timeout=100)

    def send(self, channel: str, *messages: Message) -> None:
        self._requests.put(WriteStreamRequest(channel=channel, messages=messages))

    def end(self) -> None:
        self._requests.put(None)


def test_a_stream_has_its_results_while_it_lasts(bmq: Bmq, client: Client) -> None:
    for channel, outcome in (("orders", "written"), ("clicks", "accepted")):
        stream = Stream(client)
        for n in range(20):
            stream.send(channel if n == 0 else "", *texts(f"{n}"), Message(partition=-1))
            results = list(next(stream.responses).results)
            while len(results) < 2:
                results += next(stream.responses).results
            assert [one.WhichOneof("outcome") for one in results] == [outcome, "error"]
        stream.end()
        assert list(stream.responses) == []
        assert stream.responses.code() is StatusCode.OK
    assert values(bmq, "orders", 20) == values(bmq, "clicks-raw", 20) == [f"{n}" for n in range(20)]


def test_a_stream_of_many_messages_has_a_result_for_each_in_their_order(bmq: Bmq, client: Client) -> None:
    numbers = iter(range(50_000))
    requests = [
        WriteStreamRequest(channel="orders", messages=texts(*(f"{next(numbers)}" for _ in range(500))))
        for _ in range(100)
    ]
    found = [one.written.offset for response in client.stream(iter(requests)) for one in response.results]
    assert found == list(range(50_000))
    assert values(bmq, "orders", 50_000) == [f"{n}" for n in range(50_000)]


def test_what_is_wrong_with_a_stream_ends_it_and_what_was_answered_is_written(bmq: Bmq, client: Client) -> None:
    def code_of(*requests: WriteStreamRequest, **metadata: str) -> tuple[StatusCode, int]:
        named = [(name.replace("_", "-"), value) for name, value in metadata.items()]
        answer, count = client.stream(iter(requests), timeout=60, metadata=named), 0
        try:
            for response in answer:
                count += sum(one.HasField("written") for one in response.results)
        except grpc.RpcError as error:
            return error.code(), count
        return StatusCode.OK, count

    first = WriteStreamRequest(channel="orders", messages=texts("x"))
    assert code_of() == (StatusCode.INVALID_ARGUMENT, 0)
    assert code_of(WriteStreamRequest(messages=texts("x"))) == (StatusCode.NOT_FOUND, 0)
    assert code_of(WriteStreamRequest(channel="closed")) == (StatusCode.PERMISSION_DENIED, 0)
    assert code_of(first, WriteStreamRequest(channel="clicks")) == (StatusCode.INVALID_ARGUMENT, 1)
    assert code_of(first, idempotency_key="key") == (StatusCode.INVALID_ARGUMENT, 0)
    large = WriteStreamRequest(messages=[Message(value=bytes(5 * MEBIBYTE))])
    assert code_of(first, large)[0] is StatusCode.RESOURCE_EXHAUSTED
    assert code_of(first, first) == (StatusCode.OK, 2)


def test_bad_input_is_refused_and_others_go_on(bmq: Bmq, databus: Databus, client: Client) -> None:
    client.write("orders", *texts("before"))
    host, port = databus.grpc_address.rsplit(":", 1)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"\xff" * 100_000):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            try:
                connection.sendall(garbage)
                while connection.recv(65_536):
                    pass
            except ConnectionError:
                pass
    for request, of_bytes in ((b"\xff" * 100, None), (b"x" * 100, 64 * MEBIBYTE), (bytes(MEBIBYTE), None)):
        with suppress(ConnectionError), frames(databus) as opened:  # the last one is more than there is a window for
            opened.call("Write")
            opened.request(request, of_bytes=of_bytes, ends=True)
            opened.call("WriteStream")
            opened.request(request, of_bytes=of_bytes)
    for request in (b"\xff" * 100, b"\x12\x00" * MEBIBYTE, b"\x18\x01" * MEBIBYTE):
        with pytest.raises(grpc.RpcError) as refused:
            client.raw(request, timeout=30)
        assert refused.value.code() is StatusCode.INVALID_ARGUMENT
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with pytest.raises(grpc.RpcError) as refused:
            client.call(WriteRequest(channel="orders", messages=texts("x")), compression=compression, timeout=30)
        assert refused.value.code() is StatusCode.UNIMPLEMENTED
    whole = Message(value=bytes(64 * MEBIBYTE))
    assert client.refusal("orders", whole).code() is StatusCode.RESOURCE_EXHAUSTED
    # A client's library may find its request refused only after others that were under way.
    until(lambda: client.write("orders", *texts("after"))[0].HasField("written"), "calls to go on")
    assert databus.value("bmq_databus_messages_total", channel="orders", status="200") == 2
    assert "Traceback" not in databus.log.read_text()


def test_a_stream_that_is_cut_in_its_middle_has_written_what_came_whole(
    bmq: Bmq, databus: Databus, client: Client
) -> None:
    whole = WriteStreamRequest(channel="orders", messages=texts("one", "two")).SerializeToString()
    with frames(databus) as opened:
        opened.call("WriteStream")
        opened.request(whole)
        opened.request(whole[:10], of_bytes=len(whole))
        until(lambda: databus.value("bmq_databus_messages_total", channel="orders", status="200") == 2, "the first")
    assert values(bmq, "orders", 2) == ["one", "two"]
    until(lambda: databus.value("bmq_databus_streams") == 0, "the stream to be over")
    assert client.write("orders", *texts("three"))[0].written.offset == 2


@pytest.mark.slow
def test_a_client_that_never_reads_is_cut_and_memory_is_bounded(bmq: Bmq, databus: Databus, client: Client) -> None:
    bad = WriteRequest(channel="orders", messages=[Message(partition=-1)] * 3_999 + texts("good")).SerializeToString()
    opened = []
    for _ in range(30):
        one = Frames(databus, NO_WINDOW)
        one.call("Write")
        one.request(bad, ends=True)
        opened.append(one)
        assert client.write("orders", *texts("modest"))[0].HasField("written")
    try:
        # For the others there was no room while these had theirs.
        until(lambda: cut(databus) >= 10, "those who have an answer to be cut", 100)
        until(lambda: client.write("orders", *texts("x") * 3_999)[0].HasField("written"), "room", not_yet=grpc.RpcError)
        assert peak_mib(databus) < 350
        assert "Traceback" not in databus.log.read_text()
    finally:
        for one in opened:
            one.close()


def cut(databus: Databus) -> int:
    return databus.log.read_text().count("its client takes no answer")


def test_slow_writers_hold_up_nobody(bmq: Bmq, databus: Databus, client: Client) -> None:
    opened = [Frames(databus) for _ in range(8)]
    try:
        for one in opened:
            for _ in range(8):
                one.call("Write")
                one.request(b"\x0a", of_bytes=4 * MEBIBYTE - 1)
        for n in range(10):
            # Where the processor is busy it may be taken for a slow one itself, and is told to try again.
            written = until(lambda n=n: client.write("orders", *texts(f"{n}")), "it is written", not_yet=grpc.RpcError)
            assert written[0].written.offset == n
        assert databus.post("orders", b"by HTTP")[0] == 200
    finally:
        for one in opened:
            one.close()


def test_streams_are_bounded_and_further_ones_are_told(bmq: Bmq, databus: Databus, client: Client) -> None:
    held = [Stream(client) for _ in range(32)]
    for one in held:
        one.send("orders", *texts("x"))
        assert next(one.responses).results[0].HasField("written")
    with pytest.raises(grpc.RpcError) as refused:
        list(client.stream(iter([WriteStreamRequest(channel="orders")]), timeout=30))
    assert refused.value.code() is StatusCode.RESOURCE_EXHAUSTED
    assert client.write("orders", *texts("x"))[0].HasField("written")
    for one in held:
        one.end()
    assert [list(one.responses) for one in held] == [[]] * 32
    [response] = client.stream(iter([WriteStreamRequest(channel="orders", messages=texts("x"))]), timeout=30)
    assert response.results[0].HasField("written")


def test_at_its_end_what_is_under_way_is_answered_and_nothing_more_is_taken(
    bmq: Bmq, databus: Databus, client: Client
) -> None:
    stream = Stream(client)
    stream.send("orders", *texts("one"))
    assert next(stream.responses).results[0].written.offset == 0
    ended = threading.Thread(target=databus.stop)
    ended.start()
    with pytest.raises(grpc.RpcError) as refused:
        for _ in stream.responses:
            pass
    assert (refused.value.code(), "ending" in refused.value.details()) == (StatusCode.UNAVAILABLE, True)
    ended.join(30)
    assert not ended.is_alive()
    assert client.refusal("orders", *texts("two")).code() is StatusCode.UNAVAILABLE
    databus.start()
    assert values(bmq, "orders", 1) == ["one"]


def test_without_the_cluster_durable_channels_say_so_and_others_accept(
    bmq: Bmq, databus: Databus, client: Client
) -> None:
    client.write("orders", *texts("before"))
    bmq.kill9()
    until(lambda: databus.value("bmq_databus_channel_takes_messages", channel="orders") == 0, "the cluster to be away")
    away = client.refusal("orders", *texts("x"))
    assert (away.code(), "not written" in away.details()) == (StatusCode.UNAVAILABLE, True)
    assert client.write("clicks", *texts("kept"))[0].HasField("accepted")
    databus.kill9()
    databus.start()
    bmq.start()
    assert values(bmq, "clicks-raw", 1) == ["kept"]


def test_an_address_that_is_in_use_is_told(bmq: Bmq, databus: Databus, client: Client, tmp_path: Path) -> None:
    other = Databus(bmq.servers, CHANNELS, tmp_path / "other", options=["--grpc-listen", databus.grpc_address])
    with pytest.raises(AssertionError, match="--grpc-listen"):
        other.start()
    assert other.stop() == 2


def test_connections_that_were_flooded_with_pings_keep_no_sidecar_from_its_end(
    bmq: Bmq, databus: Databus, client: Client
) -> None:
    client.write("orders", *texts("before"))
    over = threading.Event()

    def flood() -> None:
        connection = Frames(databus)
        threading.Thread(target=connection.rest, daemon=True).start()
        with suppress(OSError):
            while not over.is_set():
                connection.ping()

    floods = [threading.Thread(target=flood) for _ in range(4)]
    for one in floods:
        one.start()
    for number in range(20):
        client.write("orders", *texts(str(number)))
    over.set()
    for one in floods:
        one.join(WITHIN_S)
    assert databus.stop() == 0  # within the time that it has
