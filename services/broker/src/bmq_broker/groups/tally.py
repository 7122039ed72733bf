"""How many bytes groups take, of one coordinator and of its broker, and how fast clients of an address may make it more. Pure."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

ADDRESSES_MAX: Final = 10_000
"""Addresses remembered; the one that stored nothing new for longest is forgotten first."""


@dataclass(slots=True)
class Tally:
    """About how many bytes: of one coordinator, and with `whole` of all on this broker."""

    size_bytes: int = 0
    whole: "Tally | None" = None

    def add(self, size_bytes: int) -> None:
        """More, or (below 0) fewer."""
        self.size_bytes += size_bytes
        if self.whole is not None:
            self.whole.add(size_bytes)

    def join(self, whole: "Tally | None") -> None:
        """What it has counts there from now on; None: nowhere any more."""
        if self.whole is not None:
            self.whole.add(-self.size_bytes)
        self.whole = whole
        if whole is not None:
            whole.add(self.size_bytes)

    @property
    def everywhere_bytes(self) -> int:
        """Of the whole broker."""
        return self.size_bytes if self.whole is None else self.whole.everywhere_bytes


class Growth:
    """A bucket of bytes for each address, which fills with time. Times in ms of one clock. Who is not here has everything."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def left_bytes(self, address: str, now_ms: int, *, burst_bytes: int, per_minute_bytes: int) -> int:
        """How much more an address may store now."""
        known = self._left.get(address)
        if known is None:
            return burst_bytes
        left_bytes, at_ms = known
        return int(min(burst_bytes, left_bytes + (now_ms - at_ms) * per_minute_bytes / 60_000))

    def take(self, address: str, now_ms: int, *, left_bytes: int, size_bytes: int) -> None:
        """So much of what was left is used."""
        self._left[address] = left_bytes - size_bytes, now_ms
        self._left.move_to_end(address)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)


def text_bytes(text: str | None) -> int:
    """What a text takes in memory at most, beside being an object."""
    return 0 if text is None else len(text) if text.isascii() else 4 * len(text)
