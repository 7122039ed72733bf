"""Keeps a partition's batches in order when one of them was refused while later ones were on their way already. Pure:
the server's side.

A proxy sends batch 2 before it knows what became of batch 1. When the owner refuses batch 1 (*not applied*, to be sent
again), batch 2 must not be taken before batch 1 was sent again. So from a refusal on, everything of that partition is
refused until its sender has heard of it. Refusals of a connection are numbered; each says which call was the last that
had been looked at, so that the client knows at once what of its calls is refused as well; and each append says the
number of the newest refusal that its sender has heard of.
"""

from collections.abc import Hashable
from typing import NamedTuple


class Refusal(NamedTuple):
    """`number` counts from 1; every call of the partition above `looked_at` that was sent before its sender heard of
    this is refused.
    """

    number: int
    looked_at: int


NO_REFUSAL = Refusal(0, 0)


class Refusals:
    """The refusals of one connection. Holds the partitions whose newest refusal was not heard of yet."""

    __slots__ = ("_count", "_looked_at", "_told", "_unheard")

    def __init__(self) -> None:
        self._count = 0
        self._looked_at = 0
        self._unheard: dict[Hashable, int] = {}
        """The number of each partition's newest refusal, ascending."""
        self._told: dict[int, Refusal] = {}

    def admits(self, partition: Hashable, correlation_id: int, heard: int) -> bool:
        """Whether a call may be looked at; otherwise it is refused, as its sender knows or will."""
        self._looked_at = correlation_id
        unheard = self._unheard
        while unheard and unheard[oldest := next(iter(unheard))] <= heard:
            del unheard[oldest]
        return partition not in unheard

    def refused(self, partition: Hashable, correlation_id: int) -> None:
        """A call that was looked at was not applied and is to be sent again."""
        self._count += 1
        self._unheard.pop(partition, None)
        self._unheard[partition] = self._count
        self._told[correlation_id] = Refusal(self._count, self._looked_at)

    def take(self, correlation_id: int) -> Refusal:
        """What the answer to a call says; NO_REFUSAL where it was not refused, or only because one before it was."""
        return self._told.pop(correlation_id, NO_REFUSAL)
