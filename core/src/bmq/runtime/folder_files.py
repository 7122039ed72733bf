"""Objects as files of one folder, durably: the blocking half of the folder store, safe to call from many threads.

An object is written to a file without a name, fsynced, then linked to its name, and the folders on the way are fsynced:
a name never shows part of an object, `link` refuses a name that exists, and what `create` has returned survives a power
cut. One process has the folder for itself (`folder_lock`); what several need is in `shared_folder_files`. Then small
objects of the WAL are records of a ring instead (`ring`), as far as it has room.

Which folders are durable is known by name (`_durable_folders`): a folder is entered after its own entry in its parent
was fsynced, and struck out, under one lock with the rmdir, before it is removed. Whoever holds a file in a folder keeps
it from being removed, so what a create finds entered after its link is the folder that it linked into.
"""

import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq.runtime import direct_write
from bmq.runtime.file_io import (
    REMEDIES,
    boot_id,
    has_name,
    open_folder,
    read_range,
    sync_file,
    sync_file_system,
    unnamed_files_work,
    write_all,
)
from bmq.runtime.folder_names import Name, names_in
from bmq.runtime.ring.files import DiskFolder
from bmq.runtime.ring.ring import Ring
from bmq.runtime.ring.unpacking import has_copy, unpack
from bmq.runtime.ring.view import RingView
from bmq.runtime.spare_files import SpareFiles
from bmq.runtime.system import SystemClock, SystemRng

STAGING_NAME: Final = ".tmp"
READ_SELDOM_PREFIX: Final = "wal/"
"""Objects that only a recovery reads leave the page cache once they are on disk: their pages serve the next create,
where they would otherwise push out segments (docs/stores.md has what that is worth). Their files are written anew when
they are deleted (`spare_files`)."""
_NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
_MAKE_FOLDER_ATTEMPTS_MAX: Final = 100
"""How often in one create a folder may be removed by a concurrent delete."""
_LINK_NOT_MADE: Final = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
    )
)
_REMEDIES: Final = {**REMEDIES, errno.ENOTDIR: "a part of the key is an object already, which is a bug: report it"}


class FolderFiles:
    """Blocking verbs on one folder. Keys have been checked by the caller."""

    def __init__(self, root: Path, *, fsync: bool, staging: Path | None = None, ring: bool = False) -> None:
        """`root` exists and is locked. Clears what earlier processes left half-written, or stages in `staging`, which
        is new: then others use the folder, too. `ring`: whether small objects may be records of one. Raises OSError,
        UnreadableRing.
        """
        self._root = str(root)
        self._prefix = f"{self._root}/"
        self._staging = str(staging or clear_staging(root))
        self._fsync = fsync
        self._lock = threading.Lock()
        self._durable_folders = {self._root}
        self._staged_count = 0
        self._unnamed = unnamed_files_work(self._staging)
        self._direct = fsync and self._unnamed and direct_write.works_in(self._staging)
        self._spares = SpareFiles(self._staging)
        if fsync:
            # An object that a killed process had linked but not fsynced is read as durable from now on, so it has to
            # be.
            sync_file_system(self._root)
        self._ring: Ring | None = None
        self._records: Ring | RingView | None = None
        """What reads are asked of, before files are."""
        may_have_ring = ring and staging is None and self._direct and hasattr(os, "RWF_DSYNC")
        if not may_have_ring or has_copy(root):
            self._unpack(root)
        if may_have_ring:
            folder = DiskFolder(root, nonce=lambda: bytes(SystemRng().nonce()))
            self._records = self._ring = Ring(folder, now_ms=SystemClock().now_ms, boot_id=boot_id())
            for key in self._ring.names():
                self._keep_one(self._ring, key)

    def _unpack(self, root: Path) -> None:
        """Records get files, each durable before its name is there, as its record was: else a power cut could leave an
        empty file of that name. Raises OSError, UnreadableRing, NotApplied.
        """
        fsync, self._fsync = self._fsync, True
        try:
            unpack(root, self._create_file, boot_id=boot_id())
        finally:
            self._fsync = fsync

    def close(self) -> None:
        """Nothing is open between calls, but for the ring."""
        if self._ring is not None:
            self._ring.close()

    def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Raises Conflict, NotApplied, UnknownOutcome."""
        if self._ring is None or not key.startswith(READ_SELDOM_PREFIX):
            self._create_file(key, parts)
            return
        with self._ring.entering(key):
            if self._has_file(key) or not self._ring.create(key, parts):
                self._create_file(key, parts)

    def _keep_one(self, ring: Ring, key: str) -> None:
        """Where a file has that key, too, the one that was made later stays: the file where who gave each record its
        file ended in the middle, the record where a power cut took back that an older file was deleted. Raises OSError.
        """
        made = ring.meta(key)
        try:
            found = os.lstat(self._prefix + key)
        except (FileNotFoundError, NotADirectoryError):
            return
        if made is not None and found.st_mtime_ns // 1_000_000 < made.modified_ms:
            Path(self._prefix + key).unlink()
        else:
            ring.delete(key)

    def _has_file(self, key: str) -> bool:
        """Raises NotApplied where that is not known."""
        try:
            os.lstat(self._prefix + key)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise NotApplied(self._explain("create", key, error)) from error
        return True

    def _create_file(self, key: str, parts: Sequence[Buffer]) -> None:
        try:
            fd, staged_name = self._write(parts, read_seldom=key.startswith(READ_SELDOM_PREFIX))
        except OSError as error:
            raise NotApplied(self._explain("create", key, error)) from error
        try:
            self._publish(key, source=staged_name or f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
            if staged_name:
                with contextlib.suppress(OSError):  # the next start clears it
                    Path(staged_name).unlink()

    def read(self, key: str, *, start: int, length: int | None) -> bytes:
        """Raises ObjectMissing, StoreUnavailable."""
        if self._records is not None and key.startswith(READ_SELDOM_PREFIX):
            found = self._records.read(key, start=start, length=length)
            if found is not None:
                return found
        path = self._prefix + key
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = read_range(fd, start=start, length=length)
                if key.startswith(READ_SELDOM_PREFIX) and not has_name(fd, path):
                    raise ObjectMissing(key)  # deleted meanwhile, and the file may have been written anew
                return data
            finally:
                os.close(fd)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectMissing(key) from None
        except OSError as error:
            raise StoreUnavailable(self._explain("get", key, error)) from error

    def head(self, key: str) -> ObjectMeta:
        """Raises ObjectMissing, StoreUnavailable."""
        try:
            found = self._meta(key)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissing(key) from None
        except OSError as error:
            raise StoreUnavailable(self._explain("head", key, error)) from error
        if found is None:
            raise ObjectMissing(key)
        return found

    def delete(self, key: str) -> None:
        """Removes the file and the folders that this leaves empty. Not fsynced: a power cut may bring the object back.
        Raises StoreUnavailable.
        """
        if self._ring is not None and self._ring.delete(key):
            return
        path = self._prefix + key
        try:
            with self._gate(key):
                if not self._keep_spare(key, path):
                    Path(path).unlink()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            raise StoreUnavailable(self._explain("delete", key, error)) from error
        folder = os.path.dirname(path)
        while folder != self._root and self._remove_if_empty(folder):
            self._spares.forget(folder)
            folder = os.path.dirname(folder)

    def walk(self, folder: str, *, name_prefix: str, after: str) -> Iterator[ObjectMeta]:
        """Objects below `folder` (empty, or with its final slash) whose key goes on with `name_prefix` and is greater
        than `after`.

        Ascending by key. Holds the names of one folder per level, never the tree. Raises StoreUnavailable.
        """
        try:
            yield from self._walk(folder, name_prefix, after)
        except OSError as error:
            raise StoreUnavailable(self._explain("list", folder, error)) from error

    def _keep_spare(self, key: str, path: str) -> bool:
        """Not of a folder that nothing was made in: it may never be made durable again, and what left it never be
        written. Raises OSError.
        """
        is_ours = os.path.dirname(path) in self._durable_folders
        return self._direct and key.startswith(READ_SELDOM_PREFIX) and is_ours and self._spares.keep(path)

    def _write(self, parts: Sequence[Buffer], *, read_seldom: bool) -> tuple[int, str]:
        """(descriptor, name or "") of a new file that holds the parts, fsynced. Raises OSError, leaving nothing."""
        name = ""
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        direct = self._direct and size_bytes >= direct_write.SIZE_BYTES_MIN
        if direct and read_seldom and (spare := self._spares.open(size_bytes)) is not None:
            fd, name = spare
        elif self._unnamed:
            fd = os.open(
                self._staging, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0), 0o644
            )
        else:
            with self._lock:
                self._staged_count += 1
                name = f"{self._staging}/{self._staged_count}"
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            if direct:
                direct_write.write_direct(fd, parts)
            else:
                write_all(fd, parts)
            self._sync(fd)
            if read_seldom and not direct and self._fsync and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except BaseException as error:
            os.close(fd)
            if name:
                Path(name).unlink()
            if isinstance(error, OSError) and error.errno in _NO_SPACE:
                self._spares.drop()
            raise
        return fd, name

    def _publish(self, key: str, *, source: str) -> None:
        folder, _, name = (self._prefix + key).rpartition("/")
        try:
            folder_fd = self._link(source, folder, name)
        except OSError as error:
            raise NotApplied(self._explain("create", key, error)) from error
        except _NameTaken as taken:
            # Who is told of a conflict reads the object and builds on it, so it must be durable although somebody else
            # made it.
            self._settle_or_unknown(key, folder, taken.folder_fd)
            raise Conflict(key) from None
        self._settle_or_unknown(key, folder, folder_fd)

    def _link(self, source: str, folder: str, name: str) -> int:
        """Links into the folder, making it where it is missing; the folder's open descriptor.

        Raises _NameTaken, UnknownOutcome, and OSError or NotApplied where the link certainly was not made.
        """
        for _ in range(_MAKE_FOLDER_ATTEMPTS_MAX):
            try:
                folder_fd = open_folder(folder)
            except FileNotFoundError:
                with contextlib.suppress(FileNotFoundError, FileExistsError):  # it or its parent was removed meanwhile
                    Path(folder).mkdir(parents=True, exist_ok=True)
                continue
            try:
                # With a folder descriptor this is linkat with AT_SYMLINK_FOLLOW, which is what /proc/self/fd needs;
                # without, it is not.
                with self._gate(folder[len(self._prefix) :] + "/"):
                    os.link(source, name, dst_dir_fd=folder_fd, follow_symlinks=True)
            except FileExistsError:
                raise _NameTaken(folder_fd) from None
            except FileNotFoundError:  # a concurrent delete left the folder empty and removed it
                os.close(folder_fd)
            except OSError as error:
                os.close(folder_fd)
                if error.errno in _LINK_NOT_MADE:
                    raise
                raise UnknownOutcome(self._explain("create", name, error)) from error
            else:
                return folder_fd
        raise NotApplied(f"create {name}: folder {folder} is removed each time it is made; try again")

    def _settle_or_unknown(self, key: str, folder: str, folder_fd: int) -> None:
        try:
            if self._fsync:
                self._settle(folder, folder_fd)
        except OSError as error:
            raise UnknownOutcome(self._explain("create", key, error)) from error
        finally:
            os.close(folder_fd)

    def _make_durable(self, folder: str) -> None:
        folder_fd = open_folder(folder)
        try:
            self._settle(folder, folder_fd)
        finally:
            os.close(folder_fd)

    def _settle(self, folder: str, folder_fd: int) -> None:
        """Makes durable what is in the folder; and its own entry, and those above it, unless they are known to be."""
        left = self._spares.left(folder)
        self._sync(folder_fd)
        if folder not in self._durable_folders:
            self._make_durable(os.path.dirname(folder))
            with self._lock:
                if os.fstat(folder_fd).st_nlink == 0:
                    return
                self._durable_folders.add(folder)
        if left:
            self._spares.settled(folder, left)

    def _remove_if_empty(self, folder: str) -> bool:
        with self._lock:
            known = folder in self._durable_folders
            self._durable_folders.discard(folder)
            try:
                Path(folder).rmdir()
            except OSError:  # not empty, or gone already
                if known and Path(folder).is_dir():
                    self._durable_folders.add(folder)
                return False
            return True

    def _sync(self, fd: int) -> None:
        if self._fsync:
            sync_file(fd)

    def _walk(self, folder: str, name_prefix: str, after: str) -> Iterator[ObjectMeta]:
        """Where an object is gone by the time that its size is asked for, the names above it are looked up again: as if
        keys were read one by one, upwards. A row that grows above while it is deleted below is so never passed over
        (docs/stores.md, "What a listing is")."""
        gone: str | None = after
        while gone is not None:
            after, gone = gone, None
            for key in self._keys(folder, name_prefix, after):
                if key.endswith("/"):
                    yield from self._walk(key, "", after)
                    continue
                try:
                    found = self._meta(key)
                except FileNotFoundError:
                    gone = key
                    break
                if found is not None:
                    yield found

    def _keys(self, folder: str, name_prefix: str, after: str) -> list[str]:
        """Ascending; those of folders end with the slash."""
        names = self._names(folder)
        if names is None:
            return []
        self._listed(folder)
        keys = []
        for name, is_folder in names:
            if name.startswith(".") or not name.startswith(name_prefix):
                continue
            key = folder + name
            if is_folder:
                key += "/"  # keys below it sort with the slash: `a-b` < `a/b` < `a0`
                if key < after and not after.startswith(key):
                    continue
            elif key <= after:
                continue
            keys.append(key)
        keys.sort()
        return keys

    def _names(self, folder: str) -> "Collection[Name] | None":
        """Those of files and of the ring's records, of one moment; None: there is no such folder."""
        path = self._prefix + folder
        if self._records is None or not (folder.startswith(READ_SELDOM_PREFIX) or not folder):
            return _names_in(path)
        names, below = self._records.together(folder, lambda: _names_in(path))
        records = {Name(name.removesuffix("/"), name.endswith("/")) for name in below}
        return {*(names or ()), *records} if records or names is not None else None

    def _gate(self, key: str) -> contextlib.AbstractContextManager[object]:
        """Held while a name comes or goes beside the ring's."""
        if self._ring is None or not key.startswith(READ_SELDOM_PREFIX):
            return contextlib.nullcontext()
        return self._ring.changing()

    def _meta(self, key: str) -> ObjectMeta | None:
        """None: it is something else. Raises OSError; FileNotFoundError where there is nothing."""
        if self._records is not None and (found := self._records.meta(key)) is not None:
            return found
        status = os.lstat(self._prefix + key)
        return _meta(key, status) if stat.S_ISREG(status.st_mode) else None

    def _listed(self, folder: str) -> None:
        """The names in this folder are about to be told. All that one process sees it has made durable itself."""

    def _explain(self, verb: str, key: str, error: OSError) -> str:
        remedy = _REMEDIES.get(error.errno or 0, "look at the kernel's log")
        return f"{verb} {key}: data folder {self._root}: {error.strerror}: {remedy}"


def _names_in(path: str) -> list[Name] | None:
    try:
        return names_in(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def clear_staging(root: Path) -> Path:
    """Makes the folder for what is half-written, or empties it. Raises OSError."""
    staging = root / STAGING_NAME
    staging.mkdir(exist_ok=True)
    for left in staging.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
    return staging


class _NameTaken(Exception):
    """The name exists; `folder_fd` is its open folder."""

    def __init__(self, folder_fd: int) -> None:
        super().__init__()
        self.folder_fd = folder_fd


def _meta(key: str, found: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key=key, size_bytes=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000)
