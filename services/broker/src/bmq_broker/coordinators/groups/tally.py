"""How many bytes groups take, of one coordinator and of its broker. Pure."""

from dataclasses import dataclass
from typing import Final

ELEMENT_WORK_BYTES: Final = 250
"""As much work of a turn as an offset that is deleted, a member that goes, or a group that is looked at."""


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
        """About how many bytes there are on the whole broker; without a `whole`, how many of this one."""
        return self.size_bytes if self.whole is None else self.whole.everywhere_bytes


def text_bytes(text: str | None) -> int:
    """What a text takes in memory at most, beside being an object."""
    return 0 if text is None else len(text) if text.isascii() else 4 * len(text)
