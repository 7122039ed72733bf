"""A cluster's producer that finds out which message of a batch is not taken.

The cluster refuses batches, not messages, and librdkafka puts as many messages into one as there are: for one message
with a time that the topic does not take, or where the topic takes smaller batches than librdkafka makes, it refuses all
of them. Those are sent again, each as a batch of its own; what is refused then is.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from bmq_databus.errors import QueueFull
from bmq_databus.producing.producer import Away, Producing, Reports
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.sizes import bytes_of

OF_BATCHES: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
"""Errors of a batch that one of its messages, or their number, may be the reason of."""
FULL: Final = "the producer has as many messages under way as it may"
APART_MAX: Final = 10_000
"""Messages that are sent by themselves at a time before no more are taken: a batch refused brings at most some
thousands."""


class Sender:
    """One cluster's. What was refused with others goes behind what was sent meanwhile. `close` ends it."""

    def __init__(
        self, settings: Mapping[str, Any], *, broken: Callable[[str], None], under_way_bytes_max: int | None = None
    ) -> None:
        """As `Producing`. `under_way_bytes_max`: so much, or one message, is under way; None: as librdkafka bounds
        it.
        """
        self._settings = settings
        self._broken = broken
        self._together = Producing(settings, broken=broken, refused=self._is_sent_apart)
        self._apart: Producing | None = None
        self._purged = False
        self._under_way_bytes = 0
        self.under_way_bytes_max = under_way_bytes_max

    @property
    def unsent(self) -> int:
        """How many messages have no report yet."""
        return self._together.unsent + (0 if self._apart is None else self._apart.unsent)

    @property
    def is_fatal(self) -> bool:
        """Whether it takes nothing any more, for as long as it lives."""
        return self._together.is_fatal or (self._apart is not None and self._apart.is_fatal)

    @property
    def away(self) -> Away | None:
        """That the cluster is not reached; None: it is, as far as is known."""
        return self._together.away

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """Hands over those from `first` to before `end`, as many as there is room for; the place of the first that
        there is none for. Raises QueueFull where that is `first`.
        """
        if self._apart is not None and self._apart.unsent >= APART_MAX:
            raise QueueFull(FULL)
        if self.under_way_bytes_max is None:
            return self._together.produce(messages, reports, first=first, end=end)
        sizes_bytes, under_way_bytes = [], self._under_way_bytes
        for place in range(first, end):
            size_bytes = bytes_of(messages[place])
            if under_way_bytes and under_way_bytes + size_bytes > self.under_way_bytes_max:
                break
            under_way_bytes += size_bytes
            sizes_bytes.append(size_bytes)
        if not sizes_bytes:
            raise QueueFull(FULL)

        def counted(place: int, error: KafkaError | None, partition: int, offset: int) -> None:
            self._under_way_bytes -= sizes_bytes[place - first]
            reports(place, error, partition, offset)

        end = self._together.produce(messages, counted, first=first, end=first + len(sizes_bytes))
        self._under_way_bytes += sum(sizes_bytes[: end - first])
        return end

    async def check(self, timeout_s: float) -> None:
        """Returns once the cluster answers. Raises KafkaException where it does not in that time."""
        await self._together.check(timeout_s)

    def purge(self) -> None:
        """Messages without a report are given up: each gets one."""
        self._purged = True
        self._together.purge()
        if self._apart is not None:
            self._apart.purge()

    async def close(self, *, patience_s: float) -> int:
        """Waits for reports, so long at most; how many messages have none then."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + patience_s
        left = await self._together.close(patience_s=patience_s)
        if self._apart is not None:  # which may have got some meanwhile
            left += await self._apart.close(patience_s=max(0.0, deadline_s - loop.time()))
        return left

    def _is_sent_apart(self, message: Spooled, reports: Reports, place: int, error: KafkaError) -> bool:
        if error.code() not in OF_BATCHES or self._purged:
            return False

        def of_its_place(_: int, error: KafkaError | None, partition: int, offset: int) -> None:
            reports(place, error, partition, offset)

        try:
            if self._apart is None:
                self._apart = Producing(
                    {
                        **self._settings,
                        "batch.num.messages": 1,
                        "linger.ms": 0,
                        "queue.buffering.max.messages": 0,
                        "queue.buffering.max.kbytes": 2_097_151,
                    },
                    broken=self._broken,
                )
            self._apart.produce([message], of_its_place, first=0, end=1)
        except (QueueFull, KafkaException, RuntimeError):
            # it has no bound in number, and what it may get is bounded: the system has no thread for it
            reports(place, KafkaError(KafkaError._QUEUE_FULL), message.partition, -1)
        return True
