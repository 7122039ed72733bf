"""The room that requests share for what they bring, and for their answers until these are taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bmq.fairness.fair_room import FairRoom
from bmq_databus.errors import DatabusError

SMALL_BYTES: Final = 32 << 10
"""So much each request has whatever the others hold."""
CHANNEL_TIMES: Final = 2
"""What the requests of one channel hold is at most so many times what they leave to others."""


class TooMuchAtOnce(DatabusError):
    """All requests together have no room for more."""


class BodyRoom:
    """Room for the bodies of all requests, and for their answers until they are taken."""

    def __init__(self, bytes_max: int, *, small_bytes: int = SMALL_BYTES) -> None:
        self._bytes_max = bytes_max
        self.small_bytes = small_bytes
        self._room = FairRoom(bytes_max, times=CHANNEL_TIMES)

    @property
    def held_bytes(self) -> int:
        """By all, beside what is small."""
        return self._bytes_max - self._room.left

    @contextmanager
    def one(self, channel: str) -> Iterator["OneBody"]:
        """For one request to the channel, which holds what it took until its end."""
        body = OneBody(self, channel)
        try:
            yield body
        finally:
            body.hold(0)

    def has(self, size_bytes: int, *, channel: str) -> bool:
        """Whether requests of the channel may hold so much more."""
        return self._room.has(size_bytes, address=channel)

    def change(self, more_bytes: int, *, channel: str) -> None:
        """They do; below 0: they hold so much less."""
        if more_bytes > 0:
            self._room.take(more_bytes, address=channel)
        elif more_bytes < 0:
            self._room.give_back(-more_bytes, address=channel)


class OneBody:
    """What one request holds of the room."""

    def __init__(self, room: BodyRoom, channel: str) -> None:
        self._room = room
        self._channel = channel
        self.held_bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether it keeps no room from others."""
        return self.held_bytes <= self._room.small_bytes

    def take(self, size_bytes: int) -> None:
        """So much more. Raises TooMuchAtOnce."""
        more_bytes = self._beyond(self.held_bytes + size_bytes) - self._beyond(self.held_bytes)
        if more_bytes and not self._room.has(more_bytes, channel=self._channel):
            raise TooMuchAtOnce(
                f"requests with {self._room.held_bytes} bytes are being answered, and channel {self._channel} has its "
                "part of them: try again in a moment, or send less at a time"
            )
        self.hold(self.held_bytes + size_bytes)

    def hold(self, size_bytes: int) -> None:
        """So much in all, whether there is room or not."""
        self._room.change(self._beyond(size_bytes) - self._beyond(self.held_bytes), channel=self._channel)
        self.held_bytes = size_bytes

    def _beyond(self, size_bytes: int) -> int:
        return max(0, size_bytes - self._room.small_bytes)
