"""The files of a spool: segments that are appended to, read and deleted, and what became of their messages beside each.

Blocking: whoever has a loop calls it in a thread. Raises OSError as it comes.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from bmq.runtime.file_io import read_range, sync_file, sync_folder, write_all
from bmq_databus.errors import SpoolDamaged
from bmq_databus.spool.frames import (
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    FRAME_LENGTH_MAX,
    FRAME_MAGIC,
    HEAD_BYTES,
    STEP_BYTES,
    FrameHead,
    Spooled,
    Step,
    decode_frame,
    decode_frame_head,
    decode_head,
    decode_headless,
    decode_steps,
    encode_head,
    encode_step,
)
from bmq_databus.spool.identity import id_in

SEGMENT_SUFFIX: Final = ".spool"
STEPS_SUFFIX: Final = ".steps"
ASIDE_SUFFIX: Final = ".damaged"
_DIGITS: Final = 20
RESYNC_BYTES: Final = 1 << 20
STEPS_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """One segment, by the number of its first message."""

    folder: Path
    first: int

    @property
    def path(self) -> Path:
        """Its messages."""
        return self.folder / f"{self.first:0{_DIGITS}}{SEGMENT_SUFFIX}"

    @property
    def steps_path(self) -> Path:
        """What became of them; missing where nothing did."""
        return self.path.with_suffix(STEPS_SUFFIX)

    @property
    def aside_path(self) -> Path:
        """Its messages, where it is damaged and kept aside."""
        return self.path.with_suffix(ASIDE_SUFFIX)

    @property
    def aside_steps_path(self) -> Path:
        """What had become of them; versions before this one kept it not."""
        return self.path.with_suffix(ASIDE_SUFFIX + STEPS_SUFFIX)

    @property
    def aside_bytes(self) -> int:
        """What it takes where it is kept aside."""
        found = 0
        for path in (self.aside_path, self.aside_steps_path):
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def steps(self) -> list[Step]:
        """What became of its messages, in the order in which it did."""
        return _steps_of(self.steps_path)

    def aside_steps(self) -> list[Step]:
        """The same, where it is kept aside."""
        return _steps_of(self.aside_steps_path)

    def delete(self) -> None:
        """The messages first. Steps that a death in between leaves are no segment's, and go at the next start."""
        self.path.unlink(missing_ok=True)
        self.steps_path.unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Keeps it under another name, which nothing sends. Its steps follow: without them all of it would be sent
        again, where this process dies in between.
        """
        self.path.rename(self.aside_path)
        self._set_steps_aside()
        return self.aside_path

    def delete_aside(self) -> None:
        """What is kept aside of it."""
        self.aside_path.unlink(missing_ok=True)
        self.aside_steps_path.unlink(missing_ok=True)

    def delete_orphan(self) -> None:
        """Steps whose segment is gone, or is aside already."""
        if self.aside_path.exists():
            self._set_steps_aside()
        else:
            self.steps_path.unlink(missing_ok=True)

    def _set_steps_aside(self) -> None:
        with suppress(FileNotFoundError):
            self.steps_path.rename(self.aside_steps_path)


def _steps_of(path: Path) -> list[Step]:
    try:
        return list(decode_steps(path.read_bytes()))
    except FileNotFoundError:
        return []


def segments_in(folder: Path) -> list[SegmentFile]:
    """All segments, in the order of their messages."""
    return [SegmentFile(folder=folder, first=first) for first in _numbers(folder, SEGMENT_SUFFIX)]


def aside_in(folder: Path) -> list[SegmentFile]:
    """All that are kept aside, in the order of their messages."""
    return [SegmentFile(folder=folder, first=first) for first in _numbers(folder, ASIDE_SUFFIX)]


def delete_orphans(folder: Path) -> int:
    """Deletes steps of segments that are gone: they would be taken for those of a new one. A number above all that
    files of this folder are called by.
    """
    segments = set(_numbers(folder, SEGMENT_SUFFIX))
    steps = _numbers(folder, STEPS_SUFFIX)
    for first in steps:
        if first not in segments:
            SegmentFile(folder=folder, first=first).delete_orphan()
    return max((-1, *segments, *steps, *_numbers(folder, ASIDE_SUFFIX))) + 1


def _numbers(folder: Path, suffix: str) -> list[int]:
    found = [path for path in folder.glob(f"*{suffix}") if len(path.stem) == _DIGITS and path.stem.isdecimal()]
    return sorted(int(path.stem) for path in found if path.is_file())


class SegmentReader:
    """Reads a segment's frames one after another; its file may be written on meanwhile."""

    def __init__(self, segment: SegmentFile, *, aside: bool = False) -> None:
        """`aside`: the one that is kept aside, whose head may be damaged. Raises SpoolDamaged, SpoolTooNew."""
        self._fd = os.open(segment.aside_path if aside else segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if decode_head(read_range(self._fd, start=0, length=HEAD_BYTES)) != segment.first:
                raise SpoolDamaged("its head says another number than its name")
        except SpoolDamaged:
            if not aside:
                os.close(self._fd)
                raise
        except BaseException:
            os.close(self._fd)
            raise
        self._segment = segment
        self._bytes_max = FRAME_LENGTH_MAX if aside else FRAME_BYTES_MAX
        self._own_end: bytes | None = None
        """What a frame that is found has to end with; None: that is not known yet."""
        self.at = HEAD_BYTES
        """Where the next frame begins."""
        self.number = segment.first
        """What its first message has to be."""

    def close(self) -> None:
        """Has no more frames."""
        os.close(self._fd)

    def head(self) -> FrameHead | None:
        """The next frame's; None at the end. Raises SpoolDamaged."""
        data = read_range(self._fd, start=self.at, length=FRAME_HEAD_BYTES)
        if not data:
            return None
        head = decode_frame_head(data)
        if head.first != self.number:
            raise SpoolDamaged(f"a frame begins with message {head.first}, where {self.number} is next")
        return head

    def skip(self, head: FrameHead) -> None:
        """On to the frame behind this one."""
        self.at += FRAME_HEAD_BYTES + head.length
        self.number = head.first + head.count

    def resync(self, least: int, most: int) -> FrameHead | None:
        """On to the next frame of numbers from `least` to before `most`; None where there is none. Frames whose heads
        are whole lead from one to the next, and nothing is looked for in them. Where a head is lost the next one is
        searched for, however far: one that this spool wrote, as messages may have frames within them.
        """
        at: int | None = self.at
        while at is not None:
            while (head := self._head_at(at)) is not None:
                if self._fits(head, at, least, most):
                    self.at, self.number = at, head.first
                    return head
                at += FRAME_HEAD_BYTES + head.length
            at = self._found_behind(at, least, most)
        return None

    def _found_behind(self, at: int, least: int, most: int) -> int | None:
        """Where the next frame begins of which nothing leads there."""
        for found in self._magics(at + 1):
            head = self._head_at(found)
            if head is None or not self._is_own(head, found):
                continue
            if self._own_end or self._fits(head, found, least, most):
                return found
        return None

    def _magics(self, start: int) -> Iterator[int]:
        """Where frames may begin from there on."""
        while data := read_range(self._fd, start=start, length=RESYNC_BYTES):
            found = data.find(FRAME_MAGIC)
            while found >= 0:
                yield start + found
                found = data.find(FRAME_MAGIC, found + 1)
            start += max(1, len(data) - len(FRAME_MAGIC) + 1)

    def _head_at(self, at: int) -> FrameHead | None:
        try:
            return decode_frame_head(read_range(self._fd, start=at, length=FRAME_HEAD_BYTES))
        except SpoolDamaged:
            return None

    def _fits(self, head: FrameHead, at: int, least: int, most: int) -> bool:
        """Whether the frame of that head has such numbers, and its end is there."""
        end = at + FRAME_HEAD_BYTES + head.length
        return least <= head.first <= head.first + head.count <= most and end <= os.fstat(self._fd).st_size

    def _is_own(self, head: FrameHead, at: int) -> bool:
        """Whether the frame that was found there is this spool's. A segment whose first frame has no id is an earlier
        version's.
        """
        if self._own_end is None:
            own_end = id_in(self._segment.folder)
            first = self._head_at(HEAD_BYTES)
            is_earlier = first is not None and self._end_of(first, HEAD_BYTES, len(own_end)) != own_end
            self._own_end = b"" if is_earlier else own_end
        return self._end_of(head, at, len(self._own_end)) == self._own_end

    def _end_of(self, head: FrameHead, at: int, length: int) -> bytes:
        """The last bytes of the frame there."""
        if not length:
            return b""
        return read_range(self._fd, start=at + FRAME_HEAD_BYTES + head.length - length, length=length)

    def messages(self, head: FrameHead) -> tuple[Spooled, ...]:
        """The messages of the next frame. Raises SpoolDamaged, also for a frame that is longer than one may be: it has
        been in memory once, and may not be again; of what is kept aside each is read.
        """
        if head.length > self._bytes_max:
            raise SpoolDamaged(f"a frame of {head.length} bytes: {self._bytes_max} are the most")
        payload = read_range(self._fd, start=self.at + FRAME_HEAD_BYTES, length=head.length)
        if len(payload) < head.length:
            raise SpoolDamaged("it ends within a frame")
        return decode_frame(head, payload)

    def headless(self, end: int) -> tuple[Spooled, ...]:
        """The messages of one frame from here to before the byte `end`, whose head is damaged but for the payload's
        checksum, which is what says that they are whole. Raises SpoolDamaged.
        """
        length = end - self.at - FRAME_HEAD_BYTES
        if not 0 < length <= self._bytes_max:
            raise SpoolDamaged("it is no frame")
        return decode_headless(read_range(self._fd, start=self.at, length=FRAME_HEAD_BYTES + length))

    @property
    def left_bytes(self) -> int:
        """From here to the file's end."""
        return max(0, os.fstat(self._fd).st_size - self.at)


@dataclass(slots=True)
class Scan:
    """What a segment has, by its frames' heads alone."""

    next_number: int
    """Behind its last message."""
    size_bytes: int
    torn_bytes: int = 0
    """At its end, which are no frame: who wrote them died before they were durable, or the disk has lost them."""


def scan(segment: SegmentFile) -> Scan:
    """Reads the heads. Raises SpoolDamaged, SpoolTooNew."""
    reader = SegmentReader(segment)
    try:
        found = Scan(next_number=segment.first, size_bytes=0)
        while True:
            try:
                head = reader.head()
            except SpoolDamaged:
                head = reader.resync(found.next_number, found.next_number + reader.left_bytes)
            if head is None or head.length > reader.left_bytes - FRAME_HEAD_BYTES:
                break
            found.next_number = head.first + head.count
            reader.skip(head)
        found.size_bytes = reader.at
        found.torn_bytes = reader.left_bytes
        return found
    finally:
        reader.close()


class SegmentWriter:
    """Appends frames to a new segment, and to the file beside it what became of messages. What `append` returned for is
    durable.
    """

    def __init__(self, segment: SegmentFile) -> None:
        """Makes the segment; it must not be there."""
        self.segment = segment
        self._fd = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.size_bytes = 0
        try:
            self.append([encode_head(segment.first)])
            sync_folder(segment.folder)
        except BaseException:
            os.close(self._fd)
            segment.path.unlink(missing_ok=True)
            raise

    def append(self, parts: Sequence[Buffer]) -> None:
        """Whole frames, durable when it returns; where it raises none of them is there."""
        try:
            write_all(self._fd, parts)
            sync_file(self._fd)
        except OSError:
            os.ftruncate(self._fd, self.size_bytes)
            os.lseek(self._fd, self.size_bytes, os.SEEK_SET)
            raise
        self.size_bytes += sum(memoryview(part).nbytes for part in parts)

    def close(self) -> None:
        """Takes no more."""
        os.close(self._fd)


class StepsWriter:
    """Appends what became of a segment's messages. In the page cache when `append` returns, so that a killed process
    loses nothing of it; durable by and by. Where `append` raises, none of it is there. Some space is taken beforehand:
    a disk that is full of messages is emptied by noting that they are sent.
    """

    def __init__(self, segment: SegmentFile) -> None:
        self._at = STEP_BYTES * len(segment.steps())
        self._fd = os.open(segment.steps_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # also of a file system that knows no such call
            os.posix_fallocate(self._fd, 0, STEPS_BYTES)

    def append(self, steps: Sequence[Step]) -> None:
        """All of them, behind what is whole: what a failed write left there is written over."""
        os.lseek(self._fd, self._at, os.SEEK_SET)
        data = b"".join(map(encode_step, steps))
        write_all(self._fd, [data])
        self._at += len(data)

    def sync(self) -> None:
        """What was appended is durable then."""
        sync_file(self._fd)

    def close(self) -> None:
        """Takes no more."""
        os.close(self._fd)
