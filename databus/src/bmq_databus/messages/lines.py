"""Lines of a body that has no end yet. Pure; what is kept is bounded."""

from collections.abc import Iterator
from typing import Final

from bmq_databus.errors import EndlessLine, LineTooLong

_BLANK: Final = b" \t\r\n\v\f"
_BLANK_MAX: Final = max(_BLANK)


class Lines:
    """Cuts bytes into lines as they come. A line that is too long is passed over up to its end, and told once."""

    def __init__(self, *, line_bytes_max: int, silent_bytes_max: int) -> None:
        """`silent_bytes_max`: so much without a line of any use, and nothing more is looked at."""
        self._line_bytes_max = line_bytes_max
        self._silent_bytes_max = silent_bytes_max
        self._begun = bytearray()
        self._is_too_long = False
        self._silent_bytes = 0

    @property
    def begun_bytes(self) -> int:
        """What is kept of the line whose end did not come yet."""
        return len(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes | LineTooLong]:
        """The lines that end within it, empty ones aside. To be read to its end before more is fed. Raises
        EndlessLine.
        """
        at = 0
        last = data.rfind(b"\n")
        if last >= 0 and (self._begun or self._is_too_long):
            at = data.find(b"\n") + 1
            yield from self._ended(data[: at - 1])
        if at <= last:
            for line in data[at:last].split(b"\n"):
                if line and line[0] > _BLANK_MAX and len(line) <= self._line_bytes_max:
                    self._silent_bytes = 0
                    yield line
                else:
                    yield from self._ended(line[self._begin(line, 0) :])
            at = last + 1
        at = self._begin(data, at)
        self._heard(len(data) - at)
        if not self._is_too_long:
            self._begun += memoryview(data)[at:]
            if len(self._begun) > self._line_bytes_max:
                self._begun.clear()
                self._is_too_long = True

    def end(self) -> Iterator[bytes | LineTooLong]:
        """The last line, where it has no end of its own. Raises EndlessLine."""
        yield from self._ended(b"")

    def _begin(self, data: bytes, at: int) -> int:
        """Behind what is blank before a line's first byte, of which there may be much."""
        if self._begun or self._is_too_long or data[at : at + 1] not in _BLANK:
            return at
        end = len(data) - len(data[at:].lstrip())
        self._heard(end - at)
        return end

    def _ended(self, rest: bytes) -> Iterator[bytes | LineTooLong]:
        self._heard(len(rest) + 1)
        line = bytes(self._begun) + rest if self._begun else rest
        self._begun.clear()
        if self._is_too_long or len(line) > self._line_bytes_max:
            self._is_too_long = False
            self._silent_bytes = 0
            yield LineTooLong(f"a line has {self._line_bytes_max} bytes at most")
        elif line and not line.isspace():
            self._silent_bytes = 0
            yield line

    def _heard(self, size_bytes: int) -> None:
        self._silent_bytes += size_bytes
        if self._silent_bytes > self._silent_bytes_max:
            raise EndlessLine(f"{self._silent_bytes} bytes have no message: a line has one, and an end")
