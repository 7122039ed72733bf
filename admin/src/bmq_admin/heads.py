"""The heads of HTTP answers, as a connection reads them. Their parser takes all that came in one turn of the loop, and
as many answers that are none yet (1xx) as somebody sends: here they have bounds, before it sees them. Pure.
"""

import re
from typing import Final

HEAD_BYTES_MAX: Final = 32 << 10
"""How much a head may have…"""
HEAD_LINES_MAX: Final = 200
"""…and how many lines."""
INFORMATIONAL_MAX: Final = 10
"""How many answers that are none yet may come before the one."""
_END: Final = re.compile(rb"\n\r?\n")
_LONGEST_END: Final = 3
_INFORMATIONAL: Final = re.compile(rb"HTTP/[0-9.]+ 1[0-9][0-9]")
_SWITCHES: Final = re.compile(rb"HTTP/[0-9.]+ 101")
"""The last of its kind: what follows is no HTTP."""


class HeadBeyondBounds(Exception):
    """No head that a node of bmq sends, nor anybody in between; why."""


class Heads:
    """Those of the answer to one request."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._informational = 0
        self._is_over = False

    def add(self, data: bytes) -> None:
        """What was read next; what follows the answer's own head is passed over. Raises HeadBeyondBounds."""
        if self._is_over:
            return
        looked = max(0, len(self._kept) - _LONGEST_END)
        self._kept += data
        while (end := _END.search(self._kept, looked)) is not None:
            self._check(end.end())
            if _INFORMATIONAL.match(self._kept) is None or _SWITCHES.match(self._kept) is not None:
                self._is_over = True
                self._kept.clear()
                return
            self._informational += 1
            if self._informational > INFORMATIONAL_MAX:
                raise HeadBeyondBounds(f"more than {INFORMATIONAL_MAX} informational answers (1xx) before its own")
            del self._kept[: end.end()]
            looked = 0
        self._check(len(self._kept))

    def _check(self, size_bytes: int) -> None:
        if size_bytes > HEAD_BYTES_MAX:
            raise HeadBeyondBounds(f"a head of more than {HEAD_BYTES_MAX >> 10} KiB")
        if self._kept.count(b"\n", 0, size_bytes) > HEAD_LINES_MAX:
            raise HeadBeyondBounds(f"a head of more than {HEAD_LINES_MAX} lines")
