"""What became of a stream's messages, in their order, and how much of them may be unanswered."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from bmq_databus.producing.outcomes import Outcome

MESSAGE_EXTRA_BYTES: Final = 512
"""What a message takes in memory beside its line, about: lines may be very short."""


@dataclass(slots=True)
class _Slot:
    size_bytes: int
    outcome: Outcome | None = None


class Results:
    """Messages are added in their order, settled in any, and taken in their order; one adds, and one takes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._slots: deque[_Slot] = deque()
        self._first = 0
        """The number of the first slot."""
        self.unanswered_bytes = 0
        self._is_closed = False
        self._known = asyncio.Event()
        self._room = asyncio.Event()

    def has_room(self, line_bytes: int) -> bool:
        """Whether a line more may be unanswered; one that is larger than all room may where nothing else is."""
        size_bytes = line_bytes + MESSAGE_EXTRA_BYTES
        return not self.unanswered_bytes or self.unanswered_bytes + size_bytes <= self._bytes_max

    async def room(self, line_bytes: int) -> None:
        """Returns when there is."""
        while not self.has_room(line_bytes):
            self._room.clear()
            await self._room.wait()

    async def answered(self) -> None:
        """Returns when nothing is unanswered."""
        while self.unanswered_bytes:
            self._room.clear()
            await self._room.wait()

    @property
    def end(self) -> int:
        """The number behind the last message; the first has 0."""
        return self._first + len(self._slots)

    def add(self, line_bytes: int) -> None:
        """A message more."""
        slot = _Slot(line_bytes + MESSAGE_EXTRA_BYTES)
        self._slots.append(slot)
        self.unanswered_bytes += slot.size_bytes

    def settle(self, number: int, outcome: Outcome) -> None:
        """What became of it."""
        at = number - self._first
        if at >= len(self._slots):  # abandoned
            return
        self._slots[at].outcome = outcome
        if at == 0:
            self._known.set()

    def close(self) -> None:
        """There are no more messages."""
        self._is_closed = True
        self._known.set()

    def abandon(self) -> None:
        """Nothing more becomes known."""
        self._slots.clear()
        self.close()

    async def take(self) -> tuple[list[Outcome], int]:
        """The outcomes that are known of the first messages, and what to give to `give_back` when they are sent. None
        of them: all are taken, and it is closed.
        """
        while True:
            taken: list[Outcome] = []
            size_bytes = 0
            while self._slots and (outcome := self._slots[0].outcome) is not None:
                taken.append(outcome)
                size_bytes += self._slots.popleft().size_bytes
                self._first += 1
            if taken or (self._is_closed and not self._slots):
                return taken, size_bytes
            self._known.clear()
            await self._known.wait()

    def give_back(self, size_bytes: int) -> None:
        """Those outcomes are sent."""
        self.unanswered_bytes -= size_bytes
        self._room.set()
