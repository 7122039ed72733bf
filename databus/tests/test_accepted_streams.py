"""A stream to a channel of `accepted`: several parts are on their way to the disk, and what is told of each is so."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from requests_under_test import Answer, incoming
from test_channel_spool import message
from test_streams import Sender, in_a_loop, line, lines_of
from tests.waiting import until_async

from bmq.runtime.system import SystemClock, SystemRng
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import SpoolFailed
from bmq_databus.http.streams import Stream
from bmq_databus.producing.settings import cluster_settings
from bmq_databus.producing.writing import Writing
from bmq_databus.requests.streams import UNANSWERED_BYTES_MAX
from bmq_databus.spool import segments
from bmq_databus.spool.channel_spool import PROBE, ChannelSpool, SpoolLimits
from bmq_databus.spool.reading import Reading
from bmq_databus.spool.undone import undone_in

DEFAULT_LIMITS = SpoolLimits()


@asynccontextmanager
async def streaming(
    folder: Path, limits: SpoolLimits = DEFAULT_LIMITS
) -> AsyncIterator[tuple[ChannelSpool, Stream, Sender]]:
    """Over a spool whose cluster is not there."""
    clicks = Channel(name="clicks", topic="clicks", acknowledgement="accepted", spool=limits)
    writing = Writing({"clicks": clicks}, spool_folder=folder, clock=SystemClock(), rng=SystemRng())
    await writing.start(cluster_settings("127.0.0.1:1"), delivery_ms=1_000)
    sender = Sender()
    stream = Stream(writing, clicks, incoming(sender.receive), large_lines=asyncio.Semaphore(1), patience_s=0.05)
    try:
        yield writing.spools["clicks"], stream, sender
    finally:
        writing.give_up()
        await writing.close(patience_s=0)


def values_in(folder: Path) -> list[str]:
    """What a sidecar finds that starts there now."""
    found, _ = undone_in(folder)
    reading = Reading(begin=lambda *_: None, lose=lambda lost: pytest.fail(str(lost)))
    values: list[str] = []
    while some := reading.some(found):
        values += [(one.message.value or b"").decode() for one in some]
    reading.close()
    return values


class Disk:
    """Whose syncs wait, or fail, as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes = threading.Event()
        self.goes.set()
        self.fails: Callable[[], bool] = lambda: False
        real = segments.sync_file

        def sync(fd: int) -> None:
            assert self.goes.wait(30)
            if self.fails():
                raise OSError(errno.EIO, "it broke")
            real(fd)

        monkeypatch.setattr(segments, "sync_file", sync)


@in_a_loop
async def test_parts_go_on_while_the_disk_syncs_one_and_none_is_told_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with streaming(tmp_path) as (spool, stream, sender):
        answer = Answer()
        run = asyncio.ensure_future(stream.run(answer.send))
        sender.send(line("first"))
        await until_async(lambda: answer.body, "the first result")
        told = answer.body
        disk.goes.clear()
        for n in range(5):
            sender.send(line(f"m{n}"))
        await until_async(lambda: len(spool._entering) >= 4, "parts that wait behind the one that is synced")
        assert answer.body == told
        for n in range(5, 5_000):
            sender.send(line(f"m{n}" + "x" * 1_000))
        before = -1
        while before != sender.taken:
            before = sender.taken
            for _ in range(100):
                await asyncio.sleep(0)
        assert spool._entering_bytes <= UNANSWERED_BYTES_MAX
        disk.goes.set()
        sender.send(None)
        await run
        assert [one.get("status") for one in lines_of(answer)[:-1]] == [202] * 5_001
    assert [value.rstrip("x") for value in values_in(tmp_path / "clicks")] == [
        "first",
        *(f"m{n}" for n in range(5_000)),
    ]


@in_a_loop
async def test_what_the_disk_did_not_take_in_the_middle_is_told_so_and_the_rest_is_there_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with streaming(tmp_path) as (spool, stream, sender):
        answer = Answer()
        run = asyncio.ensure_future(stream.run(answer.send))
        sent: list[str] = []

        async def send(count: int) -> None:
            for _ in range(count):
                sent.append(f"m{len(sent)}")
                sender.send(line(sent[-1]))
            await until_async(lambda: answer.body.count(b"\n") == len(sent), "all results")

        await send(20)
        disk.fails = lambda: True
        await send(20)
        disk.fails = lambda: False
        await send(20)
        sender.send(None)
        await run
        told = [one["status"] for one in lines_of(answer)[:-1]]
        assert told == [202] * 20 + [507] * 20 + [202] * 20
        assert spool.trouble_now == ""
        disk.fails = lambda: True
        with pytest.raises(SpoolFailed):
            await spool.accept([message("lost")], patience_s=1)
        assert "its spool takes nothing" in spool.trouble_now
        disk.fails = lambda: False
        await spool.expire()
        assert spool.trouble_now == "", "though nobody wrote meanwhile"
        assert not (tmp_path / "clicks" / PROBE).exists()
        assert lines_of(answer)[-1]["end"] == {"status": 200, "written": 40, "refused": 20}
    assert values_in(tmp_path / "clicks") == sent[:20] + sent[40:]


@pytest.mark.parametrize("when_full", ["reject", "block"])
@in_a_loop
async def test_what_a_full_spool_has_no_room_for_is_told_so_and_nothing_else(tmp_path: Path, when_full: Any) -> None:
    limits = SpoolLimits(bytes_max=200_000, segment_bytes=20_000, when_full=when_full)
    async with streaming(tmp_path, limits) as (spool, stream, sender):
        answer = Answer()
        run = asyncio.ensure_future(stream.run(answer.send))
        for n in range(300):
            sender.send(line(f"m{n}" + "x" * 1_000))
        for _ in range(3):
            sender.send(line("y" * 100_000))
        sender.send(None)
        await run
        told = [one["status"] for one in lines_of(answer)[:-1]]
        assert set(told) == {202, 507}
        assert spool.size_bytes <= 200_000 + 1_000  # heads of segments and frames
        assert "messages wait for the cluster" in spool.trouble_now
        spool.bound(SpoolLimits(bytes_max=2_000_000))
        assert spool.trouble_now == "", "there is room again"
    accepted = [f"m{n}" for n, status in enumerate(told[:300]) if status == 202]
    assert [value.rstrip("x") for value in values_in(tmp_path / "clicks")][: len(accepted)] == accepted


@in_a_loop
async def test_what_came_whole_of_a_client_that_left_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with streaming(tmp_path) as (spool, stream, _sender):
        parts: list[bytes | None] = [line("a"), line("b"), line("c") + b'{"text": "ha', None]

        async def receive() -> dict[str, Any]:
            part = parts.pop(0)
            if part is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": part, "more_body": True}

        stream._incoming._receive = receive
        disk.goes.clear()
        run = asyncio.ensure_future(stream.run(Answer().send))
        await until_async(lambda: not parts, "the client to leave")
        disk.goes.set()
        await run
        assert spool.waiting == 3
    assert values_in(tmp_path / "clicks") == ["a", "b", "c"]
