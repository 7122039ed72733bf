"""Keys of requests that were accepted, and their answers, in files of the channel's folder that outlive the segments.

Entries are appended, and durable before anybody is answered. They have a bound in bytes, and the newest are kept: where
the file has so many it becomes the older one, in whose place an earlier older one goes. They are read one by one: the
files of all channels may be larger than memory. Blocking; raises OSError.
"""

import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
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
FILES: Final = (FILE, OLDER)
BYTES_MAX: Final = 16 << 20
"""The most in each of the two files, or one entry: what a sidecar holds of a channel's keys in memory fits into one."""
EXTRA_BYTES: Final = 512
"""What a key and its answer take in memory beside their own bytes, about."""
_BUFFER_BYTES: Final = 256 << 10
_ENTRY: Final = struct.Struct("<II")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Once).decode

log = structlog.get_logger()


def kept_bytes(key: str, body: bytes) -> int:
    """What they take in memory, about."""
    return len(key) + len(body) + EXTRA_BYTES


class KeyFiles:
    """One channel's, for the one process that has its folder."""

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._path, self._older = folder / FILE, folder / OLDER
        self._bytes_max = bytes_max
        self._fd = -1
        self._size_bytes = 0

    def recover(self, now_ms: int) -> None:
        """To be called before anything is appended.

        What a dead process wrote to a segment and not here yet is in its last group, which is in the newest segment: it
        is added. An older file goes where the time of all that is in it is over.
        """
        known: set[int] = set()
        is_over = True
        for one, _ in _entries(self._older):
            known.add(_mark(one))
            is_over = is_over and one.until_ms <= now_ms
        whole_bytes = 0
        for one, end in _entries(self._path):
            known.add(_mark(one))
            whole_bytes = end
        if self._path.exists() and self._path.stat().st_size > whole_bytes:
            os.truncate(self._path, whole_bytes)  # half an entry, which was nobody's
        missing = [one for one in _in_newest_segment(self._folder) if _mark(one) not in known]
        if missing:
            self.append(missing)
        if is_over:
            self._older.unlink(missing_ok=True)

    def read(self, now_ms: int, *, kept_bytes_max: int = BYTES_MAX) -> list[Once]:
        """The newest whose time is not over, the oldest of them first: as many as take so much in memory."""
        found: deque[Once] = deque()
        size_bytes = 0
        for path in (self._older, self._path):
            for one, _ in _entries(path):
                if one.until_ms <= now_ms:
                    continue
                found.append(one)
                size_bytes += kept_bytes(one.key, one.body)
                while size_bytes > kept_bytes_max:
                    over = found.popleft()
                    size_bytes -= kept_bytes(over.key, over.body)
        return list(found)

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


def over_at_ms(folder: Path) -> int:
    """When the windows of all that are kept there are over, in ms since 1970; 0: there are none."""
    return max((one.until_ms for name in FILES for one, _ in _entries(folder / name)), default=0)


def _mark(one: Once) -> int:
    """Differs for entries that differ, as far as this process can tell."""
    return hash((one.key, one.until_ms))


def _entries(path: Path) -> Iterator[tuple[Once, int]]:
    """Those up to the first that is torn or damaged, and where each ends."""
    try:
        file = path.open("rb", buffering=_BUFFER_BYTES)
    except FileNotFoundError:
        return
    with file:
        at, size_bytes = 0, os.fstat(file.fileno()).st_size
        while at + _ENTRY.size <= size_bytes:
            length, crc = _ENTRY.unpack(file.read(_ENTRY.size))
            payload = file.read(min(length, size_bytes - at - _ENTRY.size))
            if len(payload) < length or crc32c(payload) != crc:
                break
            try:
                one = _decode(payload)
            except msgspec.MsgspecError:
                break
            at += _ENTRY.size + length
            yield one, at
        if at < size_bytes:
            log.warning("keys of requests end in what is none", file=str(path), bytes=size_bytes - at)


def _in_newest_segment(folder: Path) -> Iterator[Once]:
    """As far as it can be read."""
    for file in segments_in(folder)[-1:]:
        try:
            reader = SegmentReader(file)
        except (SpoolDamaged, SpoolTooNew):
            return
        try:
            while (head := reader.head()) is not None:
                yield from [one.once for one in reader.messages(head) if one.once is not None]
                reader.skip(head)
        except SpoolDamaged:
            pass
        finally:
            reader.close()
