"""How many bytes groups take, of one coordinator and of its broker. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

ELEMENT_WORK_BYTES: Final = 250
"""As much work of a turn as an offset that is deleted, a member that goes, or a group that is looked at."""


@dataclass(slots=True)
class Tally:
    """About how many bytes: of one coordinator, and with `whole` of all on this broker; and how many of them are for
    whom, by clients' addresses ("": nobody knows).
    """

    size_bytes: int = 0
    whole: "Tally | None" = None
    by_address: Counter[str] = field(default_factory=Counter)

    def add(self, size_bytes: int, *, address: str = "") -> None:
        """More, or (below 0) fewer."""
        self.size_bytes += size_bytes
        if address:
            self.by_address[address] += size_bytes
            if not self.by_address[address]:
                del self.by_address[address]
        if self.whole is not None:
            self.whole.add(size_bytes, address=address)

    def join(self, whole: "Tally | None") -> None:
        """What it has counts there from now on; None: nowhere any more."""
        nobodys_bytes = self.size_bytes - self.by_address.total()
        for other, sign in ((self.whole, -1), (whole, 1)):
            if other is not None:
                other.add(sign * nobodys_bytes)
                for address, size_bytes in self.by_address.items():
                    other.add(sign * size_bytes, address=address)
        self.whole = whole

    @property
    def everywhere_bytes(self) -> int:
        """About how many bytes there are on the whole broker; without a `whole`, how many of this one."""
        return self.size_bytes if self.whole is None else self.whole.everywhere_bytes

    def everywhere_for(self, address: str) -> int:
        """How many of those are for clients at an address."""
        return self.by_address[address] if self.whole is None else self.whole.everywhere_for(address)


def text_bytes(text: str | None) -> int:
    """What a text takes in memory at most, beside being an object."""
    return 0 if text is None else len(text) if text.isascii() else 4 * len(text)
