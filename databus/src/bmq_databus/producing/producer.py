"""librdkafka's producer for an event loop: what it reports comes back in the loop, several in one turn of it.

The loop itself asks for reports, every ms while messages are under way: a thread that waits for them would have to get
Python's lock for each, of a loop that is busy. Each is a pure append to a list; what is told of it comes after.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bmq.fairness.own_threads import OwnThreads
from bmq_databus.errors import QueueFull
from bmq_databus.spool.frames import Spooled

POLL_S: Final = 0.001
POLL_SELDOM_S: Final = 0.02
"""Where nothing was handed over or reported for a while, so that a cluster that is away costs nothing."""
SELDOM_AFTER_S: Final = 0.2
POLL_IDLE_S: Final = 0.1
"""Where nothing is under way."""
POLLED_MAX: Final = 1_000
"""So many reports are taken in one turn of the loop…"""
DELIVERED_MAX: Final = 200
"""…and so many delivered."""
FLUSH_SLICE_S: Final = 0.1
LOOK_EVERY_S: Final = 0.5
LOOK_WITHIN_S: Final = 1.0
"""How often a cluster that is away is looked for, and how long each time."""
TELL_EVERY_S: Final = 30.0

log = structlog.get_logger()
_SILENT: Final = logging.Logger("librdkafka", level=logging.CRITICAL + 1)
"""librdkafka writes a line for each producer that fails; what is to be told of those is told by who made them."""

_LOOKS: Final = OwnThreads(4, name="look for clusters")
_ENDS: Final = OwnThreads(2, name="end producers")
"""Threads for all producers: a look at a cluster that is away takes one for a second, and each lane has a look."""

Reports = Callable[[int, KafkaError | None, int, int], None]
"""Called in the loop with (place, error, partition, offset) of each message, by its place among those that were handed
over together; without an error it is in the cluster."""
Refused = Callable[[Spooled, Reports, int, KafkaError], bool]
"""Called with an error before `Reports` is: True where something else becomes of the message."""


class Away(NamedTuple):
    """A cluster that is not reached."""

    servers: str
    seconds: float
    why: str

    @property
    def said(self) -> str:
        """For people."""
        return f"the cluster at {self.servers} is not reached since {self.seconds:.0f} s ({self.why})"


class _Enough(Exception):
    """Reports are taken for now: librdkafka keeps the others."""


_ENOUGH: Final = _Enough()


class Producing:
    """One cluster's producer. `close` ends it."""

    def __init__(
        self, settings: Mapping[str, Any], *, broken: Callable[[str], None], refused: Refused | None = None
    ) -> None:
        """`broken` is called in the loop when nothing more can be sent by it. Raises KafkaException for settings that
        librdkafka does not take.
        """
        self._loop = asyncio.get_running_loop()
        self._broken = broken
        self._refused = refused
        self._came: deque[tuple[Sequence[Spooled], Reports, int, KafkaError | None, int, int]] = deque()
        """Reports that are not delivered yet."""
        self._is_delivering = False
        self._producer = Producer({**settings, "error_cb": self._failed, "logger": _SILENT})
        self._ended = False
        self._told_until_s = float("-inf")
        self._active_s = float("-inf")
        """When something was handed over or reported last."""
        self._is_often = False
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._away_since_s: float | None = None
        self._away_why = ""
        self._looking: asyncio.Task[None] | None = None
        self._next_poll = self._loop.call_later(POLL_IDLE_S, self._poll)
        self._asked: set[Any] = set()
        """Futures of threads that ask the cluster, or wait for their turn to."""
        self._is_closed = False
        self.is_fatal = False
        """Whether it takes nothing any more, for as long as it lives."""

    @property
    def away(self) -> Away | None:
        """That none of the cluster's brokers is reached; None: one is, as far as is known."""
        if self._away_since_s is None:
            return None
        return Away(self._servers, self._loop.time() - self._away_since_s, self._away_why)

    @property
    def unsent(self) -> int:
        """How many messages have no report yet."""
        return len(self._producer) + len(self._came)

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """Hands over those from `first` to before `end`, as many as there is room for; the place of the first that
        there is none for. Raises QueueFull where that is `first`: librdkafka has as many as it may.
        """
        produce, reported = self._producer.produce, self._reported
        for place in range(first, end):
            message = messages[place]
            try:
                produce(
                    message.topic,
                    message.value,
                    message.key,
                    message.partition,  # -1 is librdkafka's word for "by its key", too
                    partial(reported, messages, reports, place),
                    timestamp=message.timestamp_ms,
                    headers=list(message.headers) if message.headers else None,
                )
            except BufferError:
                if place == first:
                    raise QueueFull("the producer has as many messages under way as it may") from None
                end = place
                break
            except KafkaException as error:
                self._came.append((messages, reports, place, error.args[0], message.partition, -1))
                self._deliver_soon()
        if not self._is_often and len(self._producer):
            self._poll_often()
        return end

    async def check(self, timeout_s: float) -> None:
        """Returns once the cluster answers. Raises KafkaException where it does not in that time."""
        asked = _LOOKS.submit(self._producer.list_topics, timeout=timeout_s)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        await asyncio.shield(_heard(asyncio.wrap_future(asked)))

    def purge(self) -> None:
        """Messages without a report are given up: each gets one."""
        self._producer.purge()

    async def close(self, *, patience_s: float) -> int:
        """Waits for reports, so long at most; how many messages have none then."""
        deadline_s = self._loop.time() + patience_s
        while len(self._producer) and self._loop.time() < deadline_s:
            await self._loop.run_in_executor(None, self._flush)
            self._deliver_all()
        self._ended = True
        self._next_poll.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        with suppress(_Enough, KafkaException):
            self._producer.poll(0)
        self._deliver_all()
        left = len(self._producer)
        under_way = [asked for asked in list(self._asked) if not asked.cancel()]
        if under_way:  # nobody may take their handle away
            await asyncio.wait([_heard(asyncio.wrap_future(asked)) for asked in under_way])
        self._is_closed = True
        await self._loop.run_in_executor(_ENDS, self._give_back)
        return left

    def _give_back(self) -> None:
        """In a thread: what librdkafka has, its threads first of all. Freed with this object it would be there until
        garbage is looked for, as each knows the other.
        """
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.close()

    def _flush(self) -> None:
        """In a thread."""
        with suppress(_Enough, KafkaException):
            self._producer.flush(FLUSH_SLICE_S)

    def _poll_often(self) -> None:
        self._is_often = True
        self._active_s = self._loop.time()
        self._next_poll.cancel()
        self._next_poll = self._loop.call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        if self._ended:
            return
        delay_s = POLL_SELDOM_S
        try:
            delay_s = self._polled()
        finally:  # whatever comes of one look, there is a next one: nobody else takes reports
            self._is_often = delay_s <= POLL_S
            self._next_poll = self._loop.call_later(delay_s, self._poll)

    def _polled(self) -> float:
        """Takes reports; in how many seconds it is to be looked again."""
        delay_s = POLL_S
        try:
            self._producer.poll(0)
        except _Enough:
            delay_s = 0.0
        except KafkaException as error:  # as it tells of what is fatal; what it has under way is reported
            self._failed(error.args[0])
        now_s = self._loop.time()
        if self._came:
            self._active_s = now_s
            if self._away_since_s is not None and self._came[-1][3] is None:
                self._away_since_s = None
            self._deliver_soon()
        if not len(self._producer):
            delay_s = POLL_IDLE_S
        elif now_s > self._active_s + SELDOM_AFTER_S:
            delay_s = POLL_SELDOM_S
        return delay_s

    def _reported(
        self, messages: Sequence[Spooled], reports: Reports, place: int, error: KafkaError | None, sent: Message
    ) -> None:
        """By librdkafka, within a poll."""
        if self._is_closed:
            return
        partition, offset = sent.partition(), sent.offset()
        came = self._came
        came.append(
            (messages, reports, place, error, -1 if partition is None else partition, -1 if offset is None else offset)
        )
        if len(came) % POLLED_MAX == 0:
            raise _ENOUGH

    def _failed(self, error: KafkaError) -> None:
        """By librdkafka, within a poll."""
        if error.fatal():
            if not self.is_fatal:
                self.is_fatal = True
                self._loop.call_soon_threadsafe(self._broken, error.str())
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._loop.call_soon_threadsafe(self._is_away)
        else:
            self._away_why = error.str()
        self._loop.call_soon_threadsafe(self._tell, error.str())

    def _is_away(self) -> None:
        if self._away_since_s is None and not self._ended:
            self._away_since_s = self._loop.time()
            self._looking = self._loop.create_task(self._look(), name="look for the cluster")

    async def _look(self) -> None:
        """Until it is there. One that comes back while nothing is sent says nothing."""
        while self._away_since_s is not None:
            try:
                await self.check(LOOK_WITHIN_S)
            except KafkaException:
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                self._away_since_s = None

    def _tell(self, why: str) -> None:
        now_s = self._loop.time()
        if now_s >= self._told_until_s:
            self._told_until_s = now_s + TELL_EVERY_S
            log.warning("cluster is not reached", why=why)

    def _deliver_soon(self) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        came = self._came
        count = min(DELIVERED_MAX, len(came))
        self._is_delivering = len(came) > count
        if self._is_delivering:
            self._loop.call_soon(self._deliver)
        for _ in range(count):
            messages, reports, place, error, partition, offset = came.popleft()
            if error is None or self._refused is None or not self._refused(messages[place], reports, place, error):
                reports(place, error, partition, offset)

    def _deliver_all(self) -> None:
        while self._came:
            self._deliver()


def _heard(answer: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    """Whose error is no bug where nobody waits for it any more."""
    answer.add_done_callback(lambda _: None if answer.cancelled() else answer.exception())
    return answer
