"""The files of a folder that several processes of this machine have open at once (`bmq up --nodes`,
`file:///…?shared=true`).

What one process may take for granted of its folder, several may not:

- An empty folder may be about to be linked into by another process, which knows it as durable: none is removed. So what
  is known to be durable stays so, whoever else is at work. `remove_empty_folders` does it while nobody has the folder
  open.
- What is half-written belongs to somebody: each process stages in a folder of its own, which it locks while it lives.
  It clears those of the dead.
- An object that another process linked may not be durable, and its maker may be dead. Who reads it, or sees it in a
  listing, acts on it; so it is made durable before it is shown.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from bmq.errors import StoreUnavailable
from bmq.ports import ObjectMeta
from bmq.runtime.file_io import has_name
from bmq.runtime.folder_files import STAGING_NAME, FolderFiles
from bmq.runtime.folder_lock import lock_folder

_OWN_PREFIX: Final = "process-"
_SLACK_NS: Final = 1_000_000_000
"""Between the time that a new file shows, taken from a coarse clock, and its being in its folder, a link may wait for
the disk."""


class SharedFolderFiles(FolderFiles):
    """As FolderFiles. A clock that is set back may show what was linked since then before it is durable; only a power
    cut would tell.
    """

    def __init__(self, root: Path, *, fsync: bool) -> None:
        """`root` exists and is joined (`folder_lock`). Raises OSError."""
        staging = root / STAGING_NAME
        staging.mkdir(exist_ok=True)
        self._start_ns = time.time_ns() - _SLACK_NS
        self._synced_ns: dict[str, int] = {}
        """By folder: all that was linked into it before that time is durable."""
        for left in staging.glob(f"{_OWN_PREFIX}*"):
            if (lock := _locked(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
        own, self._staging_lock = _own_staging(staging)
        super().__init__(root, fsync=fsync, staging=own)

    def close(self) -> None:
        """Removes the own staging folder."""
        shutil.rmtree(self._staging, ignore_errors=True)
        os.close(self._staging_lock)

    def read(self, key: str, *, start: int, length: int | None) -> bytes:
        """Raises ObjectMissing, StoreUnavailable."""
        data = super().read(key, start=start, length=length)
        self._show(key)
        return data

    def head(self, key: str) -> ObjectMeta:
        """Raises ObjectMissing, StoreUnavailable."""
        meta = super().head(key)
        self._show(key)
        return meta

    def _listed(self, folder: str) -> None:
        path = (self._prefix + folder).rstrip("/")
        self._make_shown_durable(path, os.stat(path).st_mtime_ns)

    def _show(self, key: str) -> None:
        path = self._prefix + key
        try:
            # a link changes the file's ctime
            self._make_shown_durable(os.path.dirname(path), os.lstat(path).st_ctime_ns)
        except FileNotFoundError:  # deleted since, by somebody who knew that it is needed no more
            return
        except OSError as error:
            raise StoreUnavailable(self._explain("get", key, error)) from error

    def _make_shown_durable(self, folder: str, changed_ns: int) -> None:
        if not self._fsync or changed_ns < self._synced_ns.get(folder, self._start_ns):
            return
        now_ns = time.time_ns() - _SLACK_NS
        self._make_durable(folder)
        self._synced_ns[folder] = now_ns

    def _remove_if_empty(self, folder: str) -> bool:
        return False


def _own_staging(staging: Path) -> tuple[Path, int]:
    """A new folder for what one process has half-written, and the descriptor that locks it. Raises OSError."""
    while True:
        own = Path(tempfile.mkdtemp(prefix=_OWN_PREFIX, dir=staging))
        lock = _locked(own)
        if lock is not None:
            return own, lock
        # Another process that starts has just taken it for a dead one's.


def _locked(folder: Path) -> int | None:
    """The descriptor that locks the folder; None where somebody has it, or it is gone. Raises OSError."""
    try:
        fd = lock_folder(folder, fcntl.LOCK_EX)
    except (BlockingIOError, FileNotFoundError):
        return None
    if has_name(fd, str(folder)):
        return fd
    os.close(fd)
    return None


def remove_empty_folders(root: Path) -> None:
    """Removes what deletes in a shared folder left. Nobody may have the folder open. Raises OSError."""
    for folder, _, _ in os.walk(root, topdown=False):
        if Path(folder) != root and Path(folder).name != STAGING_NAME:
            with contextlib.suppress(OSError):  # it is not empty
                Path(folder).rmdir()
