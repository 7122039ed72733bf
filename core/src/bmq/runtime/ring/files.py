"""A ring's files in a folder: `NUMBER.ring` has records, written past the page cache, `NUMBER.table` what is said
of them.

Blocking; raises OSError.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from bmq.runtime import direct_write
from bmq.runtime.file_io import sync_file, sync_folder
from bmq.runtime.ring.format import (
    BLOCK_BYTES,
    ENTRY_BYTES,
    ID_BYTES,
    FileHead,
    UnreadableRing,
    decode_file,
    encode_file,
)

FOLDER_NAME: Final = ".ring"
_RECORDS, _TABLE = ".ring", ".table"
_MAKING: Final = "making"
_ZEROES_BYTES: Final = 1 << 20
_LOCK: Final = struct.Struct("@hhqqi4x")
"""The system's `struct flock`: kind, whence, start, length, process."""


class DiskFile:
    """One of them."""

    def __init__(self, path: Path, head: FileHead, *, writes: bool) -> None:
        """`path` without its ending. `writes`: whether it is more than read."""
        self.ring_id = head.ring_id
        self.blocks = head.size_bytes // BLOCK_BYTES
        self.path = path
        self._fds: list[int] = []
        try:
            self._reads = self._opened(_RECORDS, os.O_RDONLY)
            self._notes = self._opened(_TABLE, os.O_RDWR if writes else os.O_RDONLY)
            if writes:
                self._writes = self._opened(_RECORDS, os.O_WRONLY | os.O_DIRECT)
                fcntl.fcntl(self._notes, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError:
            self.close()
            raise

    @property
    def name(self) -> str:
        """See `ring.File`."""
        return str(self.path.with_suffix(_RECORDS))

    def read(self, at: int, size_bytes: int) -> bytes:
        """See `scan.Readable`."""
        return os.pread(self._reads, size_bytes, at)

    def table(self) -> bytes:
        """See `scan.Readable`."""
        return os.pread(self._notes, self.blocks * ENTRY_BYTES, 0)

    def about(self) -> bytes:
        """See `scan.Readable`."""
        return os.pread(self._notes, ENTRY_BYTES, 0)

    @property
    def is_kept(self) -> bool:
        """Whether a process writes to it."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(_LOCK.unpack(fcntl.fcntl(self._notes, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)

    @property
    def has_copy(self) -> bool:
        """See `ring.File`."""
        return os.fstat(self._reads).st_nlink > 1

    def write(self, at: int, parts: Sequence[Buffer]) -> None:
        """See `ring.File`."""
        data = direct_write.joined(parts)
        while data.nbytes:
            written = os.pwritev(self._writes, [data], at, os.RWF_DSYNC)
            if not written or written % BLOCK_BYTES:
                raise OSError(errno.EIO, "it took a part of a block")
            data, at = data[written:], at + written

    def note(self, at: int, said: bytes) -> None:
        """See `ring.File`."""
        if os.pwrite(self._notes, said, at) != len(said):
            raise OSError(errno.EIO, "it took a part of a note")

    def sync_table(self) -> None:
        """See `ring.File`."""
        sync_file(self._notes)

    def sync(self) -> None:
        """See `ring.File`."""
        sync_file(self._writes)

    def remove(self) -> None:
        """See `ring.File`. A table without records says nothing; records without one are not opened."""
        self.path.with_suffix(_RECORDS).unlink()
        sync_folder(self.path.parent)
        self.path.with_suffix(_TABLE).unlink(missing_ok=True)

    def close(self) -> None:
        """See `ring.File`."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _opened(self, suffix: str, flags: int) -> int:
        fd = os.open(self.path.with_suffix(suffix), flags | os.O_CLOEXEC, 0o644)
        self._fds.append(fd)
        return fd


@contextmanager
def closed_at_last(files: Sequence[DiskFile]) -> Iterator[Sequence[DiskFile]]:
    """These, and nobody uses them behind it."""
    try:
        yield files
    finally:
        for file in files:
            file.close()


class DiskFolder:
    """The folder of a ring's files, `.ring` of a data folder. It is made with the first of them."""

    def __init__(self, root: Path, *, nonce: Callable[[], bytes], writes: bool = True) -> None:
        """`nonce` makes ids: ID_BYTES random bytes. `writes`: whether the files are more than read."""
        self._folder = root / FOLDER_NAME
        self._nonce = nonce
        self._is_written = writes

    def files(self) -> Sequence[DiskFile]:
        """See `ring.Folder`."""
        found: list[DiskFile] = []
        try:
            self._open(found)
        except BaseException:
            for file in found:
                file.close()
            raise
        return found

    def _open(self, found: list[DiskFile]) -> None:
        for path in self._paths():
            with path.open("rb") as file:
                try:
                    head = decode_file(file.read(BLOCK_BYTES))
                except UnreadableRing as error:
                    raise UnreadableRing(f"{path}: {error}") from None
                _check_size(path, head.size_bytes)
                _check_size(path.with_suffix(_TABLE), head.size_bytes // BLOCK_BYTES * ENTRY_BYTES)
            found.append(DiskFile(path.with_suffix(""), head, writes=self._is_written))

    def make(self, size_bytes: int) -> DiskFile:
        """See `ring.Folder`. Its blocks are written once, so that later writes change nothing but bytes."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / _MAKING).unlink(missing_ok=True)
        room = os.statvfs(self._folder)
        if room.f_bavail * room.f_frsize < 2 * size_bytes:  # others need it more
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        last = max((int(path.stem) for path in self._paths()), default=0)
        path = self._folder / f"{last + 1:08d}"
        making = self._folder / _MAKING
        head = FileHead(self._nonce()[:ID_BYTES], size_bytes)
        fd = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            zeroes = bytes(_ZEROES_BYTES)
            for at in range(0, size_bytes, _ZEROES_BYTES):
                os.pwrite(fd, zeroes[: size_bytes - at], at)
            os.pwrite(fd, encode_file(head), 0)
            sync_file(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            self._make_table(path, size_bytes // BLOCK_BYTES)
            os.link(making, path.with_suffix(_RECORDS))  # which takes no other one's place
            making.unlink()
        except OSError:
            making.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        return self._tried(DiskFile(path, head, writes=True))

    def _make_table(self, path: Path, blocks: int) -> None:
        """With all its bytes: a full disk takes what is noted, too."""
        table = path.with_suffix(_TABLE)
        table.unlink(missing_ok=True)
        table.write_bytes(bytes(blocks * ENTRY_BYTES))
        with table.open("rb") as file:
            sync_file(file.fileno())

    def _paths(self) -> list[Path]:
        """Those of records. Raises OSError where it is not known which there are."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [self._folder / name for name in sorted(names) if name.endswith(_RECORDS)]

    def _tried(self, file: DiskFile) -> DiskFile:
        """Not every file system takes such writes."""
        try:
            file.write(BLOCK_BYTES, [bytes(BLOCK_BYTES)])
        except OSError:
            file.close()
            file.remove()
            raise
        return file

    def remove(self) -> None:
        """See `ring.Folder`."""
        if self._folder.is_dir() and not self._paths():
            for left in self._folder.iterdir():
                left.unlink()
            self._folder.rmdir()


def _check_size(path: Path, size_bytes: int) -> None:
    """Raises UnreadableRing: what was in it would be missing, or back."""
    found_bytes = path.stat().st_size if path.exists() else 0
    if found_bytes < size_bytes:
        raise UnreadableRing(f"{path}: it has {found_bytes} bytes of {size_bytes}: it was cut")
