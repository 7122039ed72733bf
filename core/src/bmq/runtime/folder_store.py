"""An ObjectStore in a plain folder: the default of `bmq up`. Durable unless told otherwise; for one process at a time,
or for several that share it.

Blocking calls run in the store's own bounded pools, one for writing, one for reading, one for deleting: a reader never
waits behind an fsync, nor a writer behind the deletion of a large file.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self

from typing_extensions import Buffer

from bmq.errors import ConfigurationError, NotApplied, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.runtime.blocking_calls import BlockingCalls
from bmq.runtime.folder_files import READ_SELDOM_PREFIX, FolderFiles
from bmq.runtime.folder_lock import FolderLock
from bmq.runtime.object_key import checked_key, folder_of_prefix
from bmq.runtime.ring.format import UnreadableRing
from bmq.runtime.shared_folder_files import SharedFolderFiles

WRITE_THREADS: Final = 12
"""Eight creates of the WAL in flight, and a few of rolls, manifests and the metadata log beside them."""
READ_THREADS: Final = 8
DELETE_THREADS: Final = 1
"""A file system may take longer to delete a file than to write it, and let writers wait meanwhile; retention lets many
go at once."""
LIST_PAGE_COUNT: Final = 1000


class FolderStore:
    """Objects are files at `<root>/<key>`. A key cannot be the folder of another key. `parts` of a create must not
    change until it returns.

    A create that is cancelled goes on in its thread: its outcome is unknown.
    """

    def __init__(self, files: FolderFiles, lock: FolderLock) -> None:
        self._files = files
        self._lock = lock
        self._writers = BlockingCalls(WRITE_THREADS, name="store-write")
        self._readers = BlockingCalls(READ_THREADS, name="store-read")
        self._deleters = BlockingCalls(DELETE_THREADS, name="store-delete")

    @classmethod
    def open(cls, root: Path, *, fsync: bool = True, shared: bool = False, ring: bool = False) -> Self:
        """Makes the folder where it is missing, locks it and clears half-written files. Blocks: call it before the loop
        runs.

        `shared`: beside other processes that say so too; see `shared_folder_files`. `ring`: whether small objects of
        the WAL may be records of one (`ring`); it goes where it is not wanted.
        Raises ConfigurationError (one line) where the folder cannot be made, or another process holds it.
        """
        root = make_root(root)
        lock = FolderLock.join(root) if shared else FolderLock.acquire(root)
        try:
            return cls(
                SharedFolderFiles(root, fsync=fsync) if shared else FolderFiles(root, fsync=fsync, ring=ring), lock
            )
        except UnreadableRing as error:
            lock.release()
            raise ConfigurationError(
                f"data folder {root}: {error}; without it what was written last would be missing: restore it"
            ) from error
        except (NotApplied, UnknownOutcome) as error:  # giving records their files
            lock.release()
            raise ConfigurationError(str(error)) from error
        except OSError as error:
            lock.release()
            raise ConfigurationError(
                f"data folder {root}: {error.strerror}: choose a folder that this user may write"
            ) from error

    def close(self) -> None:
        """Waits for what runs, then gives the folder up."""
        self._writers.close()
        self._deleters.close()
        self._readers.close()
        self._files.close()
        self._lock.release()

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Makes the object's file out of `parts` joined. Raises Conflict, UnknownOutcome, and NotApplied, which names
        the folder and what to do about it (full disk, quota, read-only).
        """
        await self._writers.run(partial(self._files.create, checked_key(key), parts))

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Reads the object's file from `start`; fewer bytes than `length` where it ends. Raises ObjectMissing,
        StoreUnavailable.
        """
        call = partial(self._files.read, checked_key(key), start=start, length=length)
        return await self._readers.run(call)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Walks the folders in the order of keys, page by page. What is created or deleted behind the page being read
        may or may not be seen. Raises StoreUnavailable while iterating.
        """
        folder = folder_of_prefix(prefix)
        entries = self._files.walk(folder, name_prefix=prefix[len(folder) :], after=after)
        while page := await self._readers.run(lambda: list(islice(entries, LIST_PAGE_COUNT))):
            for meta in page:
                yield meta

    async def delete(self, key: str) -> None:
        """Removes the object's file; a missing one is success. Raises StoreUnavailable."""
        # most of the former are only renamed, to be written anew
        pool = self._writers if key.startswith(READ_SELDOM_PREFIX) else self._deleters
        await pool.run(partial(self._files.delete, checked_key(key)))

    async def head(self, key: str) -> ObjectMeta:
        """What the file system says of the object's file. Raises ObjectMissing, StoreUnavailable."""
        return await self._readers.run(partial(self._files.head, checked_key(key)))


def make_root(root: Path) -> Path:
    """Makes the folder; those above it that were missing are durable as well once the store syncs its file system. Its
    absolute path.

    Raises ConfigurationError (one line).
    """
    root = Path(root).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not root.is_dir():
            raise NotADirectoryError(20, "is not a folder", str(root))
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigurationError(
            f"data folder {root}: it, or what it is in, is a file: choose another folder"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"data folder {root}: {error.strerror}: choose a folder that this user may write"
        ) from error
    return root
