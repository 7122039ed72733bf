"""What an owner refused in this turn of the loop. Who waits for it hears of it in the next one: until then nothing may
be sent past it.
"""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any, Final, Protocol

from bmq.errors import (
    CorruptBatch,
    Fenced,
    FormatError,
    NotOwner,
    NotReady,
    PartitionStopped,
    StoreError,
    UnknownTopic,
    UnknownTopicId,
)

REFUSALS: Final = (NotOwner, NotReady, Fenced, PartitionStopped, StoreError, FormatError, UnknownTopic, UnknownTopicId)
"""What ails a partition, for the moment or for longer: whoever hears of it sends the batch again, and no later one may
be taken before that."""
SENT_AGAIN: Final = (*REFUSALS, CorruptBatch)
"""The same, and what ails one batch: others' batches must not have to wait for it, so only its own producer's do."""


class WithOwner(Protocol):
    """An append that was handed over."""

    @property
    def future(self) -> "asyncio.Future[Any]":
        """What the owner returned."""


class Settling:
    """Keys of which something was refused in this turn of the loop, and how often: not all who wait for it know yet,
    and may send once more.
    """

    __slots__ = ("_counts", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts: dict[Hashable, int] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def refused(self, key: Hashable) -> None:
        """Futures of this key have failed just now."""
        self._counts[key] = self._counts.get(key, 0) + 1
        self._loop.call_soon(self._heard, key)  # runs behind the callbacks of the futures that failed

    def _heard(self, key: Hashable) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


def refused_unheard(appends: Sequence[WithOwner], errors: type[Exception] | tuple[type[Exception], ...]) -> bool:
    """Whether one of a partition's appends failed with one of `errors`, or was cancelled, though it is still among
    them.

    `appends`: at least one, in the order in which they were handed over. Few of them are looked at: an owner answers
    the oldest first, or refuses the newest, which wait for it to open the partition.
    """
    newest = appends[-1].future
    if newest.done() and _is_refused(newest, errors):
        return True
    for append in appends:
        if not append.future.done():
            return False
        if _is_refused(append.future, errors):
            return True
    return False


def _is_refused(future: "asyncio.Future[Any]", errors: type[Exception] | tuple[type[Exception], ...]) -> bool:
    return future.cancelled() or isinstance(future.exception(), errors)
