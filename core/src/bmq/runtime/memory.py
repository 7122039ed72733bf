"""Gives memory that is free back to the system: glibc keeps what lies below anything that is still used, for ever.

After a heavy hour a process had 434 MB, of which 174 MB were free. Giving them back costs milliseconds and page faults
when they are needed again, so it is done in a thread, while the process has little to do, and only where there is
something to give. Garbage is collected before, where that takes little: that of the oldest generation waits for hours
(`bmq.runtime.loop.settle`), and a few objects may hold most of the memory.
"""

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_S: Final = 30.0
QUIET_SHARE: Final = 0.2
"""Which share of a processor is little: a process that used less of it since the last look has little to do."""
AGAIN_S: Final = 600.0
"""After so long what is resident may be free again, though it has not grown: caches and tails have their times."""
GROWN_BYTES: Final = 32 << 20
"""Below that nobody misses it."""
COLLECTED_OBJECTS_MAX: Final = 200_000
"""To look at so many takes a tenth of a second, in which everybody waits."""
_STATM: Final = Path("/proc/self/statm")
_M_ARENA_MAX: Final = -8
"""As <malloc.h> has it."""


def is_due(*, resident_bytes: int, least_bytes: int, busy_share: float) -> bool:
    """`least_bytes`: what was resident when it was given back last, or, that long ago, at the start."""
    return busy_share < QUIET_SHARE and resident_bytes >= least_bytes + GROWN_BYTES


async def give_back_memory(*, look_s: float = LOOK_S) -> None:
    """Looks until cancelled; at once over where the system's allocator has no such call."""
    trim = find_trim()
    if trim is None or (resident_bytes := resident()) is None:
        return
    loop = asyncio.get_running_loop()
    first_bytes = least_bytes = resident_bytes
    trimmed_s = looked_s = loop.time()
    used_s = _used_s()
    while True:
        await asyncio.sleep(look_s)
        now_s, now_used_s = loop.time(), _used_s()
        busy_share = (now_used_s - used_s) / max(now_s - looked_s, look_s)
        looked_s, used_s = now_s, now_used_s
        if now_s - trimmed_s >= AGAIN_S:
            least_bytes = first_bytes
        resident_bytes = resident()
        if resident_bytes is not None and is_due(
            resident_bytes=resident_bytes, least_bytes=least_bytes, busy_share=busy_share
        ):
            collect_old_garbage()
            await asyncio.to_thread(trim)
            # What it could not give back is used: for a while only what comes on top of it is worth another try.
            least_bytes, trimmed_s = resident() or resident_bytes, now_s


def collect_old_garbage() -> None:
    """Where it is to be found among few objects."""
    if len(gc.get_objects(generation=2)) <= COLLECTED_OBJECTS_MAX:
        gc.collect()


def find_trim() -> Callable[[], None] | None:
    """glibc's malloc_trim over all arenas; None elsewhere."""
    try:
        call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except OSError:
        return None
    if call is None:
        return None
    call.argtypes = (ctypes.c_size_t,)
    call.restype = ctypes.c_int

    def trim() -> None:
        call(0)

    return trim


def share_arenas(most: int) -> bool:
    """Threads that begin from now on share so many of glibc's arenas: by itself it makes one for each, and what one of
    them has freed the others cannot use. Whether it is so; False where the system's allocator has no such call.
    """
    try:
        call = getattr(ctypes.CDLL(None), "mallopt", None)
    except OSError:
        return False
    return call is not None and call(ctypes.c_int(_M_ARENA_MAX), ctypes.c_int(most)) == 1


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _used_s() -> float:
    times = os.times()
    return times.user + times.system
