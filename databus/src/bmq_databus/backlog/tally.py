"""What became of the messages of one replay, counted as a sidecar's metrics count them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from bmq_databus.metrics import Held
from bmq_databus.producing.draining import Sends
from bmq_databus.producing.outcomes import FOR_GOOD
from bmq_databus.producing.producer import Reports
from bmq_databus.spool.frames import Spooled


@dataclass(slots=True)
class Count:
    """One number."""

    value: int = 0

    def inc(self, amount: float = 1) -> None:
        """By so many."""
        self.value += int(amount)


class Tally:
    """By its spool, once it is noted there."""

    def __init__(self) -> None:
        self.sent, self.sent_again, self.refused, self.dropped, self.damaged = (Count() for _ in range(5))
        self.refused_dropped, self.damaged_dropped = Count(), Count()

    def tell(self, spool: Held) -> None:
        """Nobody asks while it goes on."""


class Reasons:
    """A producer that notes why messages are refused, and of how many nothing is known yet."""

    def __init__(self, producing: Sends) -> None:
        self._producing = producing
        self._under_way = 0
        self._came = asyncio.Event()
        self.counts: Counter[tuple[str, str]] = Counter()
        """By (topic, why)."""

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """As the producer."""

        def reported(place: int, error: KafkaError | None, partition: int, offset: int) -> None:
            self._note(messages[place], error)
            reports(place, error, partition, offset)

        end = self._producing.produce(messages, reported, first=first, end=end)
        self._under_way += end - first
        return end

    async def all_came(self, patience_s: float) -> bool:
        """Whether what became of each message is known within so long."""
        try:
            async with asyncio.timeout(patience_s):
                while self._under_way:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            return False
        return True

    def _note(self, message: Spooled, error: KafkaError | None) -> None:
        self._under_way -= 1
        self._came.set()
        if error is not None and error.code() in FOR_GOOD:
            self.counts[message.topic, error.str()] += 1
