"""Who may use a data folder: one process for itself, or several that share it. Advisory locks, which the kernel drops
when their holder dies.

`<root>/.lock` is held by the one process, or by the one that keeps the folder for several. The folder of half-written
files is locked by everyone who uses the store: for itself by the one, together with others by each of several.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bmq.errors import ConfigurationError, FolderInUse
from bmq.runtime.file_io import open_folder
from bmq.runtime.folder_files import STAGING_NAME

LOCK_NAME: Final = ".lock"
_USERS_WAIT_S: Final = 2.0
"""The processes that shared a folder end with the one that kept it, but a moment later."""
_USERS_RETRY_S: Final = 0.02


class FolderLock:
    """Held from `acquire` or `join` until `release` or the end of the process, however that comes."""

    def __init__(self, root: Path, *, fd: int, users_fd: int) -> None:
        self._root = root
        self._fd = fd
        self._users_fd = users_fd

    @classmethod
    def acquire(cls, root: Path) -> Self:
        """Takes an existing folder for this process alone. Raises ConfigurationError (one line); FolderInUse names the
        process that holds it.
        """
        path = root / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(
                f"data folder {root}: cannot open its lock file: {error.strerror}; make it writable for this user"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            if not isinstance(error, BlockingIOError):
                raise ConfigurationError(
                    f"data folder {root}: its file system has no locks ({error.strerror}); use a local disk"
                ) from error
            raise FolderInUse(
                f"data folder {root} is in use by process {holder}: stop it, or choose another folder"
            ) from None
        with contextlib.suppress(OSError):  # on a full disk the holder is not named; the lock holds all the same
            path.write_text(f"{os.getpid()}\n")
        try:
            return cls(root, fd=fd, users_fd=_lock_users(root, fcntl.LOCK_EX, wait_s=_USERS_WAIT_S))
        except BlockingIOError:
            os.close(fd)
            raise FolderInUse(
                f"data folder {root} is in use by processes that share it: stop them, or choose another folder"
            ) from None
        except OSError as error:
            os.close(fd)
            raise ConfigurationError(
                f"data folder {root}: {error.strerror}: choose a folder that this user may write"
            ) from error

    @classmethod
    def join(cls, root: Path) -> Self:
        """Uses an existing folder together with others that do. Raises ConfigurationError (one line), FolderInUse where
        a process has it alone.
        """
        try:
            return cls(root, fd=-1, users_fd=_lock_users(root, fcntl.LOCK_SH, wait_s=0.0))
        except BlockingIOError:
            raise FolderInUse(
                f"data folder {root} is in use by process {_holder_of(root)} alone: stop it, or choose another folder"
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"data folder {root}: {error.strerror}: choose a folder that this user may write"
            ) from error

    def share(self) -> None:
        """Lets others join. Whoever wants the folder for itself is refused as before."""
        if self._users_fd >= 0:
            os.close(self._users_fd)
            self._users_fd = -1

    def alone(self) -> bool:
        """Takes a shared folder back for this process alone, where nobody uses it any more."""
        if self._users_fd < 0:
            try:
                self._users_fd = _lock_users(self._root, fcntl.LOCK_EX, wait_s=0.0)
            except OSError:
                return False
        return True

    def release(self) -> None:
        """Gives the lock up; the file stays, since removing it would let two processes lock two files of one name."""
        self.share()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_folder(folder: Path, kind: int, *, wait_s: float = 0.0) -> int:
    """The descriptor that holds the lock, `fcntl.LOCK_EX` or `LOCK_SH`. Raises BlockingIOError where others have it,
    FileNotFoundError, OSError.
    """
    fd = open_folder(str(folder))
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                os.close(fd)
                raise
            time.sleep(_USERS_RETRY_S)
        except OSError:
            os.close(fd)
            raise
        else:
            return fd


def _lock_users(root: Path, kind: int, *, wait_s: float) -> int:
    """The descriptor that holds the lock. Raises BlockingIOError where others have it, OSError."""
    staging = root / STAGING_NAME
    staging.mkdir(exist_ok=True)
    return lock_folder(staging, kind, wait_s=wait_s)


def _holder_of(root: Path) -> str:
    try:
        fd = os.open(root / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return "unknown"
    try:
        return _holder(fd)
    finally:
        os.close(fd)


def _holder(fd: int) -> str:
    return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
