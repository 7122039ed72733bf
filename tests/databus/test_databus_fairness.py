"""Two applications of a pod, one of which sends all that it may: what the other one writes goes on meanwhile, memory is
bounded, and nothing that was acknowledged to either is lost.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from compat_server import Bmq
from databus_process import Databus
from test_databus import MEBIBYTE, values
from test_databus_http import STREAM, Raw
from tests.waiting import until

pytestmark = pytest.mark.measures

ATTACKERS = 3
TURN_S_MAX = 0.25
"""It is a tenth of this where nothing else runs; it was half a second to seventeen."""
ANSWER_S_MAX = 3.0
HEADERS = json.dumps({"text": "x", "headers": {f"{n:x}": "" for n in range(999)}}).encode() + b"\n"
LINES = {"content_type": "application/x-ndjson"}


def one_byte_chunks(client: Raw, channel: str) -> None:
    client.begin(channel, content_type="text/plain", transfer_encoding="chunked")
    client.send(b"1\r\nx\r\n" * 500_000 + b"0\r\n\r\n")
    client.until(b'"status":')


def stream_in_one_byte_chunks(client: Raw, channel: str) -> None:
    client.stream(channel)
    client.send(b"1\r\n{\r\n1\r\n}\r\n1\r\n\n\r\n" * 30_000 + b"0\r\n\r\n")
    client.until(b'"end"')


def ten_thousand_tiny_messages(client: Raw, channel: str) -> None:
    send_whole(client, channel, b'{"text":"x"}\n' * 10_000, **LINES)


def ten_thousand_in_an_array(client: Raw, channel: str) -> None:
    send_whole(client, channel, b"[" + b'{"text":"x"},' * 9_999 + b'{"text":"x"}]', content_type="application/json")


def as_many_headers_as_there_may_be(client: Raw, channel: str) -> None:
    send_whole(client, channel, HEADERS * 99, **LINES)


def more_headers_than_there_may_be(client: Raw, channel: str) -> None:
    send_whole(client, channel, HEADERS * 1_300, **LINES)


def send_whole(client: Raw, channel: str, body: bytes, **headers: str) -> None:
    client.begin(channel, content_length=str(len(body)), **headers)
    client.send(body)
    client.until(b"}")


@contextmanager
def attacked(databus: Databus, channel: str, attack: Callable[[Raw, str], None]) -> Iterator[None]:
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            with Raw(databus) as client:
                attack(client, channel)

    threads = [threading.Thread(target=go_on) for _ in range(ATTACKERS)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join(60)


class Modest:
    """Writes one message at a time by a connection that it keeps."""

    def __init__(self, databus: Databus) -> None:
        host, port = databus.address.rsplit(":", 1)
        self._connection = HTTPConnection(host, int(port), timeout=60)
        self.took_s: list[float] = []

    def write(self, channel: str, text: str) -> int:
        before = monotonic()
        headers = {"content-type": "text/plain"}
        self._connection.request("POST", f"/v1/channels/{channel}/messages", text.encode(), headers)
        answer = self._connection.getresponse()
        answer.read()
        self.took_s.append(monotonic() - before)
        return answer.status


def late_turns(databus: Databus) -> float:
    """How often the loop was later than it may be."""
    with urlopen(f"http://{databus.address}/metrics", timeout=60) as answer:
        found = re.findall(r'bmq_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', answer.read().decode())
    counts = {float(bound): float(count) for bound, count in found}
    return counts[float("inf")] - counts[TURN_S_MAX]


def peak_mib(databus: Databus) -> float:
    assert databus.process is not None
    status = Path(f"/proc/{databus.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


@pytest.mark.parametrize("channel", ["orders", "clicks"])
@pytest.mark.parametrize(
    "attack",
    [
        one_byte_chunks,
        stream_in_one_byte_chunks,
        ten_thousand_tiny_messages,
        ten_thousand_in_an_array,
        as_many_headers_as_there_may_be,
        more_headers_than_there_may_be,
    ],
    ids=lambda attack: attack.__name__,
)
def test_one_application_does_not_hold_up_another(
    bmq: Bmq, databus: Databus, channel: str, attack: Callable[[Raw, str], None]
) -> None:
    bmq.start()
    databus.start()
    modest = Modest(databus)
    assert (modest.write("orders", "modest -1"), modest.write("clicks", "modest -1")) == (200, 202)
    before = late_turns(databus)
    with attacked(databus, channel, attack):
        for n in range(40):
            assert (modest.write("orders", f"modest {n}"), modest.write("clicks", f"modest {n}")) == (200, 202)
    assert late_turns(databus) == before
    assert max(modest.took_s) < ANSWER_S_MAX
    wanted = [f"modest {n}" for n in range(-1, 40)]
    for name, topic in (("orders", "orders"), ("clicks", "clicks-raw")):
        written = databus.value("bmq_databus_messages_total", channel=name, status="200")
        written += databus.value("bmq_databus_messages_total", channel=name, status="202")
        there = values(bmq, topic, int(written))
        assert [text for text in there if text.startswith("modest")] == wanted
        assert len(there) == written


def test_bodies_that_trickle_leave_room_for_small_ones_and_for_those_of_another_channel(
    bmq: Bmq, databus: Databus
) -> None:
    bmq.start()
    databus.start()
    with ExitStack() as opened:
        size = 4 * MEBIBYTE
        for _ in range(16):
            client = opened.enter_context(Raw(databus))
            client.begin("orders", content_type="text/plain", content_length=str(size))
            client.send(bytes(size - 1))
        until(lambda: databus.post("orders", bytes(size))[0] == 503, "the channel has its part of the room")
        assert databus.post("orders", b"x" * 1_000)[0] == 200
        assert databus.post("clicks", bytes(MEBIBYTE))[0] == 202


def test_answers_that_nobody_takes_are_bounded_and_those_who_do_go_on(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    modest = Modest(databus)
    body = (b'{"%s":1}\n' % (b"x" * 300)) * 10_000  # each is told with its reason, which names the field
    with ExitStack() as opened:
        for n in range(100):
            client = opened.enter_context(Raw(databus))
            client.begin("orders", content_length=str(len(body)), **LINES)
            client.send(body)
            if n % 10 == 0:
                assert (modest.write("orders", "x"), modest.write("clicks", "x")) == (200, 202)
        until(lambda: sum(looked_at(databus)) >= 100, "all were looked at")
        assert modest.write("orders", "x") == 200
        assert peak_mib(databus) < 350


def looked_at(databus: Databus) -> list[float]:
    """Bodies of which each message was, and those for which there was no room."""
    whole = databus.value("bmq_databus_messages_total", channel="orders", status="400") / 10_000
    return [whole, databus.value("bmq_databus_messages_total", channel="orders", status="503")]


def test_a_stream_in_chunks_of_one_byte_is_answered_line_by_line(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    with Raw(databus) as client:
        client.begin("orders", **{"transfer-encoding": "chunked", **STREAM})
        for byte in b'{"text": "slow"}\n':
            client.chunk(bytes([byte]))
        client.until(b'{"status":200,"partition":0,"offset":0}')
        client.send(b"0\r\n\r\n")
        client.until(b'"written":1')
    assert values(bmq, "orders", 1) == ["slow"]
