"""Messages of a channel's folder as lines of JSON that a channel takes again (`bmq_databus.messages.rewriting`),
without a change to any byte. Blocking; raises OSError, and what `write` raises.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bmq_databus.backlog.channels import REPLAYING
from bmq_databus.backlog.looking import look, waiting_in
from bmq_databus.backlog.refused import SPOOL, in_order
from bmq_databus.errors import SpoolTooNew
from bmq_databus.messages.forms import NewMessage
from bmq_databus.messages.rewriting import line_of
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.reading import Lost
from bmq_databus.spool.refused import Refused, Unreadable, refused_in
from bmq_databus.spool.salvage import salvage
from bmq_databus.spool.segments import aside_in

GROUP: Final = 1_000
"""Refused messages that are written in one go."""
_PLACE: Final = re.compile(r"([0-9]{1,19})@([0-9]{1,15})", re.ASCII)

Write = Callable[[bytes], object]


class Place(NamedTuple):
    """Behind a message that was exported. The time tells it from one that had its number before the sidecar began anew
    with an empty spool, and numbers with it.
    """

    number: int
    accepted_ms: int

    def __str__(self) -> str:
        return f"{self.number}@{self.accepted_ms}"

    def is_before(self, number: int, accepted_ms: int) -> bool:
        """Whether that message was not exported yet."""
        return number > self.number or accepted_ms > self.accepted_ms


def place_of(text: str) -> Place | None:
    """What `str` of a place says; None where it says none."""
    found = _PLACE.fullmatch(text)
    return None if found is None else Place(int(found[1]), int(found[2]))


@dataclass(slots=True)
class Exported:
    """What was written, and what could not be read."""

    messages: int = 0
    size_bytes: int = 0
    end: Place | None = None
    """Behind the last that was waiting; None where there was none."""
    lost: int = 0
    """Messages that could not be read, as far as their number is known."""
    unreadable: list[str] = field(default_factory=list)
    """Where and why, the first few."""
    unreadable_count: int = 0
    unknown: int = 0
    """Segments of which nobody knows what had become of their messages: they may be in their topics."""
    longest_bytes: int = 0
    """The longest line."""

    def miss(self, where: Path, why: str, messages: int = 0) -> None:
        """Something could not be read."""
        self.lost += messages
        self.unreadable_count += 1
        if len(self.unreadable) < SHOWN_MAX:
            self.unreadable.append(f"{where}: {why}")


SHOWN_MAX: Final = 10


def export_waiting(folder: Path, write: Write, *, after: Place | None = None) -> Exported:
    """Those that wait to be sent, in their order."""
    exported = Exported(end=after)
    _export_spool(folder, write, exported, after=after)
    return exported


def export_refused(folder: Path, write: Write) -> Exported:
    """Those that the cluster refused, as they were accepted; those first that a replay took and did not get
    through.
    """
    exported = Exported()
    replaying = folder / REPLAYING
    if (replaying / SPOOL).exists():
        _export_spool(replaying / SPOOL, write, exported, after=None)
    else:
        _write(in_order(_refused(replaying, exported)), write, exported)
    _write(in_order(_refused(folder, exported)), write, exported)
    exported.end = None
    return exported


def export_damaged(folder: Path, write: Write) -> Exported:
    """Those in segments that are kept aside, as far as they are whole and nobody knows them sent."""
    exported = Exported()
    for file in aside_in(folder):
        path = file.aside_path
        exported.unknown += not file.aside_steps_path.exists()
        try:
            for reads in salvage(file, lose=lambda count, why, path=path: exported.miss(path, why, count)):  # type: ignore[misc]
                _write([one.message for one in reads], write, exported)
        except SpoolTooNew as error:
            exported.miss(path, str(error))
        except FileNotFoundError:  # it gave way to newer ones
            continue
    return exported


def _export_spool(folder: Path, write: Write, exported: Exported, *, after: Place | None) -> None:
    looked = look(folder)
    for path, why in (*looked.too_new.items(), *looked.damaged.items()):
        exported.miss(path, why)

    def lose(lost: Lost) -> None:
        count = sum(number not in lost.segment.done for number in range(lost.first, lost.end))
        exported.miss(lost.segment.file.path, lost.why, count)

    for reads in waiting_in(looked.segments, lose=lose):
        wanted = [one for one in reads if after is None or after.is_before(one.number, one.message.accepted_ms)]
        _write([one.message for one in wanted], write, exported)
        if wanted:
            exported.end = Place(wanted[-1].number, wanted[-1].message.accepted_ms)


def _refused(folder: Path, exported: Exported) -> Iterator[Refused]:
    for one in refused_in(folder):
        if isinstance(one, Unreadable):
            exported.miss(one.path, f"line {one.line}: {one.why}", 1)
        else:
            yield one


def _write(messages: Iterable[Spooled], write: Write, exported: Exported) -> None:
    for one in messages:
        line = line_of(_new(one))
        write(line)
        exported.messages += 1
        exported.size_bytes += len(line)
        exported.longest_bytes = max(exported.longest_bytes, len(line))


def _new(message: Spooled) -> NewMessage:
    return NewMessage(
        key=message.key,
        value=message.value,
        headers=message.headers,
        timestamp_ms=message.timestamp_ms,
        partition=message.partition,
    )
