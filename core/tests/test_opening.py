"""Batches are opened few at a time, by turns of those who ask; who gives up asks for nothing."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.waiting import until_async

from bmq.errors import BatchTooLarge, CorruptBatch, MostlyEmpty
from bmq.fairness.opening import (
    ORDINARY_AT_ONCE,
    ORDINARY_BYTES_MAX,
    ORDINARY_COMPRESSED_BYTES_MAX,
    ORDINARY_RECORDS_MAX,
    Opener,
)
from bmq.wire.batches import BatchHeader, Record, build_batch, read_header
from bmq.wire.compression import Codec
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX

BATCH = build_batch([Record(0, 1_000, None, b"value")])
HEADER = read_header(BATCH)
LARGE = HEADER._replace(record_count=ORDINARY_RECORDS_MAX + 1)
NEVER_ENDS = """
import asyncio
import threading

from bmq.fairness.opening import Opener
from bmq.wire.batches import Record, build_batch, read_header

batch = build_batch([Record(0, 1_000, None, b"value")])
begun = asyncio.Event()


async def main():
    loop = asyncio.get_running_loop()

    def look(batch, header, /, *, decompressed_bytes_max):
        loop.call_soon_threadsafe(begun.set)
        threading.Event().wait()

    looking = asyncio.create_task(Opener().look(look, batch, read_header(batch), party="a"))
    await begun.wait()
    print("begun", flush=True)


asyncio.run(main())
"""
"""A process that ends while a batch is being opened for ever."""
COMPRESSED = HEADER._replace(attributes=HEADER.attributes | Codec.GZIP)


class Looks:
    """Each says who looked, when it began, and waits until it may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._may_end = threading.Semaphore(0)

    def of(self, opener: Opener, who: str, header: BatchHeader = HEADER, *, sender: int = 0) -> "asyncio.Task[None]":
        def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> None:
            self.begun.append(who)
            assert self._may_end.acquire(timeout=30)

        async def run(looking: Awaitable[None]) -> None:
            await looking

        return asyncio.create_task(run(opener.look(look, BATCH, header, party=who, sender=sender)))

    async def until_begun(self, count: int) -> None:
        await until_async(lambda: len(self.begun) >= count, f"{count} to have begun")

    def end(self, count: int) -> None:
        self._may_end.release(count)


@pytest.mark.parametrize(("header", "at_once"), [(HEADER, ORDINARY_AT_ONCE), (LARGE, 1)], ids=["ordinary", "large"])
def test_nobody_waits_behind_all_that_another_one_has_sent(header: BatchHeader, at_once: int) -> None:
    async def main() -> None:
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, who, header) for who in ["greedy"] * 50 + ["modest", "other"]]
        await looks.until_begun(at_once)
        looks.end(3)
        await looks.until_begun(at_once + 3)
        assert set(looks.begun[:at_once]) == {"greedy"}
        assert sorted(looks.begun[at_once:]) == ["greedy", "modest", "other"]
        looks.end(len(tasks))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_who_comes_with_many_senders_has_one_turn_as_everybody() -> None:
    async def main() -> None:
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, "greedy", sender=number) for number in range(200)]
        await looks.until_begun(ORDINARY_AT_ONCE)
        tasks.append(looks.of(opener, "modest"))
        for _ in range(5):
            await asyncio.sleep(0)
        looks.end(2)
        await looks.until_begun(ORDINARY_AT_ONCE + 2)
        assert "modest" in looks.begun
        looks.end(len(tasks))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_batch_of_many_records_never_holds_up_an_ordinary_one() -> None:
    async def main() -> None:
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, "greedy", LARGE) for _ in range(10)]
        await looks.until_begun(1)
        tasks.append(looks.of(opener, "greedy"))
        await looks.until_begun(2)
        looks.end(len(tasks))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_who_gives_up_asks_for_nothing_and_what_has_begun_counts_until_it_is_over() -> None:
    async def main() -> None:
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, "greedy") for _ in range(10)]
        await looks.until_begun(ORDINARY_AT_ONCE)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True)
        )
        later = looks.of(opener, "later")
        for _ in range(10):
            await asyncio.sleep(0)
        assert looks.begun == ["greedy"] * ORDINARY_AT_ONCE
        looks.end(ORDINARY_AT_ONCE)
        await looks.until_begun(ORDINARY_AT_ONCE + 1)
        looks.end(1)
        await later
        assert looks.begun[-1] == "later"

    asyncio.run(main())


def test_an_error_holds_nothing_once_it_was_told() -> None:
    """What was opened is as large as a batch may become: it must not wait for the garbage collector."""

    class Opened:
        pass

    opened: list[weakref.ref[Opened]] = []

    def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> None:
        section = Opened()
        opened.append(weakref.ref(section))
        raise CorruptBatch("no reader could open it")

    async def main() -> None:
        opener = Opener()
        for header in (HEADER, LARGE):
            with pytest.raises(CorruptBatch):
                await asyncio.create_task(opener.look(look, BATCH, header, party="a"))

    gc.disable()
    try:
        asyncio.run(main())
        assert [one() for one in opened] == [None, None]
    finally:
        gc.enable()


def test_what_holds_nothing_is_not_opened_once_more_where_large_ones_are() -> None:
    tried: list[int] = []

    def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> None:
        tried.append(decompressed_bytes_max)
        raise MostlyEmpty("holds nothing")

    with pytest.raises(MostlyEmpty):
        asyncio.run(Opener().look(look, BATCH, HEADER, party="a"))
    assert tried == [ORDINARY_BYTES_MAX]


@pytest.mark.parametrize(
    ("header", "size", "bytes_max"),
    [
        (COMPRESSED, ORDINARY_COMPRESSED_BYTES_MAX, ORDINARY_BYTES_MAX),
        (COMPRESSED, ORDINARY_COMPRESSED_BYTES_MAX + 1, DECOMPRESSED_BYTES_MAX),
        (HEADER, ORDINARY_COMPRESSED_BYTES_MAX + 1, ORDINARY_BYTES_MAX),
    ],
)
def test_what_takes_long_to_decompress_has_no_ordinary_place(header: BatchHeader, size: int, bytes_max: int) -> None:
    def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> int:
        return decompressed_bytes_max

    assert asyncio.run(Opener().look(look, bytes(size), header, party="a")) == bytes_max


def test_what_is_too_large_for_an_ordinary_place_is_opened_in_the_other() -> None:
    async def main() -> None:
        tried: list[int] = []

        def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> str:
            tried.append(decompressed_bytes_max)
            if decompressed_bytes_max <= ORDINARY_BYTES_MAX:
                raise BatchTooLarge("too large")
            return "found"

        opener = Opener()
        for _ in range(5):
            assert await opener.look(look, BATCH, HEADER, party="a") == "found"
        assert len(tried) == 10

    asyncio.run(main())


def test_who_has_a_batch_opened_waits_for_the_next_behind_who_has_none() -> None:
    async def main() -> None:
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, "greedy", sender=number) for number in range(200)]
        await looks.until_begun(ORDINARY_AT_ONCE)
        tasks.append(looks.of(opener, "modest"))
        await asyncio.sleep(0)
        looks.end(1)
        await looks.until_begun(ORDINARY_AT_ONCE + 1)
        assert looks.begun[ORDINARY_AT_ONCE:] == ["modest"], "it waited for one batch"
        looks.end(len(tasks))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_what_others_do_in_threads_does_not_wait_for_a_batch_that_is_opened() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        looks, opener = Looks(), Opener()
        tasks = [looks.of(opener, "a"), looks.of(opener, "b"), looks.of(opener, "c", LARGE)]
        await looks.until_begun(3)
        assert await asyncio.wait_for(loop.run_in_executor(None, lambda: 7), 10) == 7
        looks.end(len(tasks))
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_process_ends_while_a_batch_is_being_opened() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER_ENDS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\n", "")


def test_threads_that_opened_batches_end_with_whoever_opened_them() -> None:
    threads: list[threading.Thread] = []

    def look(batch: object, header: BatchHeader, /, *, decompressed_bytes_max: int) -> None:
        threads.append(threading.current_thread())

    async def main() -> None:
        opener = Opener()
        for _ in range(3):
            await opener.look(look, BATCH, HEADER, party="a")

    asyncio.run(main())
    assert len(threads) == 3
    for thread in set(threads):
        thread.join(30)
        assert not thread.is_alive()
