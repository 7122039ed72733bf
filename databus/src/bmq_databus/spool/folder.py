"""A channel's folder, which one process at a time has: by an advisory lock, which the kernel drops when its holder
dies.
"""

import fcntl
import os
from pathlib import Path

from bmq.runtime.file_io import REMEDIES, sync_folder
from bmq.runtime.folder_lock import lock_folder
from bmq_databus.errors import SpoolFailed, SpoolInUse


def not_made(path: Path, error: OSError) -> SpoolFailed:
    """That a spool's folder cannot be had, and what helps."""
    remedy = REMEDIES.get(error.errno or 0, "name another folder with --spool")
    return SpoolFailed(f"spool {path}: {error.strerror or error}: {remedy}")


class SpoolFolder:
    """Held until `leave`, or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Makes the folder where it is missing. Blocking. Raises SpoolInUse, SpoolFailed."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for made_in in (path.parent.parent, path.parent, path):
                sync_folder(made_in)
        except OSError as error:
            raise not_made(path, error) from error
        try:
            self._fd = lock_folder(path, fcntl.LOCK_EX)
        except BlockingIOError:
            raise SpoolInUse(
                f"spool {path} is another process's, a sidecar's or a replay's: end that, or name another folder"
            ) from None
        except OSError as error:
            raise SpoolFailed(
                f"spool {path}: its file system has no locks ({error.strerror}): use a local disk"
            ) from error

    def leave(self) -> None:
        """Another process may have it."""
        os.close(self._fd)
