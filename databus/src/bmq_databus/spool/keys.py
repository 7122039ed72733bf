"""Keys of requests that were accepted, and their answers, in files of the channel's folder that outlive the segments.

Entries are appended, and durable before anybody is answered. They have a bound in bytes, and the newest are kept: where
the file has so many it becomes the older one, in whose place an earlier older one goes. Blocking; raises OSError.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog
from crc32c import crc32c

from bmq.runtime.file_io import sync_file, sync_folder, write_all
from bmq_databus.errors import SpoolDamaged, SpoolTooNew
from bmq_databus.spool.frames import Once
from bmq_databus.spool.segments import SegmentReader, segments_in

FILE: Final = "keys"
OLDER: Final = "keys.1"
BYTES_MAX: Final = 16 << 20
"""The most in each of the two files, or one entry: what a sidecar holds of a channel's keys in memory fits into one."""
_ENTRY: Final = struct.Struct("<II")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Once).decode

log = structlog.get_logger()


class KeyFiles:
    """One channel's, for the one process that has its folder."""

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._path, self._older = folder / FILE, folder / OLDER
        self._bytes_max = bytes_max
        self._fd = -1
        self._size_bytes = 0

    def recover(self, now_ms: int) -> list[Once]:
        """The entries whose time is not over, the oldest first; to be called before anything is appended.

        What a dead process wrote to a segment and not here yet is in its last group, which is in the newest segment: it
        is added.
        """
        older, _ = _entries(self._older)
        newest, whole_bytes = _entries(self._path)
        if self._path.exists() and self._path.stat().st_size > whole_bytes:
            os.truncate(self._path, whole_bytes)  # half an entry, which was nobody's
        known = {(one.key, one.until_ms) for one in (*older, *newest)}
        missing = [one for one in _in_newest_segment(self._folder) if (one.key, one.until_ms) not in known]
        if missing:
            self.append(missing)
        if self._older.exists() and all(one.until_ms <= now_ms for one in older):
            self._older.unlink()
        return [one for one in (*older, *newest, *missing) if one.until_ms > now_ms]

    def append(self, entries: Sequence[Once]) -> None:
        """Durable when it returns; where it raises, none of them is there."""
        payloads = [_encode(one) for one in entries]
        data = b"".join(_ENTRY.pack(len(one), crc32c(one)) + one for one in payloads)
        if self._size_bytes and self._size_bytes + len(data) > self._bytes_max:
            self.close()
            self._path.replace(self._older)
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size_bytes = os.fstat(self._fd).st_size
            sync_folder(self._folder)
        try:
            write_all(self._fd, [data])
            sync_file(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size_bytes)
            raise
        self._size_bytes += len(data)

    def close(self) -> None:
        """Appending opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size_bytes = -1, 0


def _entries(path: Path) -> tuple[list[Once], int]:
    """Those up to the first that is torn or damaged, and where it begins."""
    found: list[Once] = []
    at = 0
    try:
        view = memoryview(path.read_bytes())
    except FileNotFoundError:
        return found, at
    while at + _ENTRY.size <= len(view):
        length, crc = _ENTRY.unpack_from(view, at)
        payload = view[at + _ENTRY.size : at + _ENTRY.size + length]
        try:
            if len(payload) < length or crc32c(payload) != crc:
                break
            found.append(_decode(payload))
        except msgspec.MsgspecError:
            break
        at += _ENTRY.size + length
    if at < len(view):
        log.warning("keys of requests end in what is none", file=str(path), bytes=len(view) - at)
    return found, at


def _in_newest_segment(folder: Path) -> list[Once]:
    """As far as it can be read."""
    found: list[Once] = []
    for file in segments_in(folder)[-1:]:
        try:
            reader = SegmentReader(file)
        except (SpoolDamaged, SpoolTooNew):
            return found
        try:
            while (head := reader.head()) is not None:
                found += [one.once for one in reader.messages(head) if one.once is not None]
                reader.skip(head)
        except SpoolDamaged:
            pass
        finally:
            reader.close()
    return found
