"""What became of a stream's messages, in their order, and how much of them may be unanswered."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from bmq_databus.producing.outcomes import Outcome

MESSAGE_EXTRA_BYTES: Final = 512
"""What a message takes in memory beside its line, about: lines may be very short."""

TAKEN_MAX: Final = 256
"""So many results are written down in one go: each may take more so than it does before."""


class Results:
    """Messages are added in their order, settled in any, and taken in their order; one adds, and one takes."""

    def __init__(self, *, bytes_max: Callable[[], int]) -> None:
        """`bytes_max`: how much may be unanswered, whenever it is asked."""
        self._bytes_max = bytes_max
        self._outcomes: deque[Outcome | None] = deque()
        """None: not known yet."""
        self._sizes_bytes: deque[int] = deque()
        self._first = 0
        """The number of the first of them."""
        self.unanswered_bytes = 0
        self._is_closed = False
        self._known = asyncio.Event()
        self._room = asyncio.Event()

    def has_room(self, line_bytes: int) -> bool:
        """Whether a line more may be unanswered; one that is larger than all room may where nothing else is."""
        size_bytes = line_bytes + MESSAGE_EXTRA_BYTES
        return not self.unanswered_bytes or self.unanswered_bytes + size_bytes <= self._bytes_max()

    @property
    def left_bytes(self) -> int:
        """How much more may be unanswered, lines and what each takes beside; below 0: nothing."""
        return self._bytes_max() - self.unanswered_bytes

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
        return self._first + len(self._outcomes)

    def add(self, line_bytes: int) -> None:
        """A message more."""
        size_bytes = line_bytes + MESSAGE_EXTRA_BYTES
        self._outcomes.append(None)
        self._sizes_bytes.append(size_bytes)
        self.unanswered_bytes += size_bytes

    def settle(self, number: int, outcome: Outcome) -> None:
        """What became of it. What is told of it counts, too."""
        at = number - self._first
        if at >= len(self._outcomes):  # abandoned
            return
        if (told_bytes := _told_bytes(outcome)) > 0:
            self._sizes_bytes[at] += told_bytes
            self.unanswered_bytes += told_bytes
        self._outcomes[at] = outcome
        if at == 0:
            self._known.set()

    def close(self) -> None:
        """There are no more messages."""
        self._is_closed = True
        self._known.set()

    def abandon(self) -> None:
        """Nothing more becomes known."""
        self._outcomes.clear()
        self._sizes_bytes.clear()
        self.close()

    async def take(self) -> tuple[list[Outcome], int]:
        """The outcomes that are known of the first messages, TAKEN_MAX at most, and what to give to `give_back` when
        they are sent. None of them: all are taken, and it is closed.
        """
        while True:
            taken: list[Outcome] = []
            size_bytes = 0
            while self._outcomes and len(taken) < TAKEN_MAX and (outcome := self._outcomes[0]) is not None:
                taken.append(outcome)
                self._outcomes.popleft()
                size_bytes += self._sizes_bytes.popleft()
            self._first += len(taken)
            if taken or (self._is_closed and not self._outcomes):
                return taken, size_bytes
            self._known.clear()
            await self._known.wait()

    def give_back(self, size_bytes: int) -> None:
        """Those outcomes are sent."""
        self.unanswered_bytes -= size_bytes
        self._room.set()


def _told_bytes(outcome: Outcome) -> int:
    """What it takes beside MESSAGE_EXTRA_BYTES."""
    targets = outcome.get("targets", ())
    return len(outcome.get("error", "")) + sum(MESSAGE_EXTRA_BYTES + _told_bytes(one) for one in targets)
