"""What a channel has on disk, in numbers. Blocking; raises OSError."""

from dataclasses import dataclass
from pathlib import Path

from bmq_databus.backlog.channels import REPLAYING
from bmq_databus.backlog.looking import look, waiting_in
from bmq_databus.backlog.refused import SPOOL
from bmq_databus.spool.clusters import folder_of
from bmq_databus.spool.frames import DAMAGED, SENT, Spooled
from bmq_databus.spool.reading import Lost
from bmq_databus.spool.refused import FILE, OLDER, lines_in, size_of
from bmq_databus.spool.segments import aside_in
from bmq_databus.spool.undone import UndoneSegment


@dataclass(slots=True, kw_only=True)
class Summary:
    """Messages, and bytes. What is done with is counted as long as its segment is there."""

    channel: str
    segments: int = 0
    segment_bytes: int = 0
    waiting: int = 0
    waiting_bytes: int = 0
    """Keys, values and headers alone."""
    oldest_accepted_ms: int | None = None
    """When the first of those that wait was accepted."""
    sent: int = 0
    refused: int = 0
    """In the files of refused messages, whenever that was."""
    refused_bytes: int = 0
    replaying: int = 0
    """Refused messages that a replay took which was ended before it was through."""
    damaged: int = 0
    """Messages in segments that cannot be read."""
    damaged_frames: int = 0
    """Places in what waits that cannot be read."""
    damaged_segments: int = 0
    """Segments of which nothing can be read, and which the next sidecar keeps aside."""
    aside: int = 0
    """Segments that are kept aside."""
    aside_bytes: int = 0
    too_new: int = 0
    """Segments of a later version."""


def summary_of(root: Path, channel: str) -> Summary:
    """As it is now: it reads all that waits."""
    folder = folder_of(root, channel)
    looked, aside = look(folder), aside_in(folder)
    found = Summary(
        channel=channel,
        segments=len(looked.segments) + len(looked.too_new) + len(looked.damaged),
        segment_bytes=sum(segment.size_bytes for segment in looked.segments)
        + sum(map(size_of, (*looked.too_new, *looked.damaged))),
        refused=sum(lines_in(folder / name) for name in (OLDER, FILE)),
        refused_bytes=sum(size_of(folder / name) for name in (OLDER, FILE)),
        replaying=_replaying(folder / REPLAYING),
        damaged_segments=len(looked.damaged),
        aside=len(aside),
        aside_bytes=sum(one.aside_bytes for one in aside),
        too_new=len(looked.too_new),
    )
    for segment in looked.segments:
        _add_steps(found, segment)

    def lose(lost: Lost) -> None:
        found.damaged_frames += 1
        found.damaged += sum(number not in lost.segment.done for number in range(lost.first, lost.end))

    for reads in waiting_in(looked.segments, lose=lose):
        if found.oldest_accepted_ms is None:
            found.oldest_accepted_ms = reads[0].message.accepted_ms
        found.waiting += len(reads)
        found.waiting_bytes += sum(_own_bytes(one.message) for one in reads)
    return found


def _add_steps(found: Summary, segment: UndoneSegment) -> None:
    for step in segment.file.steps():
        if step.kind == SENT:
            found.sent += step.count
        elif step.kind == DAMAGED:
            found.damaged += step.count


def _own_bytes(message: Spooled) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


def _replaying(folder: Path) -> int:
    if (spool := folder / SPOOL).exists():
        return sum(segment.undone for segment in look(spool).segments)
    return sum(lines_in(folder / name) for name in (OLDER, FILE))
