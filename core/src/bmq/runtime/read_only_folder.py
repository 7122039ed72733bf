"""A data folder that is only read, beside whatever runs on it: no lock, no file of its own, nothing cleared and nothing
synced.
"""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Buffer

from bmq.errors import NotApplied, StoreUnavailable
from bmq.runtime.folder_files import FolderFiles
from bmq.runtime.folder_lock import FolderLock
from bmq.runtime.folder_store import FolderStore
from bmq.runtime.ring.view import RingView


class ReadOnlyFiles(FolderFiles):
    """The reading half of FolderFiles, without what that does to a folder when it starts."""

    def __init__(self, root: Path) -> None:
        # Not FolderFiles' own: it clears and syncs the folder, which may be another process's, or on a file system that
        # is read-only.
        self._root = str(root)
        self._prefix = f"{self._root}/"
        self._ring = None
        self._records = RingView(root)

    def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Raises NotApplied."""
        raise NotApplied(f"create {key}: the data folder {self._root} was opened for reading only")

    def delete(self, key: str) -> None:
        """Raises StoreUnavailable."""
        raise StoreUnavailable(f"delete {key}: the data folder {self._root} was opened for reading only")


def open_read_only(root: Path) -> FolderStore:
    """The objects of an existing folder. Holds no lock: what another process creates and deletes meanwhile may or may
    not be seen.
    """
    root = root.absolute()
    return FolderStore(ReadOnlyFiles(root), FolderLock(root, fd=-1, users_fd=-1))
