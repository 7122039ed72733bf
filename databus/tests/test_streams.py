"""A stream is answered in order while it lasts; what is unanswered is bounded, and whatever ends it, its last line says
so.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any

import pytest
from requests_under_test import Answer, Connection, incoming, sending
from tests.waiting import until_async

from bmq.fairness.turns import Turns
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import BadMessage
from bmq_databus.http import outgoing, streams
from bmq_databus.http.incoming import ClientGone, Incoming, Receive
from bmq_databus.http.streams import LARGE_LINES_MAX, Stream
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import failed, sent
from bmq_databus.producing.writing import Settle
from bmq_databus.requests.streams import UNANSWERED_BYTES_MAX
from bmq_databus.rules.lanes import Headers

ORDERS = Channel(name="orders", topic="orders")
END_OF_2 = {"end": {"status": 200, "written": 2, "refused": 0}}


class Writes:
    """What is handed over is settled by `settle_next`, or at once."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.channels = {"orders": ORDERS}
        self.turns = Turns()
        self.at_once = at_once
        self.values: list[bytes | None] = []
        self.settles: list[Callable[[], None]] = []

    def channel(self, name: str) -> Channel | None:
        return self.channels.get(name)

    async def hand_over(
        self,
        channel: Channel,
        news: list[NewMessage | BadMessage],
        settle: Settle,
        *,
        patience_s: float,
        request: Headers = (),
        waits: bool = False,
    ) -> None:
        for at, one in enumerate(news):
            if isinstance(one, BadMessage):
                settle(at, failed(one))
                continue
            offset = len(self.values)
            self.values.append(one.value)
            if self.at_once:
                settle(at, sent(0, offset))
            else:
                self.settles.append(lambda at=at, offset=offset: settle(at, sent(0, offset)))  # type: ignore[misc]


class Sender:
    """A client that sends what it is told to."""

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.taken = 0

    def send(self, part: bytes | None) -> None:
        """None: the end."""
        self._parts.put_nowait(part)

    async def receive(self) -> Mapping[str, Any]:
        part = await self._parts.get()
        self.taken += 1
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def stream_of(writes: Writes, request: Incoming, large_lines: asyncio.Semaphore | None = None) -> Stream:
    large_lines = asyncio.Semaphore(LARGE_LINES_MAX) if large_lines is None else large_lines
    return Stream(writes, ORDERS, request, large_lines=large_lines, patience_s=1)


async def answered(receive: Receive, writes: Writes | None = None, **headers: str) -> list[Any]:
    answer = Answer()
    await stream_of(writes or Writes(), incoming(receive, **headers)).run(answer.send)
    assert answer.is_whole
    return lines_of(answer)


def lines_of(answer: Answer) -> list[Any]:
    return [json.loads(line) for line in answer.body.splitlines()]


def line(text: str) -> bytes:
    return json.dumps({"text": text}).encode() + b"\n"


@in_a_loop
async def test_each_line_has_its_result_in_order_and_a_last_line_counts() -> None:
    parts = (b'{"text": "o', b'ne"}\nno json\n\n', line("two") + b'{"text": "three"}')
    found = await answered(sending(*parts))
    assert [one.get("offset", one.get("status")) for one in found[:-1]] == [0, 400, 1, 2]
    assert found[-1] == {"end": {"status": 200, "written": 3, "refused": 1}}


@in_a_loop
async def test_a_result_is_told_while_the_body_comes_and_in_order_though_outcomes_are_not() -> None:
    writes, sender, answer = Writes(at_once=False), Sender(), Answer()
    run = asyncio.ensure_future(stream_of(writes, incoming(sender.receive)).run(answer.send))
    await until_async(lambda: answer.status == 200, "the status, before anything came")
    sender.send(line("a") + line("b") + line("c"))
    await until_async(lambda: len(writes.settles) == 3, "three messages under way")
    writes.settles[1]()
    for _ in range(5):
        await asyncio.sleep(0)
    assert answer.body == b""
    writes.settles[0]()
    await until_async(lambda: len(lines_of(answer)) == 2, "two results")
    assert [one["offset"] for one in lines_of(answer)] == [0, 1]
    sender.send(None)
    writes.settles[2]()
    await run
    assert lines_of(answer)[-1]["end"]["written"] == 3


@in_a_loop
async def test_what_is_unanswered_is_bounded_where_the_cluster_is_slow_and_where_the_client_does_not_read() -> None:
    for slow in ("cluster", "client"):
        writes, sender, answer = Writes(at_once=slow == "client"), Sender(), Answer()
        if slow == "client":
            answer.reads.clear()
        run = asyncio.ensure_future(stream_of(writes, incoming(sender.receive)).run(answer.send))
        if slow == "client":
            answer.reads.set()
            await until_async(lambda answer=answer: answer.status, "the status")  # type: ignore[misc]
            answer.reads.clear()
        for _ in range(100):
            sender.send(line("x" * 100) * 100)
        before = -1
        while before != len(writes.values):
            before = len(writes.values)
            for _ in range(300):
                await asyncio.sleep(0)
        assert 500 < len(writes.values) <= UNANSWERED_BYTES_MAX // 512 + 1
        assert sender.taken < 20
        sender.send(None)
        answer.reads.set()
        writes.at_once = True
        for settle in writes.settles:
            settle()
        await run
        assert lines_of(answer)[-1]["end"]["written"] == 10_000


@in_a_loop
async def test_a_client_that_reads_no_results_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "TAKEN_WITHIN_S", 0.01)
    sender, answer, connection = Sender(), Answer(), Connection()
    request = incoming(sender.receive)
    request.connection = connection
    run = asyncio.ensure_future(stream_of(Writes(), request).run(answer.send))
    await until_async(lambda: answer.status, "the status")
    answer.reads.clear()
    sender.send(line("a"))
    with pytest.raises(ClientGone, match="took nothing of its answer"):
        await run
    assert connection.is_aborted


@in_a_loop
async def test_a_client_that_leaves_has_what_it_sent_whole_written_and_no_half_line() -> None:
    writes = Writes()
    await answered(sending(line("a") + b'{"text": "ha', None), writes)
    assert writes.values == [b"a"]


@in_a_loop
async def test_a_channel_that_is_turned_off_meanwhile_ends_the_stream_and_all_that_was_written_is_told() -> None:
    writes, sender, answer = Writes(), Sender(), Answer()
    run = asyncio.ensure_future(stream_of(writes, incoming(sender.receive)).run(answer.send))
    sender.send(line("a"))
    await until_async(lambda: answer.body, "a result")
    writes.channels = {"orders": Channel(name="orders", topic="orders", enabled=False)}
    sender.send(line("b"))
    sender.send(None)
    await run
    assert lines_of(answer)[1:] == [
        {"end": {"status": 403, "written": 1, "refused": 0, "error": "channel orders is turned off"}}
    ]
    assert writes.values == [b"a"]


@in_a_loop
async def test_an_end_of_the_sidecar_ends_a_stream_that_waits_for_its_client_with_what_is_under_way_answered() -> None:
    writes, sender, answer = Writes(at_once=False), Sender(), Answer()
    stream = stream_of(writes, incoming(sender.receive))
    run = asyncio.ensure_future(stream.run(answer.send))
    sender.send(line("a") + line("b"))
    await until_async(lambda: len(writes.settles) == 2, "two messages under way")
    stream.end()
    writes.settles[0]()
    writes.settles[1]()
    sender.send(None)
    await run
    end = lines_of(answer)[-1]["end"]
    assert (end["status"], end["written"], "is ending" in end["error"]) == (503, 2, True)


@in_a_loop
async def test_a_stream_of_which_nothing_comes_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "IDLE_S", 0.01)
    sender, answer = Sender(), Answer()
    run = asyncio.ensure_future(stream_of(Writes(), incoming(sender.receive)).run(answer.send))
    await until_async(lambda: answer.body, "the last line")
    sender.send(None)
    await run
    end = lines_of(answer)[-1]["end"]
    assert (end["status"], end["error"]) == (408, "no message came for 0.01 s")


@in_a_loop
async def test_empty_lines_are_no_messages_and_keep_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "IDLE_S", 0.1)
    answer, loop = Answer(), asyncio.get_running_loop()
    until_s = loop.time() + 10

    async def receive() -> Mapping[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"\n", "more_body": not answer.body and loop.time() < until_s}

    await stream_of(Writes(), incoming(receive)).run(answer.send)
    end = lines_of(answer)[-1]["end"]
    assert (end["status"], end["error"]) == (408, "no message came for 0.1 s")


@in_a_loop
async def test_a_stream_that_gives_way_says_so_in_its_last_line_and_is_quiet_once_all_is_answered() -> None:
    writes, sender, answer = Writes(at_once=False), Sender(), Answer()
    stream = stream_of(writes, incoming(sender.receive))
    run = asyncio.ensure_future(stream.run(answer.send))
    sender.send(line("a"))
    await until_async(lambda: len(writes.settles) == 1, "a message under way")
    await asyncio.sleep(0)
    assert (stream.quiet_s, stream.is_leaving) == (0, False)
    writes.settles[0]()
    await until_async(lambda: answer.body and stream.quiet_s > 0, "its result")
    stream.give_way()
    assert stream.is_leaving
    sender.send(None)
    await run
    end = lines_of(answer)[-1]["end"]
    assert (end["status"], end["written"], "others waited for this stream's place" in end["error"]) == (503, 1, True)


@in_a_loop
async def test_a_line_that_is_too_long_is_refused_and_the_next_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINE_BYTES_MAX", 100_000)
    found = await answered(sending(line("a"), b"x" * 90_000, b"x" * 90_000, b"\n" + line("b")))
    assert [one.get("status") for one in found[:-1]] == [200, 413, 200]
    assert found[-1]["end"] == {"status": 200, "written": 2, "refused": 1}


@in_a_loop
async def test_few_large_lines_are_read_at_a_time_and_each_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGE_LINE_WITHIN_S", 0.05)
    large_lines = asyncio.Semaphore(LARGE_LINES_MAX)
    half = b'{"text": "' + b"x" * 300_000
    senders = [Sender() for _ in range(LARGE_LINES_MAX)]
    answers = [Answer() for _ in senders]
    runs = [
        asyncio.ensure_future(stream_of(Writes(), incoming(sender.receive), large_lines).run(answer.send))
        for sender, answer in zip(senders, answers, strict=True)
    ]
    for sender in senders:
        sender.send(half)
    for answer in answers:
        await until_async(lambda answer=answer: answer.body, "the last line")  # type: ignore[misc]
        end = lines_of(answer)[-1]["end"]
        assert (end["status"], "did not come within" in end["error"]) == (408, True)
    for sender in senders:
        sender.send(None)
    await asyncio.gather(*runs)
    for _ in range(LARGE_LINES_MAX):
        await large_lines.acquire()
    refused = Answer()
    sender = Sender()
    sender.send(half)
    run = asyncio.ensure_future(stream_of(Writes(), incoming(sender.receive), large_lines).run(refused.send))
    await until_async(lambda: refused.body, "the last line")
    assert lines_of(refused)[-1]["end"]["status"] == 503
    sender.send(None)
    await run
    large_lines.release()
    found = await answered(sending(half, b'"}\n' + line("b")))
    assert found[-1] == END_OF_2


@in_a_loop
async def test_a_large_line_that_waits_for_its_turn_does_not_hold_up_an_end_of_the_sidecar() -> None:
    large_lines, sender, answer = asyncio.Semaphore(0), Sender(), Answer()
    stream = stream_of(Writes(), incoming(sender.receive), large_lines)
    run = asyncio.ensure_future(stream.run(answer.send))
    sender.send(line("a") + b"x" * 300_000)
    await until_async(lambda: large_lines.locked() and answer.body, "the line before it is answered")
    stream.end()
    sender.send(None)
    await run
    assert lines_of(answer)[-1]["end"]["status"] == 503
    assert lines_of(answer)[-1]["end"]["written"] == 1


@in_a_loop
async def test_a_bug_while_messages_are_handed_over_ends_the_stream_and_is_told() -> None:
    class Bug(Writes):
        async def hand_over(self, *_arguments: Any, **_options: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await answered(sending(line("a")), Bug())
