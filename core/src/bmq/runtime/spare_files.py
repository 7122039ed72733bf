"""Files of deleted objects that are written anew: a steady stream of objects then neither allocates blocks nor frees
them. Blocking, for any thread.

Freeing a file's blocks may take longer than writing it, and hold up who writes beside it (docs/decisions/0021).

What makes it safe: a file leaves its name first (`keep`), and is not given out before that is durable (`left`,
`settled`). So no name ever shows bytes that were not written under it, not after a power cut either. What has another
name by then, or is open elsewhere, is a backup's too and is never written. Who reads such a file where nobody can tell
that looks afterwards whether it still has its name.
"""

import errno
import fcntl
import os
import signal
import stat
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from bmq.runtime import direct_write

SPARE_BYTES_MAX: Final = 128 << 20
"""What they take of the disk at most: two rolls' worth of WAL objects."""


class Spare(NamedTuple):
    """Ordered by size, which is rounded up to whole blocks, then by age."""

    blocks_bytes: int
    number: int
    path: str


class SpareFiles:
    """Those of one store, in its staging folder, which its next start clears."""

    def __init__(self, staging: str, *, bytes_max: int = SPARE_BYTES_MAX) -> None:
        self._prefix = f"{staging}/spare-"
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._count = 0
        self._leaving: dict[str, list[Spare]] = {}
        """By the folder that they left: after a power cut they may have their names back."""
        self._ready: list[Spare] = []
        self._by_age: dict[int, Spare] = {}
        """The same, oldest first."""
        self.held_bytes = 0

    def keep(self, path: str) -> bool:
        """Takes the file out of its folder; False where it is too small, has a second name (a copy by links is not to
        change), or cannot be moved: it is to be deleted. Raises FileNotFoundError.

        Where there are enough, those go first that nobody has wanted for longest: they are too large for what is
        written now.
        """
        found = os.lstat(path)
        blocks_bytes = _blocks(found.st_size)
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_nlink > 1
            or not direct_write.SIZE_BYTES_MIN <= blocks_bytes <= self._bytes_max
        ):
            return False
        with self._lock:
            unwanted = self._make_room(blocks_bytes)
            is_room = self.held_bytes + blocks_bytes <= self._bytes_max
            if is_room:
                self.held_bytes += blocks_bytes
                self._count += 1
                spare = Spare(blocks_bytes, self._count, f"{self._prefix}{self._count}")
        _delete(unwanted)
        if not is_room:
            return False
        try:
            os.rename(path, spare.path)
        except OSError as error:
            with self._lock:
                self.held_bytes -= blocks_bytes
            if isinstance(error, FileNotFoundError):
                raise
            return False  # a full disk may have no room for another name; what is deleted gives it some
        with self._lock:
            self._leaving.setdefault(os.path.dirname(path), []).append(spare)
        return True

    def left(self, folder: str) -> Sequence[Spare]:
        """Those that have left the folder so far. To be asked before the folder is made durable."""
        with self._lock:
            return tuple(self._leaving.get(folder, ()))

    def settled(self, folder: str, left: Sequence[Spare]) -> None:
        """The folder has been made durable since they left it: they may be written."""
        with self._lock:
            leaving = self._leaving.get(folder, [])
            for spare in left:
                if spare in leaving:  # two may have made the folder durable
                    leaving.remove(spare)
                    insort(self._ready, spare)
                    self._by_age[spare.number] = spare
            if not leaving:
                self._leaving.pop(folder, None)

    def open(self, size_bytes: int) -> tuple[int, str] | None:
        """(descriptor, name) of the file that needs to grow least to have so many bytes. It never has to shrink: that
        would free blocks.
        """
        spare = self._take(size_bytes)
        if spare is None:
            return None
        try:
            fd = os.open(spare.path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError:  # it is not worth a create
            _delete([spare])
            return None
        if _is_anothers_too(fd):
            os.close(fd)
            _delete([spare])
            return None
        return fd, spare.path

    def forget(self, folder: str) -> None:
        """Deletes those that left a folder which is gone now."""
        with self._lock:
            spares = self._leaving.pop(folder, [])
            self._free(spares)
        _delete(spares)

    def drop(self) -> None:
        """Deletes all: the disk is full."""
        with self._lock:
            spares = [*self._ready, *chain.from_iterable(self._leaving.values())]
            self._ready.clear()
            self._by_age.clear()
            self._leaving.clear()
            self._free(spares)
        _delete(spares)

    def _take(self, size_bytes: int) -> Spare | None:
        with self._lock:
            at = bisect_right(self._ready, _blocks(size_bytes), key=lambda spare: spare.blocks_bytes)
            return self._take_out(at - 1) if at else None

    def _free(self, spares: Sequence[Spare]) -> None:
        self.held_bytes -= sum(spare.blocks_bytes for spare in spares)

    def _make_room(self, blocks_bytes: int) -> list[Spare]:
        """Takes the oldest out until so much more fits; they are to be deleted."""
        unwanted: list[Spare] = []
        while self._by_age and self.held_bytes + blocks_bytes > self._bytes_max:
            oldest = next(iter(self._by_age.values()))
            self._take_out(bisect_left(self._ready, oldest))
            unwanted.append(oldest)
        return unwanted

    def _take_out(self, at: int) -> Spare:
        spare = self._ready.pop(at)
        del self._by_age[spare.number]
        self._free([spare])
        return spare


def _is_anothers_too(fd: int) -> bool:
    """Whether the file got a second name since it was kept, or somebody has it open: a backup that links files, or
    copies them, began before.

    A lease to write is given only to who has the file open alone; nobody else can open it any more, since it has left
    its name.
    """
    if os.fstat(fd).st_nlink > 1:
        return True
    try:
        # nobody asks for it; SIGIO, which tells of who opens a leased file, would end the process
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EBUSY)  # others say that this file system or user gets none
    return False


def _delete(spares: Sequence[Spare]) -> None:
    for spare in spares:
        with suppress(OSError):  # the next start clears it
            Path(spare.path).unlink()


def _blocks(size_bytes: int) -> int:
    return -(-size_bytes // direct_write.ALIGNMENT) * direct_write.ALIGNMENT
