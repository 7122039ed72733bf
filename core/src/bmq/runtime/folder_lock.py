"""One process per folder: an advisory lock on `<root>/.lock` that the kernel drops when its holder dies."""

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bmq.errors import ConfigurationError

LOCK_NAME: Final = ".lock"


class FolderLock:
    """Held from `acquire` until `release` or the end of the process, however that comes."""

    def __init__(self, *, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, root: Path) -> Self:
        """Takes the lock of an existing folder. Raises ConfigurationError (one line) naming the process that holds it."""
        path = root / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(f"data folder {root}: cannot open its lock file: {error.strerror}; make it writable for this user") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            if not isinstance(error, BlockingIOError):
                raise ConfigurationError(f"data folder {root}: its file system has no locks ({error.strerror}); use a local disk") from error
            raise ConfigurationError(f"data folder {root} is in use by process {holder}: stop it, or choose another folder") from None
        with contextlib.suppress(OSError):  # on a full disk the holder is not named; the lock holds all the same
            path.write_text(f"{os.getpid()}\n")
        return cls(fd=fd)

    def release(self) -> None:
        """Gives the lock up; the file stays, since removing it would let two processes lock two files of one name."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
