"""Segments that are not done with: what waits in each, and what became of the rest. Blocking; raises OSError."""

from collections.abc import Sequence
from pathlib import Path

import structlog

from bmq_databus.errors import SpoolDamaged, SpoolTooNew
from bmq_databus.spool.done import Done
from bmq_databus.spool.frames import BEGUN, Step
from bmq_databus.spool.segments import SegmentFile, StepsWriter, delete_orphans, scan, segments_in

log = structlog.get_logger()


class UndoneSegment:
    """A segment that is not done with. What is written beside it, one thread writes."""

    __slots__ = (
        "_is_over",
        "_steps",
        "begun",
        "done",
        "end",
        "file",
        "is_damaged",
        "newest_ms",
        "size_bytes",
        "torn_bytes",
    )

    def __init__(self, file: SegmentFile, *, end: int, size_bytes: int, newest_ms: int) -> None:
        self.file = file
        self.end = end
        """The number behind its last durable message."""
        self.size_bytes = size_bytes
        self.newest_ms = newest_ms
        self.begun = file.first
        """All below it were with a producer of an earlier process."""
        self.done = Done(file.first)
        self.is_damaged = False
        self.torn_bytes = 0
        """At its end, which are no frame."""
        self._steps: StepsWriter | None = None
        self._is_over = False

    @property
    def undone(self) -> int:
        """How many of its messages need something yet."""
        return self.done.lacking(self.end)

    def add(self, steps: Sequence[Step]) -> None:
        """Writes what became of messages beside it, unless it was given up. Blocking."""
        if self._is_over:
            return
        if self._steps is None:
            self._steps = StepsWriter(self.file)
        self._steps.append(steps)

    def sync(self) -> None:
        """What is written beside it is durable then. Blocking."""
        if self._steps is not None:
            self._steps.sync()

    def close(self) -> None:
        """Nothing is written beside it any more."""
        self._is_over = True
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def give_back(self) -> None:
        """Its space, or, where it is damaged, keeps it aside. Blocking."""
        self.close()
        if self.is_damaged:
            aside = self.file.set_aside()
            log.error("damaged spool is kept aside", file=str(aside))
        else:
            self.file.delete()


def looked_at(file: SegmentFile) -> UndoneSegment:
    """What a segment has, and what became of it; changes nothing, and another process may write to it and beside it.
    Raises SpoolTooNew, SpoolDamaged, FileNotFoundError.
    """
    steps = file.steps()  # first: then none is of a message that is not seen
    has = scan(file)
    segment = UndoneSegment(
        file, end=has.next_number, size_bytes=has.size_bytes, newest_ms=int(file.path.stat().st_mtime * 1000)
    )
    segment.torn_bytes = has.torn_bytes
    segment.is_damaged = has.torn_bytes > 0
    for step in steps:
        numbers = range(step.first, step.first + step.count)
        if step.kind == BEGUN:
            segment.begun = max(segment.begun, numbers.stop)
        else:
            segment.done.add(numbers)
    return segment


def undone_in(folder: Path) -> tuple[list[UndoneSegment], int]:
    """What is not done with, and a number above all that were given. Blocking."""
    found = []
    next_number = delete_orphans(folder)
    for file in segments_in(folder):
        above_all = file.first + file.path.stat().st_size  # whatever it has: each message takes some bytes
        try:
            segment = looked_at(file)
        except SpoolTooNew as error:
            log.error("spool is of a later version", segment=str(file.path), why=str(error))
            next_number = max(next_number, above_all)
            continue
        except SpoolDamaged as error:
            log.error("spool is damaged", segment=str(file.set_aside()), why=str(error))
            next_number = max(next_number, above_all)
            continue
        next_number = max(next_number, segment.end)
        if segment.torn_bytes:
            log.warning(
                "spool ends in what is no frame, and is kept aside once the rest is sent",
                segment=str(file.path),
                bytes=segment.torn_bytes,
            )
        if not segment.undone:
            segment.give_back()
            continue
        found.append(segment)
    return found, next_number
