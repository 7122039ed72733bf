"""JSON objects one after another, in a body that has no end yet. Pure; what is kept is bounded."""

import re
from collections.abc import Iterator
from typing import Final

from bmq_databus.errors import EndlessLine, NoObjects

_BLANK: Final = re.compile(rb"[ \t\r\n]*+")
_PLAIN: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"|\{\}|\[\])*+', re.DOTALL)
"""All that neither begins nor ends anything, whole strings, and what is empty."""
_OPEN: Final = re.compile(rb"(?:[{\[](?!\}|\]))++")
_CLOSE: Final = re.compile(rb"[}\]]++")
_WITHIN_STRING: Final = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_QUOTE, _BRACE = b'"{'
_OPENING: Final = b"{["


class Objects:
    """Cuts bytes into objects as they come, by their brackets alone: what stands in one is its reader's business."""

    def __init__(self, *, object_bytes_max: int, silent_bytes_max: int) -> None:
        """`silent_bytes_max`: so much without an object, and nothing more is looked at."""
        self._object_bytes_max = object_bytes_max
        self._silent_bytes_max = silent_bytes_max
        self._begun = bytearray()
        self._at = 0
        """How far that was looked at."""
        self._depth = 0
        self._is_in_string = False
        self._silent_bytes = 0

    @property
    def begun_bytes(self) -> int:
        """What is kept of the object whose end did not come yet."""
        return len(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The objects that end within it. To be read to its end before more is fed. Raises NoObjects, EndlessLine."""
        self._begun += data
        first = 0
        while self._depth or (first := self._begin(first)) < len(self._begun):
            if not self._goes_on():
                break
            yield bytes(memoryview(self._begun)[first : self._at])
            first = self._at
        del self._begun[:first]
        self._at -= first
        if len(self._begun) > self._object_bytes_max:
            raise EndlessLine(f"a record has {self._object_bytes_max} bytes at most")

    def end(self) -> Iterator[bytes]:
        """There is no more. Raises NoObjects where it ends within one."""
        if self._begun:
            raise NoObjects("the body ends within a record")
        return iter(())

    def _begin(self, at: int) -> int:
        """Where the next one does, behind what is blank."""
        begins = _end_of(_BLANK, self._begun, at)
        self._silent_bytes += begins - at
        if self._silent_bytes > self._silent_bytes_max:
            raise EndlessLine(f"{self._silent_bytes} bytes have no record")
        self._at = begins
        if begins < len(self._begun):
            if self._begun[begins] != _BRACE:
                found = bytes(self._begun[begins : begins + 20])
                raise NoObjects(f"records are JSON objects one after another, and {found!r} begins none")
            self._silent_bytes = 0
            self._depth = 1
            self._at += 1
        return begins

    def _goes_on(self) -> bool:
        """Whether the object that has begun is whole; `_at` is behind it then, else where more is wanted."""
        begun, at, depth, is_in_string = self._begun, self._at, self._depth, self._is_in_string
        size_bytes = len(begun)
        while depth:
            at = _end_of(_WITHIN_STRING if is_in_string else _PLAIN, begun, at)
            if at >= size_bytes:
                break
            found = begun[at]
            if is_in_string or found == _QUOTE:
                if found != _QUOTE:
                    break  # a backslash, of which the rest is to come
                is_in_string = not is_in_string
                at += 1
                continue
            if found in _OPENING:
                begins, at = at, max(at + 1, _end_of(_OPEN, begun, at))
                depth += at - begins
            else:
                begins, at = at, min(at + depth, _end_of(_CLOSE, begun, at))
                depth -= at - begins
        self._at, self._depth, self._is_in_string = at, depth, is_in_string
        return not depth


def _end_of(pattern: re.Pattern[bytes], data: bytearray, at: int) -> int:
    found = pattern.match(data, at)
    return at if found is None else found.end()
