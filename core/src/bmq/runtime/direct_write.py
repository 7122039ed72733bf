"""Writing a new file past the page cache (O_DIRECT), from one aligned buffer per thread.

What is fsynced at once need not pass through memory that the kernel first has to find and that pushes out what is read:
without it the same bytes cost a third less CPU time (docs/performance.md). Not every file system can; `works_in` tells.
"""

import errno
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Final

from typing_extensions import Buffer

BUFFER_SIZE_BYTES: Final = 1 << 20
ALIGNMENT: Final = 4096
"""Enough for every disk's blocks and the memory's pages."""
SIZE_BYTES_MIN: Final = 64 * 1024
"""What is smaller is not worth the switch."""

_local = threading.local()


def works_in(folder: str) -> bool:
    """Whether the folder's file system takes such writes."""
    if not hasattr(os, "O_DIRECT") or not hasattr(os, "O_TMPFILE"):
        return False
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT, 0o600)
    except OSError:
        return False
    try:
        os.write(fd, _buffer()[:ALIGNMENT])
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def write_direct(fd: int, parts: Sequence[Buffer]) -> None:
    """Writes the parts, joined, to the new file `fd`, which was opened with O_DIRECT. Raises OSError."""
    buffer = _buffer()
    filled = size_bytes = 0
    for part in parts:
        view = memoryview(part).cast("B")
        size_bytes += len(view)
        while len(view):
            taken = min(len(view), BUFFER_SIZE_BYTES - filled)
            buffer[filled : filled + taken] = view[:taken]
            filled += taken
            view = view[taken:]
            if filled == BUFFER_SIZE_BYTES:
                _write_aligned(fd, buffer)
                filled = 0
    if filled:
        _write_aligned(fd, buffer[: -(-filled // ALIGNMENT) * ALIGNMENT])
        os.ftruncate(fd, size_bytes)


def joined(parts: Sequence[Buffer]) -> memoryview:
    """The parts, one after the other, in this thread's buffer, up to whole blocks: BUFFER_SIZE_BYTES at most. It is
    whoever's writes next.
    """
    buffer, filled = _buffer(), 0
    for part in parts:
        view = memoryview(part).cast("B")
        buffer[filled : filled + len(view)] = view
        filled += len(view)
    return buffer[: -(-filled // ALIGNMENT) * ALIGNMENT]


def _write_aligned(fd: int, data: memoryview) -> None:
    while len(data):
        written = os.write(fd, data)
        if written % ALIGNMENT:  # the disk is full in the middle of a block
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[written:]


def _buffer() -> memoryview:
    """This thread's own, page-aligned."""
    found: memoryview | None = getattr(_local, "buffer", None)
    if found is None:
        found = memoryview(mmap.mmap(-1, BUFFER_SIZE_BYTES))
        _local.buffer = found
    return found
