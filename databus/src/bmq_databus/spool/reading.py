"""Messages of segments, one after another, from where the last reading ended: those that have no outcome yet.

What is damaged is passed over and told. Who reads says what is done about either: a sidecar notes it, tools that look
on change nothing. Blocking; raises OSError.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bmq_databus.errors import SpoolDamaged
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.segments import SegmentReader
from bmq_databus.spool.undone import UndoneSegment

READ_BYTES: Final = 1 << 20
"""So much is read in one go where there is so much, or one frame."""


class Read(NamedTuple):
    """A message to be sent. `again`: it may be in the topic already."""

    number: int
    message: Spooled
    again: bool


class Lost(NamedTuple):
    """Messages from `first` to before `end` that cannot be read; where they are the same, bytes between frames."""

    segment: UndoneSegment
    first: int
    end: int
    why: str


class Reading:
    """A place in a spool. One thread at a time uses it."""

    def __init__(
        self, *, begin: Callable[[UndoneSegment, int, int], None], lose: Callable[[Lost], None], to: int = 0
    ) -> None:
        """`begin` is called with (segment, first, end) of messages before anybody has them; where it raises OSError
        they are read again. `lose` is called with what cannot be read.
        """
        self.to = to
        """The number of the next message that is read."""
        self._begin = begin
        self._lost = lose
        self._reader: tuple[UndoneSegment, SegmentReader] | None = None

    def some(self, segments: Sequence[UndoneSegment]) -> list[Read]:
        """From where the last reading ended: READ_BYTES, or one frame. None where so many were passed over, or there
        are no more, which is so where `to` is behind all segments. Raises SpoolTooNew.
        """
        for segment in segments:
            reader = self._reader_of(segment) if segment.end > self.to else None
            if reader is None:
                continue
            at, number, to = reader.at, reader.number, self.to
            try:
                found = self._read_of(segment, reader)
                if found:
                    self._begin(segment, found[0].number, self.to)
            except OSError:  # what was read before it is read again
                reader.at, reader.number, self.to = at, number, to
                raise
            if found or self.to < segment.end:
                return found
        return []

    def let_go(self, segment: UndoneSegment) -> None:
        """Closes the file, if it is this segment's."""
        if self._reader is not None and self._reader[0] is segment:
            self.close()

    def close(self) -> None:
        """Lets go of the file; reading on opens it again."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader[1].close()

    def _read_of(self, segment: UndoneSegment, reader: SegmentReader) -> list[Read]:
        found: list[Read] = []
        size_bytes = 0
        while self.to < segment.end and size_bytes < READ_BYTES:
            try:
                head = reader.head()
                if head is None:
                    raise SpoolDamaged("it ends before what was written")
                end = head.first + head.count
                is_wanted = end > self.to and not segment.done.has_all(head.first, end)
                messages = reader.messages(head) if is_wanted else ()
            except SpoolDamaged as damaged:
                self._pass_over(segment, reader, damaged)
                continue
            reader.skip(head)
            size_bytes += head.length
            self.to = max(self.to, end)
            is_whole = segment.done.has_none(head.first)
            found += [
                Read(number, message, number < segment.begun)
                for number, message in enumerate(messages, head.first)
                if is_whole or number not in segment.done
            ]
        return found

    def _reader_of(self, segment: UndoneSegment) -> SegmentReader | None:
        if self._reader is not None and self._reader[0] is segment:
            return self._reader[1]
        self.close()
        self.to = max(self.to, segment.file.first)
        try:
            reader = SegmentReader(segment.file)
        except FileNotFoundError:  # given up meanwhile
            self.to = segment.end
            return None
        except SpoolDamaged as damaged:
            self._lose(segment, segment.end, damaged)
            return None
        self._reader = segment, reader
        return reader

    def _pass_over(self, segment: UndoneSegment, reader: SegmentReader, damaged: SpoolDamaged) -> None:
        """Bytes that are not what was written: on to the next frame that is."""
        try:
            head = reader.head()
        except SpoolDamaged:
            head = reader.resync(self.to, segment.end)
            self._lose(segment, segment.end if head is None else head.first, damaged)
            return
        if head is None:
            self._lose(segment, segment.end, damaged)
        else:
            reader.skip(head)
            self._lose(segment, head.first + head.count, damaged)

    def _lose(self, segment: UndoneSegment, end: int, damaged: SpoolDamaged) -> None:
        """Messages from here to before `end`."""
        first, self.to = self.to, max(end, self.to)
        self._lost(Lost(segment, first, self.to, str(damaged)))
