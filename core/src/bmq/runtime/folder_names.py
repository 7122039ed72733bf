"""The names in one folder, all of one moment. Blocking; raises OSError.

Linux answers one call for a folder's entries while it holds the folder's lock, which everything that makes or removes a
name there takes. So what fits into one call is one look. `os.scandir` asks with 32 KiB, some 800 names of the WAL; here
the room grows until all of them fit.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

ROOM_BYTES: Final = 128 << 10
"""3,000 names of the WAL."""
ROOM_BYTES_MAX: Final = 64 << 20
"""A folder with more than a million names is read in several calls."""
_ENTRY: Final = struct.Struct("=QqHB")
_TYPE_UNKNOWN, _TYPE_FOLDER = 0, 4


class Name(NamedTuple):
    """A name, and whether a folder has it."""

    name: str
    is_folder: bool


def names_in(path: str) -> list[Name]:
    """What is in the folder, in no order. Where the system has no such call, as many moments as `os.scandir` takes."""
    if _read_entries is None:
        with os.scandir(path) as entries:
            return [Name(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return [found for data in _read(fd, _read_entries) for found in _parse(data, fd)]
    finally:
        os.close(fd)


def _read(fd: int, read_entries: Callable[[int, int], bytes]) -> list[bytes]:
    room_bytes = ROOM_BYTES
    while True:
        found = [read_entries(fd, room_bytes)]
        while found[-1] and (len(found) == 1 or room_bytes >= ROOM_BYTES_MAX):
            found.append(read_entries(fd, room_bytes))
        if not found[-1]:
            return found
        room_bytes = min(room_bytes * 8, ROOM_BYTES_MAX)
        os.lseek(fd, 0, os.SEEK_SET)


def _parse(data: bytes, fd: int) -> Iterator[Name]:
    at = 0
    while at < len(data):
        _, _, length, kind = _ENTRY.unpack_from(data, at)
        name = os.fsdecode(data[at + _ENTRY.size : data.index(b"\0", at + _ENTRY.size)])
        at += length
        if name not in (".", ".."):
            yield Name(name, _is_folder(name, fd) if kind == _TYPE_UNKNOWN else kind == _TYPE_FOLDER)


def _is_folder(name: str, fd: int) -> bool:
    """Whether a name is a folder's, where the file system does not tell with the name."""
    try:
        return stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode) if os.lstat in os.supports_dir_fd else False
    except FileNotFoundError:
        return False


def _getdents() -> Callable[[int, int], bytes] | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "getdents64", None)
    if call is None:
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)

    def read_entries(fd: int, room_bytes: int) -> bytes:
        room = ctypes.create_string_buffer(room_bytes)
        length = call(fd, room, room_bytes)
        if length < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return room.raw[:length] if length else b""

    return read_entries


_read_entries: Final = _getdents()
