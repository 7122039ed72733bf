"""What has come over one connection and nothing has looked into yet: bounded and counted before HTTP is made of it.
Pure.

Parsing makes an object of each header and of each chunk, and six bytes can be one. So a parser gets one request's first
lines at a time, whole and with few headers, and then of its body what belongs to it, in bounded parts; what follows
stays here until that request is answered.
"""

import re
from typing import Final

from bmq.http.chunked_body import ChunkedBody

_END: Final = re.compile(rb"\n\r?\n")
_LONGEST_END_BYTES: Final = 3
_REQUEST_LINE_AND_END: Final = 2
"""Lines of a request's head beside its headers."""
_LOWEST: Final = 0x21
"""No request begins with a byte below it: such a one is refused without waiting for more."""


class HeadTooLarge(Exception):
    """A request's first lines are more than what is read: `str` says of what."""


class RequestBytes:
    """Those of one connection."""

    def __init__(self, *, head_bytes_max: int, headers_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._headers_max = headers_max
        self._bytes = bytearray()
        self._searched = 0
        self._lines = 0
        """How many lines end within what was searched."""
        self._head_bytes = 0
        """How long the first lines are, once they are whole; 0: they are not, as far as is known."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        """More bytes came."""
        self._bytes += data

    def has_head(self) -> bool:
        """Whether a request's first lines are there, or something that never can be such. Raises HeadTooLarge."""
        held = self._bytes
        if not held or self._head_bytes:
            return bool(held)
        if held[0] < _LOWEST:
            self._head_bytes = min(len(held), self._head_bytes_max)
            return True
        found = _END.search(held, max(0, self._searched - _LONGEST_END_BYTES + 1), self._head_bytes_max)
        end = found.end() if found else min(len(held), self._head_bytes_max)
        self._lines += held.count(b"\n", self._searched, end)
        self._searched = max(self._searched, end)
        if self._lines > self._headers_max + _REQUEST_LINE_AND_END:
            raise HeadTooLarge(f"it has more than {self._headers_max} headers")
        if found:
            self._head_bytes = end
        elif len(held) >= self._head_bytes_max:
            raise HeadTooLarge(f"its address and headers have more than {self._head_bytes_max} bytes")
        return found is not None

    def take_head(self) -> bytes:
        """A request's first lines, which are there."""
        assert self._head_bytes
        size_bytes, self._head_bytes, self._searched, self._lines = self._head_bytes, 0, 0, 0
        return self.take(size_bytes)

    def take(self, size_bytes: int) -> bytes:
        """The first ones, as many as there are of so many."""
        taken = bytes(self._bytes[:size_bytes])
        del self._bytes[:size_bytes]
        return taken

    def take_chunks(self, body: ChunkedBody) -> bytes:
        """The payload of the first chunks, as much of it as `body` looks at in one go. Raises BrokenChunks."""
        return body.take(self._bytes)
