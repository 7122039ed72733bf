"""For who does without a ring: each of its objects gets a file."""

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from bmq.errors import Conflict
from bmq.runtime.file_io import open_folder
from bmq.runtime.ring.files import FOLDER_NAME, DiskFolder, closed_at_last
from bmq.runtime.ring.scan import living, raw


def has_copy(root: Path) -> bool:
    """Whether somebody made a copy by links of one of its files. Raises OSError, UnreadableRing."""
    with closed_at_last(DiskFolder(root, nonce=bytes, writes=False).files()) as files:
        return any(file.has_copy for file in files)


def unpack(root: Path, create: Callable[[str, Sequence[bytes]], None], *, boot_id: bytes) -> None:
    """By `create`, durable when it returns, and the ring goes. Where several do so, one does it. Raises OSError and
    UnreadableRing, and what `create` does, but for Conflict.
    """
    try:
        lock = open_folder(str(root / FOLDER_NAME))
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = DiskFolder(root, nonce=bytes, writes=False)
        with closed_at_last(folder.files()) as files:
            for key, (place, found) in sorted(living(files, boot_id=boot_id).records.items()):
                with suppress(Conflict):
                    create(key, [raw(files[place], found)])
            for file in files:
                file.remove()
        folder.remove()
    finally:
        os.close(lock)
