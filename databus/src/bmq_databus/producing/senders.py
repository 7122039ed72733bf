"""One cluster's producers: one for each manner in which messages are sent.

librdkafka has partitioner, batches and compression for a whole producer, and a lane is what its client is in. What all
of them hold of messages under way has one bound for those of the base, of which each has its share, and as much for
those of lanes. A lane's producer that has had nothing to send for a while is closed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from confluent_kafka import KafkaException

from bmq.fairness.log_limit import RateLimited
from bmq_databus.channels.channel import Manner
from bmq_databus.errors import QueueFull
from bmq_databus.producing.producer import Away, Reports
from bmq_databus.producing.sender import Sender
from bmq_databus.producing.settings import QUEUE_KIB, with_manner
from bmq_databus.spool.frames import Spooled
from bmq_resources.channel_sets import MANNERS_MAX

LANES_MAX: Final = 16
"""Producers of lanes, and their threads, are so many at most."""
LANES_CLOSING_MAX: Final = 4
"""So many more are being closed at most: more lanes than there are producers make one for nearly each message."""
IDLE_S: Final = 60.0
COMPLAIN_EVERY_S: Final = 10.0

log = structlog.get_logger()
_complaints: Final = RateLimited(interval_s=COMPLAIN_EVERY_S)


@dataclass(slots=True)
class _OfLane:
    sender: Sender
    used_s: float


class Senders:
    """`close` ends them."""

    def __init__(
        self, settings: Mapping[str, Any], manners: Iterable[Manner], *, broken: Callable[[str], None]
    ) -> None:
        """`settings` are a producer's. Those of `manners` are made at once. As `Sender`."""
        self._settings = settings
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._senders: dict[Manner, Sender] = {}
        self._of_lanes: dict[Manner, _OfLane] = {}
        """The one that was used last comes last."""
        self._latest: tuple[Manner, Sender] | None = None
        """The manner, of no lane, that was asked for last, and its producer."""
        self._closing: set[asyncio.Task[int]] = set()
        self._looking: asyncio.TimerHandle | None = None
        wanted = set(manners)
        for manner in wanted:
            self._senders[manner] = self._made(manner, None if len(wanted) == 1 else QUEUE_KIB * 1024 // len(wanted))

    def of(self, manner: Manner) -> Sender:
        """Raises QueueFull where there are as many as may be."""
        sender = self._senders.get(manner)
        if sender is None:
            if manner.lane:
                return self._of_lane(manner)
            if sum(one.makes_topics for one in self._senders) >= MANNERS_MAX:
                raise QueueFull(
                    f"channels are sent in {MANNERS_MAX} manners already: give this one the partitioner, batching and "
                    "compression of another one, or start the sidecar again"
                )
            sender = self._senders[manner] = self._made(manner, QUEUE_KIB * 1024 // MANNERS_MAX)
        return sender

    def away(self, manner: Manner) -> Away | None:
        """That the cluster of the manner is not reached; None: it is, as far as is known."""
        if self._latest is not None and manner is self._latest[0]:
            return self._latest[1].away
        sender = self._senders.get(manner)
        return None if sender is None else sender.away

    def produce(self, manner: Manner, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """By the producer of the manner, and of the messages' own lane and partitioner: those from `first` to before
        `end`, as many as there is room for, and as go the same way; the place of the first that does not. Raises
        QueueFull where that is `first`.
        """
        lane, partitioner = messages[first].lane, messages[first].partitioner
        for place in range(first + 1, end):
            if messages[place].lane != lane or messages[place].partitioner != partitioner:
                end = place
                break
        if lane or partitioner != manner.partitioner:
            sender = self.of(replace(manner, lane=lane, partitioner=partitioner))
        else:
            if self._latest is None or manner is not self._latest[0]:  # to look one up by all of its parts takes long
                self._latest = manner, self.of(manner)
            sender = self._latest[1]
        return sender.produce(messages, reports, first=first, end=end)

    def way(self, manner: Manner) -> "Way":
        """For all messages of one channel."""
        return Way(self, manner)

    @property
    def lanes(self) -> int:
        """How many producers of lanes there are."""
        return len(self._of_lanes)

    async def check(self, timeout_s: float) -> None:
        """Returns once the cluster answers. Raises KafkaException where it does not in that time."""
        await next(iter(self._senders.values())).check(timeout_s)

    def renew(self) -> bool:
        """Producers of topics that nobody declared forget them, by their end; False: they have messages under way."""
        those = [(manner, one) for manner, one in self._senders.items() if not manner.makes_topics]
        of_lanes = [manner for manner in self._of_lanes if not manner.makes_topics]
        if any(one.unsent for one in (*(one for _, one in those), *(self._of_lanes[one].sender for one in of_lanes))):
            return False
        for manner, sender in those:
            self._senders[manner] = self._made(manner, sender.under_way_bytes_max)
            self._close(sender, "close producer of topics")
        for manner in of_lanes:
            self._close_of_lane(manner)
        self._latest = None
        return True

    def purge(self) -> None:
        """Messages without a report are given up: each gets one."""
        for sender in self._all():
            sender.purge()

    async def close(self, *, patience_s: float) -> int:
        """Waits for reports, all of them together so long at most; how many messages have none then."""
        if self._looking is not None:
            self._looking.cancel()
        left = await asyncio.gather(*(sender.close(patience_s=patience_s) for sender in self._all()))
        await asyncio.gather(*self._closing)
        return sum(left)

    def close_idle(self, idle_s: float = IDLE_S) -> None:
        """Producers of lanes that were not used for so long, and have nothing under way."""
        oldest_s = self._loop.time() - idle_s
        for manner, one in list(self._of_lanes.items()):
            if one.used_s <= oldest_s and not one.sender.unsent:
                self._close_of_lane(manner)
        self._looking = self._loop.call_later(IDLE_S / 2, self.close_idle) if self._of_lanes else None

    def _of_lane(self, manner: Manner) -> Sender:
        one = self._of_lanes.pop(manner, None)
        if one is not None and one.sender.is_fatal:  # as that of a lane which is not there, and may be by now
            if one.sender.unsent:
                self._of_lanes[manner] = one
                raise QueueFull(f"the producer of lane {manner.lane} failed, and has yet to tell of its messages")
            self._close(one.sender, f"close failed producer of lane {manner.lane}")
            one = None
        if one is None:
            self._make_room()
            try:
                sender = self._made(manner, QUEUE_KIB * 1024 // LANES_MAX, broken=_of_one_lane)
            except (KafkaException, RuntimeError) as error:  # no threads, or places for what they keep: the system's
                raise QueueFull(f"lane {manner.lane} gets no producer of its own for now: {error}") from None
            one = _OfLane(sender, 0.0)
            if self._looking is None:
                self._looking = self._loop.call_later(IDLE_S / 2, self.close_idle)
        one.used_s = self._loop.time()
        self._of_lanes[manner] = one
        return one.sender

    def _make_room(self) -> None:
        """For one more lane. Raises QueueFull."""
        if len(self._closing) >= LANES_CLOSING_MAX:
            raise QueueFull(f"{LANES_CLOSING_MAX} producers make room for other lanes just now: try again")
        if len(self._of_lanes) < LANES_MAX:
            return
        for manner, one in self._of_lanes.items():
            if not one.sender.unsent:
                self._close_of_lane(manner)
                return
        raise QueueFull(f"messages of {LANES_MAX} lanes are under way, each by a producer of its own: try again")

    def _close_of_lane(self, manner: Manner) -> None:
        self._close(self._of_lanes.pop(manner).sender, f"close producer of lane {manner.lane}")

    def _close(self, sender: Sender, name: str) -> None:
        task = self._loop.create_task(sender.close(patience_s=0.0), name=name)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _all(self) -> list[Sender]:
        return [*self._senders.values(), *(one.sender for one in self._of_lanes.values())]

    def _made(self, manner: Manner, bytes_max: int | None, *, broken: Callable[[str], None] | None = None) -> Sender:
        return Sender(with_manner(self._settings, manner), broken=broken or self._broken, under_way_bytes_max=bytes_max)


def _of_one_lane(why: str) -> None:
    """The lane's next message gets another producer, and nobody else is concerned."""
    if (left_out := _complaints.due("failed", now=asyncio.get_running_loop().time())) is not None:
        log.warning("a lane's producer failed: its next message gets another one", why=why, left_out=left_out)


class Way:
    """One channel's messages to its cluster's producers."""

    def __init__(self, senders: Senders, manner: Manner) -> None:
        self._senders = senders
        self._manner = manner

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """As `Senders`."""
        return self._senders.produce(self._manner, messages, reports, first=first, end=end)
