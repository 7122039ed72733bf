"""What the folder store does to single files and folders, beyond what `os` offers by itself. Blocking; raises
OSError.
"""

import ctypes
import errno
import fcntl
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "free space on its disk, or move it to a larger one",
    errno.EDQUOT: "raise the disk quota of this user, or move the folder",
    errno.EFBIG: "raise the file size limit of this process (ulimit -f)",
    errno.EROFS: "its file system is read-only: look for disk errors, then mount it writable",
    errno.EIO: "its disk fails: look at the kernel's log, and move the folder to a healthy one",
    errno.EACCES: "make it writable for this user",
    errno.EPERM: "make it writable for this user",
    errno.ENOTDIR: "a part of the path is a file: name another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
}
"""By errno: what helps whoever cannot write to a folder."""
WRITE_PARTS_MAX: Final = max(16, min(1024, os.sysconf("SC_IOV_MAX")))


def boot_id() -> bytes:
    """16 bytes that tell this start of the machine from others; where it does not say, from all calls."""
    try:
        return uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)


def sync_file(fd: int) -> None:
    """Makes the file's or the folder's content durable. Raises OSError."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves the data in the drive's cache
    if full_sync is not None:
        fcntl.fcntl(fd, full_sync)
    else:
        os.fsync(fd)


def open_folder(path: str) -> int:
    """A descriptor for fsync and for `dir_fd`. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_folder(folder: Path) -> None:
    """Makes durable which files are in it. Raises OSError."""
    fd = open_folder(str(folder))
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def write_all(fd: int, parts: Sequence[Buffer]) -> None:
    """Writes the parts one after another, without joining them. Raises OSError."""
    pending = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
    position = 0
    while position < len(pending):
        written = os.writev(fd, pending[position : position + WRITE_PARTS_MAX])
        while position < len(pending) and written >= pending[position].nbytes:
            written -= pending[position].nbytes
            position += 1
        if written:
            pending[position] = pending[position][written:]


def read_range(fd: int, *, start: int, length: int | None) -> bytes:
    """The file's bytes from `start`, at most `length`. Raises OSError."""
    found = os.fstat(fd)
    rest = max(0, found.st_size - start)
    wanted = rest if length is None else min(length, rest)
    data = os.pread(fd, wanted, start)  # of a folder this raises IsADirectoryError
    if len(data) == wanted:
        return data
    chunks = [data]  # only above 2 GiB, or where a network file system returns less
    position = len(data)
    while position < wanted and chunks[-1]:
        chunks.append(os.pread(fd, wanted - position, start + position))
        position += len(chunks[-1])
    return b"".join(chunks)


def has_name(fd: int, path: str) -> bool:
    """Whether `path` names the open file. Raises OSError."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def unnamed_files_work(staging: str) -> bool:
    """Whether files without a name exist here and can be given one (Linux, most file systems, /proc mounted)."""
    probe = Path(staging) / "probe"
    try:
        fd = os.open(staging, getattr(os, "O_TMPFILE") | os.O_WRONLY | os.O_CLOEXEC, 0o600)  # noqa: B009 — missing outside Linux
    except (AttributeError, OSError):
        return False
    staging_fd = open_folder(staging)
    try:
        os.link(f"/proc/self/fd/{fd}", probe.name, dst_dir_fd=staging_fd, follow_symlinks=True)
        probe.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
        os.close(staging_fd)
    return True


def sync_file_system(path: str) -> None:
    """Makes everything on the file system of the folder `path` durable. Raises OSError."""
    fd = open_folder(path)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(fd)
