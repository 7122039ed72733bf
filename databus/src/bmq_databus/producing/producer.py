"""librdkafka's producer for an event loop: what it reports comes back in the loop, several in one turn of it.

Reports come in a thread of their own, as librdkafka waits there for them. Each is a pure append to a list; the loop is
woken once for all that came since it looked last.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bmq_databus.errors import QueueFull
from bmq_databus.spool.frames import Spooled

POLL_S: Final = 0.1
FLUSH_SLICE_S: Final = 0.1
TELL_EVERY_S: Final = 30.0
DELIVERED_MAX: Final = 200
"""So many reports are delivered in one turn of the loop."""

log = structlog.get_logger()

Report = Callable[[KafkaError | None, int, int], None]
"""Called in the loop with (error, partition, offset) of one message; without an error it is in the cluster."""


class Producing:
    """One cluster's producer. `close` ends it."""

    def __init__(self, settings: Mapping[str, Any], *, broken: Callable[[str], None]) -> None:
        """`broken` is called in the loop when nothing more can be sent by it. Raises KafkaException for settings that
        librdkafka does not take.
        """
        self._loop = asyncio.get_running_loop()
        self._broken = broken
        self._reports: deque[tuple[Report, KafkaError | None, int, int]] = deque()
        self._lock = threading.Lock()
        self._producer = Producer({**settings, "error_cb": self._failed})
        self._ended = False
        self._told_until_s = float("-inf")
        self._thread = threading.Thread(target=self._poll, name="reports of the producer", daemon=True)
        self._thread.start()

    @property
    def unsent(self) -> int:
        """How many messages have no report yet."""
        return len(self._producer)

    def produce(self, message: Spooled, report: Report) -> None:
        """Hands over one message. Raises QueueFull where librdkafka has as many as it may, BufferError never."""

        def reported(error: KafkaError | None, sent: Message) -> None:
            offset = sent.offset()
            partition = sent.partition()
            self._came(report, error, -1 if partition is None else partition, -1 if offset is None else offset)

        try:
            self._producer.produce(
                message.topic,
                value=message.value,
                key=message.key,
                partition=message.partition,  # -1 is librdkafka's word for "by its key", too
                on_delivery=reported,
                timestamp=message.timestamp_ms,
                headers=list(message.headers) or None,
            )
        except BufferError:
            raise QueueFull("the producer has as many messages under way as it may") from None
        except KafkaException as error:
            self._came(report, error.args[0], message.partition, -1)

    async def check(self, timeout_s: float) -> None:
        """Returns once the cluster answers. Raises KafkaException where it does not in that time."""
        await self._loop.run_in_executor(None, partial(self._producer.list_topics, timeout=timeout_s))

    def purge(self) -> None:
        """Messages without a report are given up: each gets one."""
        self._producer.purge()

    async def close(self, *, patience_s: float) -> int:
        """Waits for reports, so long at most; how many messages have none then."""
        deadline_s = self._loop.time() + patience_s
        while len(self._producer) and self._loop.time() < deadline_s:
            await self._loop.run_in_executor(None, self._producer.flush, FLUSH_SLICE_S)
        self._ended = True
        await self._loop.run_in_executor(None, self._thread.join)
        while self._reports:
            self._deliver()
        return len(self._producer)

    def _poll(self) -> None:
        while not self._ended:
            self._producer.poll(POLL_S)

    def _failed(self, error: KafkaError) -> None:
        self._loop.call_soon_threadsafe(self._tell, error.str())
        if error.fatal():
            self._loop.call_soon_threadsafe(self._broken, error.str())

    def _tell(self, why: str) -> None:
        now_s = self._loop.time()
        if now_s >= self._told_until_s:
            self._told_until_s = now_s + TELL_EVERY_S
            log.warning("cluster is not reached", why=why)

    def _came(self, report: Report, error: KafkaError | None, partition: int, offset: int) -> None:
        with self._lock:
            self._reports.append((report, error, partition, offset))
            is_first = len(self._reports) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            reports = [self._reports.popleft() for _ in range(min(DELIVERED_MAX, len(self._reports)))]
            is_more = bool(self._reports)
        if is_more:
            self._loop.call_soon(self._deliver)
        for report, error, partition, offset in reports:
            report(error, partition, offset)
