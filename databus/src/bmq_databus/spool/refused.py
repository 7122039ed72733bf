"""Messages that were accepted and that the cluster takes never: a line of JSON for each, which people can read.

They have a bound in bytes, and the newest of them are kept: where the file has half of that it becomes the older one,
in whose place an earlier older one goes. Blocking; raises OSError.
"""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import structlog

from bmq.runtime.file_io import sync_file, sync_folder, write_all
from bmq_databus.spool.frames import Spooled

FILE: Final = "refused.jsonl"
OLDER: Final = "refused.1.jsonl"
_TRIMMED: Final = "refused.trimmed"
LINE_BYTES_MAX: Final = 256 << 20
"""What is longer is no line of a refused message: a frame has half of that at most."""
CHUNK_BYTES: Final = 1 << 20

log = structlog.get_logger()


class Refused(msgspec.Struct, frozen=True):
    """Bytes are base64 in the file."""

    number: int
    why: str
    message: Spooled


class Unreadable(NamedTuple):
    """A line that is no refused message. Lines are counted from 1 on."""

    path: Path
    line: int
    why: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Refused).decode


class RefusedFiles:
    """One channel's, for the one process that has its folder."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        self._folder = folder
        self._path, self._older = folder / FILE, folder / OLDER
        self._bytes_max = bytes_max
        self.dropped = 0
        """Messages that gave way or had no room, since they were last counted."""

    def recover(self) -> None:
        """Puts right what a process left that died, or had no bound or another one. Half a line goes: the spool has
        its message yet.
        """
        (self._folder / _TRIMMED).unlink(missing_ok=True)
        if size_of(self._path):
            self._end_with_a_line()
        if size_of(self._older) + size_of(self._path) > self._bytes_max:
            self._drop_older()
        if size_of(self._path) > self._bytes_max:
            self._trim()

    def keep(self, refused: deque[Refused]) -> None:
        """Takes out of `refused` what is durable then, which is all of it where nothing is raised."""
        while refused:
            lines: list[bytes] = []
            held_bytes, size_bytes = size_of(self._path), 0
            for one in refused:
                line = _encode(one) + b"\n"
                if (lines or held_bytes) and held_bytes + size_bytes + len(line) > self._bytes_max // 2:
                    break
                lines.append(line)
                size_bytes += len(line)
            if not lines:
                self._rotate()
            elif size_bytes > self._bytes_max:
                refused.popleft()
                self.dropped += 1
            else:
                if size_of(self._older) + held_bytes + size_bytes > self._bytes_max:
                    self._drop_older()
                self._append(lines)
                for _ in lines:
                    refused.popleft()

    def _append(self, lines: list[bytes]) -> None:
        is_new = not self._path.exists()
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        before_bytes = os.fstat(fd).st_size
        try:
            write_all(fd, lines)
            sync_file(fd)
        except OSError:
            os.ftruncate(fd, before_bytes)  # or what is written next would be of one line with it
            raise
        finally:
            os.close(fd)
        if is_new:
            sync_folder(self._folder)

    def _rotate(self) -> None:
        count = lines_in(self._older)
        self._path.replace(self._older)
        self.dropped += count
        sync_folder(self._folder)

    def _drop_older(self) -> None:
        count = lines_in(self._older)
        self._older.unlink(missing_ok=True)
        self.dropped += count

    def _end_with_a_line(self) -> None:
        with self._path.open("r+b") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            end = _behind_last_line(file, size_bytes)
            if end == size_bytes:
                return
            file.seek(end)
            try:
                _decode(file.read(LINE_BYTES_MAX))
            except (msgspec.MsgspecError, UnicodeError):
                log.warning("refused messages end within a line, which goes", file=str(self._path))
                file.truncate(end)
            else:  # somebody wrote it by hand
                file.seek(size_bytes)
                file.write(b"\n")
            file.flush()
            sync_file(file.fileno())

    def _trim(self) -> None:
        """Keeps the newest, as many as become the older file."""
        trimmed = self._folder / _TRIMMED
        try:
            with self._path.open("rb") as file, open(trimmed, "xb", opener=_private) as kept:
                file.seek(max(0, size_of(self._path) - self._bytes_max // 2 - 1))
                while (rest := file.readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
                    pass
                begin = file.tell()
                while chunk := file.read(CHUNK_BYTES):
                    kept.write(chunk)
                kept.flush()
                sync_file(kept.fileno())
            count = lines_in(self._path, end=begin)
            trimmed.replace(self._path)
        except OSError as error:  # nothing waits for that; it gives way whole when it is the older one
            log.warning("refused messages have more than they may", file=str(self._path), why=error.strerror)
            trimmed.unlink(missing_ok=True)
        else:
            self.dropped += count
            sync_folder(self._folder)


def refused_in(folder: Path) -> Iterator[Refused | Unreadable]:
    """From the oldest on; also while a sidecar adds to them."""
    with ExitStack() as stack:
        files: list[tuple[Path, BinaryIO]] = []
        for path in (folder / FILE, folder / OLDER):
            try:
                file = stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                continue
            if not any(os.path.samestat(os.fstat(file.fileno()), os.fstat(one.fileno())) for _, one in files):
                files.insert(0, (path, file))  # else it has become the older one between these two looks
        for path, opened in files:
            yield from _read(path, opened)


def size_of(path: Path) -> int:
    """In bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def lines_in(path: Path, *, end: int | None = None) -> int:
    """How many, before the byte `end`; 0 where there is no such file."""
    count, left = 0, size_of(path) if end is None else end
    try:
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, CHUNK_BYTES))):
                count += chunk.count(b"\n")
                left -= len(chunk)
    except FileNotFoundError:
        return 0
    return count


def _read(path: Path, file: BinaryIO) -> Iterator[Refused | Unreadable]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        if not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
            return  # it is being written
        number += 1
        try:
            yield _decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            yield Unreadable(path, number, str(error))


def _behind_last_line(file: BinaryIO, end: int) -> int:
    while end:
        begin = max(0, end - CHUNK_BYTES)
        file.seek(begin)
        if (found := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
