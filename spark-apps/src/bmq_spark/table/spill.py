"""Records of a task that do not fit its memory: in one temporary file, grouped by folder, read back folder by folder.

The temporary folder is the task's own and goes with it. One that a killed process left is removed by the next: its lock
is free.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from bmq_spark.errors import JobStopped

_PREFIX: Final = "bmq-table-"
_YOUNG_S: Final = 60
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class Spill:
    """Tables by folder number, in the order in which they came."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path = folder / "spilled"
        self._schema = schema
        self._file = self._path.open("w+b")
        self._places: dict[int, list[tuple[int, int]]] = {}

    def add(self, folder: int, table: pa.Table) -> None:
        """Raises OSError."""
        start = self._file.seek(0, os.SEEK_END)
        with pa.ipc.new_stream(self._file, self._schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_table(table)
        self._places.setdefault(folder, []).append((start, self._file.tell()))

    @property
    def folders(self) -> list[int]:
        """Those that have something here, rising."""
        return sorted(self._places)

    def read(self, folder: int) -> Iterator[pa.Table]:
        """What was added of that folder, one by one."""
        self._file.flush()
        for start, end in self._places.get(folder, ()):
            self._file.seek(start)
            yield pa.ipc.open_stream(pa.BufferReader(self._file.read(end - start))).read_all()

    def close(self) -> None:
        """The file goes with its folder."""
        self._file.close()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder of this task's own, below Spark's local folder where it has one. Raises JobStopped where there is no
    room.
    """
    root = Path((os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0])
    with room_in(root):
        root.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(root)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Says which folder is full, and what helps."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise JobStopped(
            f"temporary folder {folder}: {os.strerror(error.errno or 0)}: free space there, or name another by "
            "SPARK_LOCAL_DIRS or TMPDIR; nothing was committed"
        ) from error


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < _YOUNG_S:  # its lock may not have been taken yet
                continue
            lock = os.open(folder / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
