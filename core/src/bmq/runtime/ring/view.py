"""What a ring has, for who only looks while another process may be writing to it: a listing reads its files anew.

And for who does without it from now on.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bmq.errors import Conflict, StoreUnavailable
from bmq.ports import ObjectMeta
from bmq.runtime.file_io import open_folder, sync_file_system
from bmq.runtime.ring.files import FOLDER_NAME, DiskFile, DiskFolder
from bmq.runtime.ring.format import BLOCK_BYTES, Head, UnreadableRing, decode_head, head_bytes
from bmq.runtime.ring.names import Names
from bmq.runtime.ring.scan import Found, living


class RingView:
    """See `ring.Ring`, of which it has what reads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.gate = threading.Lock()
        self._looks = threading.Lock()
        self._records: dict[str, tuple[Path, Found]] = {}
        self._names = Names()

    def below(self, folder: str) -> set[str]:
        """What was in the folder when was last looked, the names of folders with their slash."""
        return self._names.below(folder)

    def meta(self, key: str) -> ObjectMeta | None:
        """None: it is not here, as far as was last looked."""
        if (known := self._records.get(key)) is None:
            return None
        head = known[1].head
        return ObjectMeta(key=key, size_bytes=head.size_bytes, modified_ms=head.made_ms)

    def read(self, key: str, *, start: int, length: int | None) -> bytes | None:
        """None: it is not where it was when was last looked. Raises StoreUnavailable."""
        try:
            data = self._read(key)
        except OSError as error:
            raise StoreUnavailable(f"get {key}: {error.strerror}") from error
        return None if data is None else data[start : None if length is None else start + length]

    def look(self) -> None:
        """Reads what there is now. Raises OSError."""
        with self._looks:
            files = self._files()
            try:
                found = living(files)
                names = Names()
                for key in found.records:
                    names.add(key)
                self._names = names
                self._records = {key: (files[place].path, one) for key, (place, one) in found.records.items()}
            finally:
                _close(files)

    def _read(self, key: str) -> bytes | None:
        if (known := self._records.get(key)) is None:
            return None
        path, found = known
        files = self._files()
        try:
            file = next((one for one in files if one.path == path), None)
            return None if file is None else _whole(file, found.block, found.head)
        finally:
            _close(files)

    def _files(self) -> list[DiskFile]:
        try:
            return _opened(self._root)
        except UnreadableRing as error:
            raise OSError(errno.EIO, str(error)) from error


def has_copy(root: Path) -> bool:
    """Whether somebody made a copy by links of one of its files. Raises OSError, UnreadableRing."""
    files = _opened(root)
    try:
        return any(file.has_copy for file in files)
    finally:
        _close(files)


def unpack(root: Path, create: Callable[[str, Sequence[bytes]], None]) -> None:
    """Each object gets a file by `create`, and the ring goes. Where several do so, one does it. Raises OSError and
    UnreadableRing, and what `create` does, but for Conflict.
    """
    folder = root / FOLDER_NAME
    try:
        lock = open_folder(str(folder))
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = _opened(root)
        try:
            for key, (place, found) in sorted(living(files).records.items()):
                data = _whole(files[place], found.block, found.head)
                assert data is not None, key  # nobody writes to it
                with suppress(Conflict):
                    create(key, [data])
            sync_file_system(str(root))  # they were durable, whoever opens it now
            for file in files:
                file.remove()
            DiskFolder(root, nonce=bytes, writes=False).remove()
        finally:
            _close(files)
    finally:
        os.close(lock)


def _opened(root: Path) -> list[DiskFile]:
    return list(DiskFolder(root, nonce=bytes, writes=False).files())


def _close(files: Sequence[DiskFile]) -> None:
    for file in files:
        file.close()


def _whole(file: DiskFile, block: int, head: Head) -> bytes | None:
    """The record's bytes; None: another one is there by now."""
    at = block * BLOCK_BYTES
    before = decode_head(file.read(at, BLOCK_BYTES), ring_id=file.ring_id)
    data = file.read(at + head_bytes(head.key), head.size_bytes)
    after = decode_head(file.read(at, BLOCK_BYTES), ring_id=file.ring_id)
    return data if before == after == head and head.is_of(data) else None
