"""A channel's folder, which one process at a time has: by an advisory lock, which the kernel drops when its holder
dies.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from bmq.runtime.file_io import REMEDIES
from bmq_databus.errors import SpoolFailed, SpoolInUse

LOCK_NAME: Final = ".lock"


class SpoolFolder:
    """Held until `leave`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Makes the folder where it is missing. Blocking. Raises SpoolInUse, SpoolFailed."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
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
