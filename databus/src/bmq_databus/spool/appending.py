"""What is accepted goes behind what was, into the newest segment: in groups, each durable with one fsync, and the keys
of requests beside it. Blocking; one thread at a time uses it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from bmq.ports import Clock
from bmq.runtime.file_io import REMEDIES
from bmq_databus.spool.frames import Once, Spooled, encode_frame
from bmq_databus.spool.keys import BYTES_MAX as KEYS_BYTES_MAX
from bmq_databus.spool.keys import KeyFiles
from bmq_databus.spool.segments import SegmentFile, SegmentWriter
from bmq_databus.spool.sizes import once_bytes
from bmq_databus.spool.undone import UndoneSegment

UNKEPT_MAX: Final = 1_000

log = structlog.get_logger()


class Entering(NamedTuple):
    """Messages that are yet to be written, together. `done` is told of it in the loop."""

    messages: Sequence[Spooled]
    size_bytes: int
    done: "asyncio.Future[None]"
    once: Once | None


class Appended(NamedTuple):
    """What became of a group: the segment that was made for it, if one was, how large the newest one is now, and the
    number behind the last message.
    """

    made: UndoneSegment | None
    size_bytes: int
    end: int


class Appending:
    """One spool's. `begin` comes before everything else."""

    def __init__(self, folder: Path, *, segment_bytes: Callable[[], int], clock: Clock) -> None:
        """`segment_bytes`: how large a segment is when it is full, whenever it is asked."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._spool_id = b""
        self._next_number = 0
        self._writer: SegmentWriter | None = None
        self._keys = KeyFiles(folder)
        self._unkept: deque[Once] = deque(maxlen=UNKEPT_MAX)
        """Keys whose file did not take them yet."""

    def begin(self, spool_id: bytes, next_number: int) -> None:
        """The spool's id, which each frame ends with, and a number above all that were given."""
        self._spool_id, self._next_number = spool_id, next_number

    def recover_keys(self) -> None:
        """What earlier processes kept is whole; before anything is appended."""
        self._keys.recover(self._clock.now_ms())

    def keys(self) -> list[Once]:
        """The newest that are kept, the oldest of them first: as many as a channel may have in memory."""
        return self._keys.read(self._clock.now_ms())

    @property
    def newest(self) -> SegmentFile | None:
        """The segment that is written to; None: the next group begins one."""
        return None if self._writer is None else self._writer.segment

    def append(self, group: Sequence[Entering]) -> Appended:
        """All of them, durable when it returns; where it raises OSError none is there."""
        made = None
        if self._writer is None or self._writer.size_bytes >= self._segment_bytes():
            self.end_segment()
            file = SegmentFile(folder=self._folder, first=self._next_number)
            self._writer = SegmentWriter(file)
            made = UndoneSegment(
                file, end=file.first, size_bytes=self._writer.size_bytes, newest_ms=self._clock.now_ms()
            )
        parts: list[bytes] = []
        end = self._next_number
        for one in group:
            parts += encode_frame(end, one.messages, spool_id=self._spool_id)
            end += len(one.messages)
        self._next_number = end  # whatever the disk has of it: no number is given twice
        try:
            self._writer.append(parts)
        except OSError:
            self.end_segment()
            if made is not None:
                made.file.delete()
            raise
        self._keep([one.once for one in group if one.once is not None])
        return Appended(made, self._writer.size_bytes, end)

    def end_segment(self) -> None:
        """What comes next goes to a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def close(self) -> None:
        """Nothing more is appended."""
        self.end_segment()
        self._keys.close()

    def _keep(self, keys: Sequence[Once]) -> None:
        """Messages are accepted whether or not: a disk that does not take them is asked with the next."""
        if not keys and not self._unkept:
            return
        self._unkept.extend(keys)
        while len(self._unkept) > 1 and sum(map(once_bytes, self._unkept)) > KEYS_BYTES_MAX:
            self._unkept.popleft()
        try:
            self._keys.append(list(self._unkept))
        except OSError as error:
            log.error(
                "keys of requests are not on disk: those that come again after a restart are written again",
                folder=str(self._folder),
                why=error.strerror or str(error),
                remedy=REMEDIES.get(error.errno or 0, "look at the disk"),
            )
        else:
            self._unkept.clear()
