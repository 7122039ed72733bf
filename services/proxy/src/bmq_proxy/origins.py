"""A connection, as what came over it knows it."""

from typing import Protocol


class Origin(Protocol):
    """What is remembered of it goes with it."""

    def __hash__(self) -> int: ...

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def is_over(self) -> bool:
        """It has ended, and so has what came over it."""
