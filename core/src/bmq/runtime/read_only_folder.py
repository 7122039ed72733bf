"""A data folder that is only read, beside whatever runs on it: no lock, no file of its own, nothing cleared and nothing
synced.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Buffer

from bmq.errors import NotApplied, ObjectMissing, StoreUnavailable
from bmq.ports import ObjectMeta
from bmq.runtime.file_io import boot_id
from bmq.runtime.folder_files import READ_SELDOM_PREFIX, FolderFiles
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
        self._records: RingView = RingView(root, boot_id=boot_id())

    def read(self, key: str, *, start: int, length: int | None) -> bytes:
        """Raises ObjectMissing, StoreUnavailable."""
        with contextlib.suppress(ObjectMissing):
            return super().read(key, start=start, length=length)
        self._look(key)
        return super().read(key, start=start, length=length)

    def head(self, key: str) -> ObjectMeta:
        """Raises ObjectMissing, StoreUnavailable."""
        with contextlib.suppress(ObjectMissing):
            return super().head(key)
        self._look(key)
        return super().head(key)

    def _look(self, key: str) -> None:
        """Where it may be a record that was made since."""
        if not key.startswith(READ_SELDOM_PREFIX):
            raise ObjectMissing(key)
        try:
            self._records.look()
        except OSError as error:
            raise StoreUnavailable(self._explain("get", key, error)) from error

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
