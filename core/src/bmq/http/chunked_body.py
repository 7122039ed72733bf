"""A body in chunks (RFC 9112, section 7.1), looked at in parts of bounded work: a chunk may be one byte, of six that
are sent. No object is made of a chunk: what several have comes out as one. Pure.

Extensions of chunks and trailers are looked at for their bounds alone.
"""

import re
from typing import Final

PART_BYTES: Final = 64 << 10
PART_CHUNKS: Final = 1_000
"""So many chunks are looked at in one go, which takes about a millisecond."""
CHUNK_LINE_BYTES_MAX: Final = 1 << 10
TRAILER_BYTES_MAX: Final = 8 << 10
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_END: Final = b"\r\n"
_LINE_FEED: Final = b"\n"


class BrokenChunks(Exception):
    """What came is no chunk: `str` says why."""


class ChunkedBody:
    """One body's framing, and how far it was looked at."""

    def __init__(self, *, part_bytes: int = PART_BYTES, part_chunks: int = PART_CHUNKS) -> None:
        self._part_bytes = part_bytes
        self._part_chunks = part_chunks
        self._chunk_left = 0
        """How much of the chunk's payload is still to come."""
        self._ends_chunk = False
        """What comes next is the end of a chunk's payload."""
        self._trailer_bytes = -1
        """How much of the trailers was looked at; below 0: the last chunk did not come yet."""
        self.is_over = False

    def take(self, held: bytearray) -> bytes:
        """The payload of what stands first in `held`, without what was looked at there. Less than there is where that
        is more than one part; nothing, with `held` as it was: the rest has yet to come. Raises BrokenChunks.
        """
        payload = bytearray()
        at, chunks = 0, 0
        while not self.is_over and chunks < self._part_chunks and len(payload) < self._part_bytes:
            if self._chunk_left:
                part = held[at : at + min(self._chunk_left, self._part_bytes - len(payload))]
                if not part:
                    break
                payload += part
                at += len(part)
                self._chunk_left -= len(part)
                self._ends_chunk = not self._chunk_left
                continue
            end = self._trailer(held, at) if self._trailer_bytes >= 0 else self._between(held, at)
            if end == at:
                break
            at = end
            chunks += 1
        del held[:at]
        return bytes(payload)

    def _between(self, held: bytearray, at: int) -> int:
        """Where the next chunk's payload begins, or what there is of the way to it."""
        if self._ends_chunk:
            ends = held[at : at + len(_END)]
            if not _END.startswith(ends):
                raise BrokenChunks(f"illegal chunk footer: {bytes(ends)!r}")
            if len(ends) < len(_END):
                return at
            self._ends_chunk = False
            at += len(_END)
            if at == len(held):
                return at
        found = _CHUNK.match(held, at, at + CHUNK_LINE_BYTES_MAX)
        if found is None:
            line = bytes(held[at : at + CHUNK_LINE_BYTES_MAX])
            if _END in line or len(line) == CHUNK_LINE_BYTES_MAX:
                raise BrokenChunks(f"illegal chunk header: {line.partition(_END)[0][:40]!r}")
            return at
        self._chunk_left = int(found[1], 16)
        if not self._chunk_left:
            self._trailer_bytes = 0
        return found.end()

    def _trailer(self, held: bytearray, at: int) -> int:
        """Where the next of the lines behind the last chunk begins; the empty one ends the body. As in all lines of
        headers a line feed alone ends one, too (RFC 9112, section 2.2): who sends that would wait for ever.
        """
        left_bytes = TRAILER_BYTES_MAX - self._trailer_bytes
        end = held.find(_LINE_FEED, at, at + left_bytes)
        if end < 0:
            if len(held) - at >= left_bytes:
                raise BrokenChunks(f"its trailers have more than {TRAILER_BYTES_MAX} bytes")
            return at
        self.is_over = bytes(held[at:end]) in (b"", b"\r")
        self._trailer_bytes += end + len(_LINE_FEED) - at
        return end + len(_LINE_FEED)
