"""A data folder kept for the processes of one cluster (`bmq up --nodes`): no other cluster and no process for itself
gets it meanwhile.

Who keeps it reads and writes no objects; the others open it with `file:///…?shared=true`.
"""

import contextlib
from pathlib import Path
from typing import Self

from bmq.errors import ConfigurationError
from bmq.runtime.folder_files import clear_staging
from bmq.runtime.folder_lock import FolderLock
from bmq.runtime.folder_store import make_root
from bmq.runtime.shared_folder_files import remove_empty_folders


class SharedFolder:
    """From `open` until `close`, or the end of the process."""

    def __init__(self, root: Path, lock: FolderLock) -> None:
        self._root = root
        self._lock = lock

    @classmethod
    def open(cls, root: Path) -> Self:
        """Makes the folder where it is missing, takes it, clears what earlier processes left, and lets others join.

        Raises ConfigurationError (one line) where the folder cannot be made, or another process has it.
        """
        root = make_root(root)
        lock = FolderLock.acquire(root)
        try:
            clear_staging(root)
            remove_empty_folders(root)
        except OSError as error:
            lock.release()
            raise ConfigurationError(
                f"data folder {root}: {error.strerror}: choose a folder that this user may write"
            ) from error
        lock.share()
        return cls(root, lock)

    def close(self) -> None:
        """To be called when those who joined have ended; clears what they left, unless others have joined."""
        if self._lock.alone():
            with contextlib.suppress(OSError):  # the next start clears it
                clear_staging(self._root)
                remove_empty_folders(self._root)
        self._lock.release()
