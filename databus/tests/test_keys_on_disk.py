"""Keys of requests on an accepted channel outlive the process, wherever it dies, and their files have a bound."""

import asyncio
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from test_channel_spool import AT_MS, Clock, in_a_loop, killed, message, opened, read_all, settled
from tests.waiting import until_async

from bmq_databus.channels.channel import Channel
from bmq_databus.errors import SpoolFailed
from bmq_databus.producing.writing import Writing
from bmq_databus.requests.idempotency import Answer, Idempotency, KeyReused
from bmq_databus.requests.room import TooMuchAtOnce
from bmq_databus.requests.written import Requests
from bmq_databus.spool import keys
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import SENT, Once
from bmq_databus.spool.keys import KeyFiles, kept_bytes

CLICKS = Channel(name="clicks", topic="clicks", acknowledgement="accepted", idempotency_window_s=60.0)


def once(key: str, *, until_ms: int = AT_MS + 60_000, body: bytes = b'{"status":202}') -> Once:
    return Once(key, key.encode() * 4, until_ms, 202, body)


async def accept(spool: ChannelSpool, *entries: Once) -> None:
    for one in entries:
        await (await spool.enter([message(one.key), message(f"{one.key}+")], patience_s=1, once=one))


@in_a_loop
async def test_keys_are_there_after_a_kill_also_where_their_messages_are_sent_and_gone(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await accept(first, once("a"), once("b"))
    await first.accept([message("without")], patience_s=1)
    reads = await read_all(first, 5)
    first.settle([one.number for one in reads], SENT)
    await settled(first)
    await first.expire()
    assert first.size_bytes == 0
    await accept(first, once("c"))
    await killed(first)
    second = await opened(tmp_path)
    assert await second.read_keys() == [once("a"), once("b"), once("c")]
    assert await second.read_keys() == []
    await second.close()


@in_a_loop
async def test_a_process_that_dies_between_a_message_and_its_key_leaves_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = await opened(tmp_path / "lives")
    await accept(spool, once("before"))
    real = KeyFiles.append
    died: list[Path] = []

    def append(self: KeyFiles, entries: list[Once]) -> None:
        died.append(tmp_path / f"died{len(died)}")
        shutil.copytree(tmp_path / "lives", died[-1])
        real(self, entries)

    with monkeypatch.context() as patched:
        patched.setattr(KeyFiles, "append", append)
        await accept(spool, once("a"))
    await killed(spool)
    [folder] = died
    for _ in range(2):  # the second time they are in the file
        found = await opened(folder)
        assert await found.read_keys() == [once("before"), once("a")]
        assert found.waiting == 4
        await accept(found)
        await killed(found)
    assert len(KeyFiles(folder).read(0)) == 2


@in_a_loop
async def test_what_the_disk_does_not_take_is_no_answer_and_a_key_file_that_fails_holds_up_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = await opened(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(keys, "sync_file", full)
        await accept(spool, once("a"))
    with monkeypatch.context() as patched:
        patched.setattr("bmq_databus.spool.segments.sync_file", full)
        with pytest.raises(SpoolFailed):
            await accept(spool, once("b"))
    await accept(spool, once("c"))
    await killed(spool)
    found = await opened(tmp_path)
    assert await found.read_keys() == [once("a"), once("c")]
    await found.close()


def test_torn_and_damaged_entries_are_none_and_the_next_ones_are_read(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path)
    assert files.read(0) == []
    files.append([once("a"), once("b")])
    files.close()
    whole = (tmp_path / "keys").read_bytes()
    for torn in (whole[:-1], whole + b"\x07", whole[:-3] + b"xyz", whole + b"\xff" * 100):
        (tmp_path / "keys").write_bytes(torn)
        left = [once("a")] if torn[: len(whole)] != whole else [once("a"), once("b")]
        again = KeyFiles(tmp_path)
        again.recover(0)
        assert again.read(0) == left
        again.append([once("c")])
        again.close()
        assert KeyFiles(tmp_path).read(0) == [*left, once("c")]


def test_the_files_have_a_bound_and_the_newest_stay(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, bytes_max=2_000)
    for n in range(200):
        files.append([once(f"k{n:03}", until_ms=n)])
    files.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("keys*")) <= 4_000
    found = [one.key for one in KeyFiles(tmp_path, bytes_max=2_000).read(0)]
    assert 20 < len(found) < 100
    assert found == [f"k{n:03}" for n in range(200 - len(found), 200)]
    assert [one.key for one in KeyFiles(tmp_path).read(0, kept_bytes_max=3 * kept_bytes("k000", once("k").body))] == [
        "k197",
        "k198",
        "k199",
    ]
    KeyFiles(tmp_path).recover(198)
    assert [one.key for one in KeyFiles(tmp_path).read(198)] == ["k199"]
    assert not (tmp_path / "keys.1").exists(), "whose time is over"


def test_a_start_holds_no_more_than_one_of_the_entries_whatever_the_files_have(tmp_path: Path) -> None:
    files, body = KeyFiles(tmp_path), bytes(200_000)
    for n in range(40):
        files.append([once(f"k{n:03}", body=body)])
    files.close()
    tracemalloc.start()
    try:
        KeyFiles(tmp_path).recover(0)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
        tracemalloc.reset_peak()
        kept = KeyFiles(tmp_path).read(0, kept_bytes_max=3 * kept_bytes("k000", body))
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
    finally:
        tracemalloc.stop()
    assert [one.key for one in kept] == ["k037", "k038", "k039"]


@in_a_loop
async def test_answers_of_an_earlier_process_count_for_what_is_left_of_their_window(tmp_path: Path) -> None:
    now_s = 0.0
    idempotency = Idempotency(lambda: now_s)
    idempotency.remember(CLICKS, [once("a"), once("b", until_ms=AT_MS + 10**9)], now_ms=AT_MS + 50_000)
    assert idempotency.kept(CLICKS, "a", b"aaaa") == Answer(202, b'{"status":202}')
    with pytest.raises(KeyReused):
        idempotency.kept(CLICKS, "a", b"bbbb")
    now_s = 11.0
    assert idempotency.kept(CLICKS, "a", b"aaaa") is None
    now_s = 59.0
    assert idempotency.kept(CLICKS, "b", b"bbbb") is not None
    now_s = 61.0
    assert idempotency.kept(CLICKS, "b", b"bbbb") is None, "a clock that was put back makes no window longer"
    spool = await opened(tmp_path, Clock())
    await accept(spool, once("over", until_ms=AT_MS - 1), once("c"))
    await killed(spool)
    later = await opened(tmp_path, Clock())
    assert [one.key for one in await later.read_keys()] == ["c"]
    await later.close()


@in_a_loop
async def test_keys_that_were_read_are_known_though_the_request_that_asked_for_them_is_given_up(tmp_path: Path) -> None:
    """A channel that writes to two clusters has two spools: what the first one has told is told once."""
    gate = asyncio.Event()

    class Reading:
        def now_ms(self) -> int:
            return AT_MS

        async def read_keys(self, _: Channel, told: Callable[[list[Once]], None]) -> None:
            told([once("a")])
            await gate.wait()

    requests = Requests(cast(Writing, Reading()))
    asking = asyncio.ensure_future(requests._recall(CLICKS))
    await until_async(requests._recalling.locked, "the first one to read")
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert requests._idempotency.kept(CLICKS, "a", b"aaaa") == Answer(202, b'{"status":202}')
    gate.set()
    await requests._recall(CLICKS)


@in_a_loop
async def test_keys_that_cannot_be_read_for_now_are_read_later_and_nothing_is_taken_for_new_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await opened(tmp_path)
    await accept(first, once("a"))
    await killed(first)
    spool = await opened(tmp_path)

    class Reading:
        def now_ms(self) -> int:
            return AT_MS

        async def read_keys(self, _: Channel, told: Callable[[list[Once]], None]) -> None:
            told(await spool.read_keys())

    def no_more_files(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    requests = Requests(cast(Writing, Reading()))
    with monkeypatch.context() as patched:
        patched.setattr(KeyFiles, "read", no_more_files)
        for _ in range(2):
            with pytest.raises(TooMuchAtOnce, match="Too many open files"):
                await requests._recall(CLICKS)
    await requests._recall(CLICKS)
    assert requests._idempotency.kept(CLICKS, "a", b"aaaa") is not None
    await spool.close()
