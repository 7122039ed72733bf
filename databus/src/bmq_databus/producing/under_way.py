"""How much of all spools is with their producers at a time, and whose it is.

A spool has room by what it leaves free to others (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): those
that have something to send come to equal shares by themselves, and those that have nothing take none. What a cluster
does not answer for stays where it is, however long: so some is kept for those that come then, and each may have a
message there in any case.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

LEAVES: Final = 15
"""A spool has so many times as much as it leaves free, at most: alone seven eighths of all."""
KEPT: Final = 16
"""Such a part is kept for those that have little."""
LITTLE_BYTES_MAX: Final = 32 << 10
"""What one of them may have of it: some 5,000 messages a second of 100 bytes to a cluster that answers after 50 ms."""
LOOKED_AT_MAX: Final = 64
"""So many of those that wait for room are looked at in a turn of the loop."""


class UnderWay:
    """That of all spools."""

    def __init__(self, bytes_max: int) -> None:
        self._kept_bytes = bytes_max // KEPT
        self._common_bytes = bytes_max - self._kept_bytes
        self.bytes = 0
        self.shares = 0
        """How many have something under way."""
        self.waiting: deque[Share] = deque()
        """Those that were told that there is no room, by turns."""
        self._to_look_at = 0
        self._is_due = False

    def share(self, has_room: Callable[[], None]) -> "Share":
        """One more spool's; `has_room` is called when it was told that there is none, and there may be some."""
        return Share(self, has_room)

    def room_bytes(self, own_bytes: int) -> int:
        """What a spool that has so much may have more."""
        common = (LEAVES * (self._common_bytes - self.bytes) - own_bytes) // (1 + LEAVES)
        little = min(LITTLE_BYTES_MAX, self._kept_bytes // (self.shares + (not own_bytes))) - own_bytes
        return max(common, little)

    def wait(self, share: "Share") -> None:
        """It is told of room that there is later, behind those that wait already."""
        self.waiting.append(share)

    def gave_back(self) -> None:
        """There may be room for those that wait."""
        self._to_look_at = len(self.waiting)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        for _ in range(min(self._to_look_at, LOOKED_AT_MAX)):
            share = self.waiting.popleft()
            self._to_look_at -= 1
            if not share.look():
                self.waiting.append(share)
        self._is_due = self._to_look_at > 0
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._look)


class Share:
    """One spool's part of it."""

    def __init__(self, under_way: UnderWay, has_room: Callable[[], None]) -> None:
        self._under_way = under_way
        self._has_room = has_room
        self.bytes = 0
        self._wanted_bytes = 0
        """What it waits for; 0: it does not."""
        self._is_waiting = False

    @property
    def room_bytes(self) -> int:
        """What may be under way beside what is."""
        return self._under_way.room_bytes(self.bytes)

    def wait(self, wanted_bytes: int) -> None:
        """There was no room for so much: it is told when there is."""
        self._wanted_bytes = wanted_bytes
        if not self._is_waiting:
            self._is_waiting = True
            self._under_way.wait(self)

    def look(self) -> bool:
        """Whether it waits no more."""
        if self._wanted_bytes and self.bytes and self.room_bytes < self._wanted_bytes:
            return False
        self._is_waiting = False
        if self._wanted_bytes:
            self._wanted_bytes = 0
            self._has_room()
        return True

    def take(self, size_bytes: int) -> None:
        """So much more is under way."""
        self._wanted_bytes = 0
        if not self.bytes:
            self._under_way.shares += 1
        self.bytes += size_bytes
        self._under_way.bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """So much is not any more."""
        self.bytes -= size_bytes
        self._under_way.bytes -= size_bytes
        if not self.bytes:
            self._under_way.shares -= 1
        if self._under_way.waiting:
            self._under_way.gave_back()
