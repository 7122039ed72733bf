"""What calls of a sidecar take of its memory while they wait, and leave of it when they are over."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest
from compat_server import Bmq
from databus_process import CHANNELS, Databus
from grpc import StatusCode
from grpc_calls import LISTEN, WITHIN_S, Client, frames, texts
from test_databus_fairness import Modest, late_turns, peak_mib
from tests.waiting import until

from bmq_databus.v1.databus_pb2 import Message, WriteRequest, WriteStreamRequest

pytestmark = pytest.mark.measures

LARGE = os.urandom(3_900_000)
WARM, MANY = 10, 60
LEFT_MIB_MAX = 24.0
"""Of requests that have 220 MiB together."""
BURST_MIB_MAX = 64.0
HELD_MIB_MAX = 24.0
HELD_UP_S_MAX = 0.5
CONNECTIONS, CALLS_OF_EACH = 25, 40
"""More calls than are let in."""
ENTRIES_MAX = 340
"""So many entries of two bytes are what a call's metadata may be."""
MORE_ENTRIES = 1_700
BAGGAGE = "a=" + "b" * 8_000


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path, options=LISTEN)
    bmq.start()
    sidecar.start()
    try:
        yield sidecar
    finally:
        sidecar.stop()


class Failing:
    """Calls with a large request of which each fails, by each of the ways there are."""

    def __init__(self, databus: Databus) -> None:
        channel = grpc.insecure_channel(databus.grpc_address, [("grpc.max_send_message_length", -1)])
        self._client = Client(databus, ("grpc.max_send_message_length", -1))
        self._check = channel.unary_unary("/grpc.health.v1.Health/Check")
        self._watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        self._reflect = channel.unary_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        large = Message(value=LARGE)
        whole = WriteRequest(channel="orders", messages=[large]).SerializeToString()
        stream, write = self._client.stream, self._client.raw
        first = WriteStreamRequest(channel="orders", messages=texts("x"))
        key = (("idempotency-key", "k" * 300),)
        self.ways: dict[str, tuple[StatusCode, Callable[[], object]]] = {
            "no channel": (StatusCode.NOT_FOUND, partial(self._write, "nowhere")),
            "a channel that is turned off": (StatusCode.PERMISSION_DENIED, partial(self._write, "closed")),
            "no request": (StatusCode.INVALID_ARGUMENT, partial(write, b"\x0b" + LARGE, timeout=WITHIN_S)),
            "a message that its topic does not take": (StatusCode.INVALID_ARGUMENT, partial(self._write, "orders")),
            "no key": (StatusCode.INVALID_ARGUMENT, partial(write, whole, timeout=WITHIN_S, metadata=key)),
            "more than a request has": (StatusCode.RESOURCE_EXHAUSTED, partial(write, whole * 2, timeout=WITHIN_S)),
            "a stream to no channel": (
                StatusCode.NOT_FOUND,
                lambda: list(stream(iter([WriteStreamRequest(channel="nowhere", messages=[large])]), timeout=WITHIN_S)),
            ),
            "a stream that goes on to another channel": (
                StatusCode.INVALID_ARGUMENT,
                lambda: list(
                    stream(iter([first, WriteStreamRequest(channel="clicks", messages=[large])]), timeout=WITHIN_S)
                ),
            ),
            "a question of health": (StatusCode.INVALID_ARGUMENT, partial(self._check, LARGE, timeout=WITHIN_S)),
            "a watch of health": (
                StatusCode.INVALID_ARGUMENT,
                lambda: list(self._watch(LARGE, timeout=WITHIN_S)),
            ),
            "a question of what is served": (
                StatusCode.INVALID_ARGUMENT,
                lambda: list(self._reflect(LARGE, timeout=WITHIN_S)),
            ),
        }

    def fail(self, way: str, times: int) -> None:
        code, call = self.ways[way]
        for _ in range(times):
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is code, way

    def _write(self, channel: str) -> object:
        request = WriteRequest(channel=channel, messages=[Message(value=LARGE)])
        return self._client.call(request, timeout=WITHIN_S)


def resident_mib(databus: Databus) -> float:
    assert databus.process is not None
    status = Path(f"/proc/{databus.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def test_calls_that_fail_leave_nothing_of_their_requests_in_memory(databus: Databus) -> None:
    failing, left = Failing(databus), {}
    for way in failing.ways:
        failing.fail(way, WARM)
        before = resident_mib(databus)
        failing.fail(way, MANY)
        left[way] = round(resident_mib(databus) - before)
    assert {way: mib for way, mib in left.items() if mib > LEFT_MIB_MAX} == {}
    assert "Traceback" not in databus.log.read_text()


@pytest.mark.parametrize("entries", [ENTRIES_MAX, MORE_ENTRIES])
def test_as_many_calls_as_there_may_be_with_much_metadata_take_little_and_hold_up_nobody(
    databus: Databus, entries: int
) -> None:
    modest = Modest(databus)
    with Client(databus) as client, ExitStack() as opened:
        assert client.write("orders", *texts("before"))[0].HasField("written")
        assert modest.write("orders", "before") == 200
        late, before = late_turns(databus), peak_mib(databus)
        connections = [opened.enter_context(frames(databus)) for _ in range(CONNECTIONS)]
        for one in connections:
            one.calls("Write", CALLS_OF_EACH, entries=entries)
        over = [threading.Thread(target=partial(one.answered, CALLS_OF_EACH)) for one in connections]
        for thread in over:
            thread.start()
        while any(thread.is_alive() for thread in over):
            assert modest.write("orders", "x") == 200
        assert peak_mib(databus) - before < BURST_MIB_MAX
        assert late_turns(databus) == late
        assert max(modest.took_s) < HELD_UP_S_MAX
        assert client.write("orders", *texts("after"))[0].HasField("written")


def test_metadata_has_room_for_a_trace_and_a_key_and_little_more(databus: Databus) -> None:
    request = WriteRequest(channel="orders", messages=texts("x"))
    with Client(databus) as client:
        named = [("baggage", BAGGAGE), ("idempotency-key", "k" * 255), ("authorization", f"Bearer {'t' * 2_000}")]
        assert client.call(request, timeout=WITHIN_S, metadata=named).results[0].HasField("written")
        many = [("x", "y")] * ENTRIES_MAX
        assert client.call(request, timeout=WITHIN_S, metadata=many).results[0].HasField("written")
        for more in (many + [("x", "y")] * 40, [*named, ("more", "m" * 4_000)]):
            with pytest.raises(grpc.RpcError) as refused:
                client.call(request, timeout=WITHIN_S, metadata=more)
            assert refused.value.code() is StatusCode.RESOURCE_EXHAUSTED


def test_what_comes_before_what_is_set_is_acknowledged_is_held_and_answered_behind_that(databus: Databus) -> None:
    with frames(databus, acknowledges=False) as opened, Client(databus) as client:
        opened.calls("Write", 1, entries=MORE_ENTRIES)
        assert client.write("orders", *texts("meanwhile"))[0].HasField("written")
        opened.acknowledge()
        assert b"grpc-status\x018" in opened.answered(1)


@pytest.mark.parametrize(("calls", "entries"), [(1, 15_000), (1, 480_000), (39, 10_000)])
def test_calls_whose_clients_acknowledge_nothing_take_no_memory_and_hold_up_nobody(
    databus: Databus, calls: int, entries: int
) -> None:
    """An entry is a byte on the wire, and some 200 in the library."""
    modest = Modest(databus)
    with Client(databus) as client, ExitStack() as opened:
        assert client.write("orders", *texts("before"))[0].HasField("written")
        assert modest.write("orders", "before") == 200
        late, before = late_turns(databus), peak_mib(databus)
        for _ in range(CONNECTIONS):
            with suppress(ConnectionError):
                opened.enter_context(frames(databus, acknowledges=False)).calls("Write", calls, entries=entries)
            assert modest.write("orders", "x") == 200
        assert client.write("orders", *texts("after"))[0].HasField("written")
        assert peak_mib(databus) - before < HELD_MIB_MAX
        assert late_turns(databus) == late
        assert max(modest.took_s) < HELD_UP_S_MAX


def test_calls_beyond_those_that_are_let_in_are_told_and_others_go_on_afterwards(databus: Databus) -> None:
    with ExitStack() as opened, Client(databus) as client:
        for _ in range(CONNECTIONS):
            one = opened.enter_context(frames(databus))
            with suppress(ConnectionError):
                one.calls("Write", CALLS_OF_EACH, entries=ENTRIES_MAX)

        def written() -> bool:
            return client.write("orders", *texts("x"))[0].HasField("written")

        until(written, "a call to be let in", not_yet=grpc.RpcError)
    assert "Traceback" not in databus.log.read_text()
