"""What waits in a channel's folder, read without a change to any byte, also while a sidecar writes there and deletes.
Blocking; raises OSError.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bmq_databus.errors import SpoolDamaged, SpoolTooNew
from bmq_databus.spool.frames import HEAD_BYTES
from bmq_databus.spool.reading import Lost, Read, Reading
from bmq_databus.spool.segments import segments_in
from bmq_databus.spool.undone import UndoneSegment, looked_at


@dataclass(slots=True)
class Looked:
    """A folder's segments: those that can be read, and why others cannot."""

    segments: list[UndoneSegment] = field(default_factory=list)
    too_new: dict[Path, str] = field(default_factory=dict)
    damaged: dict[Path, str] = field(default_factory=dict)


def look(folder: Path) -> Looked:
    """As they are now."""
    found = Looked()
    for file in segments_in(folder):
        try:
            if file.path.stat().st_size < HEAD_BYTES:  # a sidecar has just made it, or died over it
                continue
            found.segments.append(looked_at(file))
        except FileNotFoundError:  # all of it was sent meanwhile
            continue
        except SpoolTooNew as error:
            found.too_new[file.path] = str(error)
        except SpoolDamaged as error:
            found.damaged[file.path] = str(error)
    return found


def waiting_in(segments: Sequence[UndoneSegment], *, lose: Callable[[Lost], None]) -> Iterator[list[Read]]:
    """Messages without an outcome, in their order, about a MiB at a time. `lose` is told of those that the disk has
    damaged.
    """

    def lost(one: Lost) -> None:
        segment = one.segment
        if not segment.done.has_all(one.first, one.end) and _has_all_bytes(segment):
            lose(one)

    reading = Reading(begin=lambda segment, first, end: None, lose=lost)
    try:
        while any(segment.end > reading.to for segment in segments):
            if found := reading.some(segments):
                yield found
    finally:
        reading.close()


def _has_all_bytes(segment: UndoneSegment) -> bool:
    """False where a sidecar has taken back what the disk did not take whole, or has sent it all."""
    try:
        return segment.file.path.stat().st_size >= segment.size_bytes
    except FileNotFoundError:
        return False
