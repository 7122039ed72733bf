"""One cluster's producers: one for each manner in which channels want their messages sent.

librdkafka has partitioner, batches and compression for a whole producer. What all of them hold of messages under way
has one bound, of which each has its share.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bmq_databus.channels.channel import Manner
from bmq_databus.channels.together import MANNERS_MAX
from bmq_databus.errors import QueueFull
from bmq_databus.producing.sender import Sender
from bmq_databus.producing.settings import QUEUE_KIB, manner_settings


class Senders:
    """`close` ends them."""

    def __init__(
        self, settings: Mapping[str, Any], manners: Iterable[Manner], *, broken: Callable[[str], None]
    ) -> None:
        """`settings` are a producer's. Those of `manners` are made at once. As `Sender`."""
        self._settings = settings
        self._broken = broken
        self._senders: dict[Manner, Sender] = {}
        wanted = set(manners)
        self._share_bytes = QUEUE_KIB * 1024 // max(1, len(wanted))
        for manner in wanted:
            self._make(manner, None if len(wanted) == 1 else self._share_bytes)

    def of(self, manner: Manner) -> Sender:
        """Raises QueueFull where there are as many as may be."""
        sender = self._senders.get(manner)
        if sender is None:
            if len(self._senders) >= MANNERS_MAX:
                raise QueueFull(
                    f"channels are sent in {MANNERS_MAX} manners already: give this one the partitioner, batching and "
                    "compression of another one, or start the sidecar again"
                )
            sender = self._make(manner, QUEUE_KIB * 1024 // MANNERS_MAX)
        return sender

    @property
    def unsent(self) -> int:
        """How many messages have no report yet."""
        return sum(sender.unsent for sender in self._senders.values())

    def purge(self) -> None:
        """Messages without a report are given up: each gets one."""
        for sender in self._senders.values():
            sender.purge()

    async def close(self, *, patience_s: float) -> int:
        """Waits for reports, all of them together so long at most; how many messages have none then."""
        return sum(await asyncio.gather(*(sender.close(patience_s=patience_s) for sender in self._senders.values())))

    def _make(self, manner: Manner, bytes_max: int | None) -> Sender:
        sender = Sender(
            {**self._settings, **manner_settings(manner)}, broken=self._broken, under_way_bytes_max=bytes_max
        )
        self._senders[manner] = sender
        return sender
