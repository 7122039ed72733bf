"""What can be read of a segment that is kept aside, and has no outcome. Changes nothing. Blocking; raises OSError."""

from collections.abc import Callable, Iterator

from bmq_databus.errors import SpoolDamaged
from bmq_databus.spool.done import Done
from bmq_databus.spool.frames import REFUSED, SENT, FrameHead, Spooled
from bmq_databus.spool.reading import Read
from bmq_databus.spool.segments import SegmentFile, SegmentReader


def salvage(file: SegmentFile, *, lose: Callable[[int, str], None]) -> Iterator[list[Read]]:
    """Messages by frames, each of which its checksum says is what was written. `lose` is told of each place that is
    not, with the number of its messages, 0 where that is not known. Raises SpoolTooNew.
    """
    done = Done(file.first)
    for step in file.aside_steps():
        if step.kind in (SENT, REFUSED):
            done.add(range(step.first, step.first + step.count))
    reader = SegmentReader(file, aside=True)
    try:
        while reader.left_bytes:
            first = reader.number
            try:
                messages = _next(reader)
            except SpoolDamaged as damaged:
                end = reader.number
                if end == first or not done.has_all(first, end):
                    lose(sum(number not in done for number in range(first, end)), str(damaged))
                continue
            if found := [Read(n, one, False) for n, one in enumerate(messages, first) if n not in done]:
                yield found
    finally:
        reader.close()


def _next(reader: SegmentReader) -> tuple[Spooled, ...]:
    """The next frame's messages; the reader is behind it, or behind what is damaged where it raises SpoolDamaged."""
    head: FrameHead | None
    try:
        head = reader.head()
    except SpoolDamaged:
        return _without_head(reader)
    if head is None:
        return ()
    try:
        return reader.messages(head)
    finally:
        reader.skip(head)


def _without_head(reader: SegmentReader) -> tuple[Spooled, ...]:
    at, number, left_bytes = reader.at, reader.number, reader.left_bytes
    following = reader.resync(number, number + left_bytes)
    end, next_number = (at + left_bytes, number) if following is None else (reader.at, reader.number)
    reader.at = at
    try:
        messages = reader.headless(end)
    finally:
        reader.at, reader.number = end, next_number
    if following is not None and len(messages) != next_number - number:
        raise SpoolDamaged("a frame's head is damaged, and others are with it")
    return messages
