"""A channel's folder, which one process at a time has: by an advisory lock, which the kernel drops when its holder
dies.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from bmq.runtime.file_io import REMEDIES, open_folder, sync_file
from bmq_databus.errors import SpoolFailed, SpoolInUse
from bmq_databus.spool.segments import SEGMENT_SUFFIX

LOCK_NAME: Final = ".lock"


class SpoolFolder:
    """Held until `leave`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Makes the folder where it is missing. Blocking. Raises SpoolInUse, SpoolFailed."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for one in (path.parent.parent, path.parent, path):
                _sync(one)
            self._fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "name another folder with --spool")
            raise SpoolFailed(f"spool {path}: {error.strerror or error}: {remedy}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                raise SpoolInUse(f"spool {path} is another sidecar's: end that, or name another folder") from None
            raise SpoolFailed(
                f"spool {path}: its file system has no locks ({error.strerror}): use a local disk"
            ) from error

    def leave(self) -> None:
        """Another process may have it."""
        os.close(self._fd)


def left_in(root: Path) -> list[str]:
    """Names of channels that have messages below this folder. Blocking."""
    return sorted({path.parent.name for path in root.glob(f"*/*{SEGMENT_SUFFIX}")})


def _sync(folder: Path) -> None:
    """So that a folder that was just made in it is there after a power failure."""
    fd = open_folder(str(folder))
    try:
        sync_file(fd)
    finally:
        os.close(fd)
