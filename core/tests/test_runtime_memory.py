"""Memory that a process does not use any more goes back to the system."""

import asyncio
import gc
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.waiting import until_async

from bmq.runtime.memory import GROWN_BYTES, find_trim, give_back_memory, is_due, resident

FREED_BYTES = 96 << 20
PIECE_BYTES = 4_000


def scattered() -> list[bytes]:
    """Leaves so much free below what stays: pieces of which every 50th is kept."""
    pieces = [bytes([number % 251]) * PIECE_BYTES for number in range(FREED_BYTES // PIECE_BYTES)]
    return pieces[::50]


def test_free_memory_below_what_is_used_goes_back() -> None:
    trim = find_trim()
    assert trim is not None
    kept = scattered()
    before = resident()
    assert before is not None
    trim()
    after = resident()
    assert after is not None
    assert before - after > FREED_BYTES // 2
    assert len({len(piece) for piece in kept}) == 1


def test_a_quiet_process_gives_back_what_it_has_grown_by() -> None:
    trim = find_trim()
    assert trim is not None
    trim()  # what other tests left free would be used again, and nothing grow

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(give_back_memory(look_s=0.05))
        await asyncio.sleep(0)
        kept = scattered()
        grown = resident()
        assert grown is not None
        await until_async(
            resident, "half of it to be given back", 10, holds=lambda now: grown - now >= FREED_BYTES // 2, every_s=0.01
        )
        assert kept
        task.cancel()

    asyncio.run(main())


class Ring:
    """Holds itself, and what it was made with."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.ring = self


def test_a_quiet_process_gives_back_what_old_garbage_holds() -> None:
    """In one of its own: one that ran other tests has very many objects, and they may still be at work."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(give_back_old_garbage).result(60)


def give_back_old_garbage() -> None:
    trim = find_trim()
    assert trim is not None
    trim()

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(give_back_memory(look_s=0.05))
        await asyncio.sleep(0)
        ring = Ring([bytes([number]) * (1 << 20) for number in range(FREED_BYTES >> 20)])
        gc.collect()  # it is of the oldest generation from now on
        grown = resident()
        assert grown is not None
        del ring
        await until_async(
            resident, "half of it to be given back", 10, holds=lambda now: grown - now >= FREED_BYTES // 2, every_s=0.01
        )
        task.cancel()

    asyncio.run(main())


def test_only_a_quiet_process_that_has_grown_gives_back() -> None:
    assert is_due(resident_bytes=100 + GROWN_BYTES, least_bytes=100, busy_share=0.1)
    assert not is_due(resident_bytes=99 + GROWN_BYTES, least_bytes=100, busy_share=0.1)
    assert not is_due(resident_bytes=100 + GROWN_BYTES, least_bytes=100, busy_share=0.5)


def arenas_of_threads(*, first: str) -> int:
    """How many arenas a process has after eight threads have allocated at the same time."""
    code = f"""
import ctypes, threading
from bmq.runtime.memory import share_arenas
{first}
together = threading.Barrier(8)
def allocate():
    together.wait()
    kept = [bytearray(3_000) for _ in range(1_000)]
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
ctypes.CDLL(None).malloc_stats()
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stderr
    return sum(line.startswith("Arena ") for line in told.splitlines())


def test_threads_share_few_arenas_where_that_is_wanted() -> None:
    assert arenas_of_threads(first="") > 2
    assert arenas_of_threads(first="assert share_arenas(2)") == 2
