"""Files of a folder that are there as a whole or not at all, also after a power cut.

A file is written and fsynced under a name of its own that no listing shows, then linked or renamed to its name, and the
folders on the way are fsynced. So a name never shows part of an object, and what has been acknowledged is on the disk.
Several processes may write to one folder.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from bmq.errors import NotApplied
from bmq.runtime.file_io import REMEDIES, open_folder, sync_file

T = TypeVar("T")
TRIES_MAX: Final = 3
_HALF_WRITTEN: Final = re.compile(r"(^|/)\.[^/]+\.[0-9a-f]{16}\.tmp$")


def create_file(path: Path, content: bytes, *, root: Path) -> bool:
    """Whether `path` is there with that content now; False where another content is. Folders from `root` on are made
    durable.

    Raises NotApplied (one line).
    """

    def link(staging: Path) -> bool:
        try:
            os.link(staging, path)
        except FileExistsError:
            return path.read_bytes() == content
        return True

    with _refusals(path):
        is_there = _placed(path, lambda staged: _write(staged, content), link)
        if is_there:
            _sync_folders(path, root)
    return is_there


def replace_file(path: Path, source: Path, *, root: Path) -> None:
    """Makes `path` a copy of `source` at once. Raises NotApplied (one line)."""
    with _refusals(path):
        _placed(path, lambda staged: _copy(staged, source), lambda staging: os.replace(staging, path))
        _sync_folders(path, root)


def is_half_written(key: str) -> bool:
    """Whether a name in a folder is that of a file that is being written, or that a killed process left."""
    return _HALF_WRITTEN.search(key) is not None


def _placed(path: Path, fill: Callable[[BinaryIO], None], place: Callable[[Path], T]) -> T:
    """What `place` does with the staged file. It is written again where somebody took it away before: a vacuum that is
    told to take what is being written for old, or whose clock is ahead.
    """
    for _ in range(TRIES_MAX - 1):
        with _staged(path, fill) as staging:
            try:
                return place(staging)
            except FileNotFoundError:
                if staging.exists():
                    raise
    with _staged(path, fill) as staging:
        return place(staging)


@contextmanager
def _staged(path: Path, fill: Callable[[BinaryIO], None]) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staging.open("xb") as file:
            fill(file)
            file.flush()
            sync_file(file.fileno())
        yield staging
    finally:
        with suppress(FileNotFoundError):
            staging.unlink()


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0)
        raise NotApplied(f"write {path}: {error.strerror or error}" + (f": {remedy}" if remedy else "")) from error


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _copy(file: BinaryIO, source: Path) -> None:
    with source.open("rb") as opened:
        shutil.copyfileobj(opened, file, 1 << 20)


def _sync_folders(path: Path, root: Path) -> None:
    for folder in path.parents:
        descriptor = open_folder(str(folder))
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        if folder == root:
            return
