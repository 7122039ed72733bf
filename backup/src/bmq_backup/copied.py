"""What became of a copy. Values only."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bmq.errors import BmqError


class NotCopied(BmqError):
    """The copy could not be made; the message says why, and what helps."""


@dataclass(slots=True)
class Copied:
    """What was done. `position`: the metadata entry that the copy ends with, its own."""

    cluster_id: str = ""
    position: int = 0
    passes: int = 0
    objects: int = 0
    size_bytes: int = 0
    there_already: int = 0
    """Objects of an earlier try."""
    lost: list[str] = field(default_factory=list)
    """What the copy does not have because the store itself has lost it: keys that newest manifest versions name."""
    told: Callable[["Copied"], None] = field(default=lambda _: None)
