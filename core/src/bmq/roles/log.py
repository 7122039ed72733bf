"""What a coordinator asks of the partition that is its log: the broker's partition layer implements it, the
coordinators use it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from typing_extensions import Buffer

from bmq.values import Offset


class CoordinatorLog(Protocol):
    """One partition of `__consumer_offsets` (later `__transaction_state`), owned by this broker."""

    def check_open(self) -> None:
        """Raises NotReady while the log takes no records. To be asked before anything is changed: an append that fails
        ends the coordinator.
        """

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> "asyncio.Future[None]":
        """Submits (key, value) records as one batch before it returns; the future resolves once they and all before are
        durable.

        Raises (in the future) Fenced or StoreError, after which the coordinator's state is to be thrown away.
        """

    def barrier(self) -> "asyncio.Future[None]":
        """Resolves once everything appended so far is durable; at once where nothing is waiting."""

    def read_from(self, offset: Offset) -> AsyncIterator[Buffer]:
        """Every record batch from the one that holds `offset` (or the log start) up to the log's end, for loading."""

    async def load_snapshot(self) -> tuple[Offset, bytes] | None:
        """The newest snapshot that the manifest names: it holds the effect of every record below the offset."""

    async def save_snapshot(self, offset: Offset, data: bytes) -> None:
        """Stores a snapshot of everything below `offset` (not above the high watermark) and has the manifest name
        it.
        """

    def high_watermark(self) -> Offset:
        """Everything below it is durable."""

    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
