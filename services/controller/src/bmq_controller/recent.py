"""The newest entries of the metadata log as the leader made them, for followers that ask it instead of the store."""

import asyncio
from collections import deque
from typing import Final

from bmq.errors import ControllerUnavailable, NotReady
from bmq.storage.flatlog import Entry, encode_entry

ENTRIES_MAX: Final = 1_000
BYTES_MAX: Final = 8 * 1024 * 1024
REPLY_BYTES_MAX: Final = 4 * 1024 * 1024
"""One reply takes entries until it has so many bytes."""


class RecentEntries:
    """Bounded: who asks for what has left reads the store."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._newest = 0
        self._ended: ControllerUnavailable | None = None
        self._changed: asyncio.Event = asyncio.Event()

    def add(self, entry: Entry) -> None:
        """One more, committed."""
        data = b"".join(encode_entry(entry))
        self._entries.append((entry.number, data))
        self._bytes += len(data)
        self._newest = entry.number
        while len(self._entries) > ENTRIES_MAX or (self._bytes > BYTES_MAX and len(self._entries) > 1):
            _, oldest = self._entries.popleft()
            self._bytes -= len(oldest)
        self._wake()

    def end(self, error: ControllerUnavailable) -> None:
        """No more come: whoever waits and whoever asks is told."""
        self._ended = error
        self._wake()

    async def poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        """Entries above `after_position`, in order and each as the store has it; waits for one, not longer than
        `wait_ms`. Raises NotReady for what is not kept here, ControllerUnavailable once it has ended.
        """
        if self._ended is None and after_position == self._newest:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if after_position == self._newest:
            return []
        return self._above(after_position)

    def _above(self, after_position: int) -> list[bytes]:
        first = self._entries[0][0] if self._entries else self._newest + 1
        if not first <= after_position + 1 <= self._newest:
            raise NotReady(
                f"the leader has entries {first} to {self._newest}, not {after_position + 1}: read the store"
            )
        found: list[bytes] = []
        size_bytes = 0
        for number, data in self._entries:
            if number > after_position:
                found.append(data)
                size_bytes += len(data)
                if size_bytes >= REPLY_BYTES_MAX:
                    break
        return found

    def _wake(self) -> None:
        """Wakes who waits now; who comes later waits for the next one."""
        self._changed.set()
        self._changed = asyncio.Event()
