"""From a spool to a cluster, in the order in which messages were accepted.

What the cluster refuses for good goes into a file of its own; everything else is tried until it is there. Where
librdkafka gives a message up, nothing behind it goes on: what is under way is waited for, and then all is sent again
from the first message on that is not there.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog
from confluent_kafka import KafkaError

from bmq.fairness.turns import Turns
from bmq_databus.errors import QueueFull
from bmq_databus.producing.outcomes import FOR_GOOD
from bmq_databus.producing.producer import Reports
from bmq_databus.producing.under_way import UnderWay
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import SENT, Spooled
from bmq_databus.spool.reading import Read
from bmq_databus.spool.sizes import bytes_of

ROOM_S = 0.05
AGAIN_FIRST_S = 0.5
AGAIN_MAX_S = 30.0
SLICE_MESSAGES = 100
"""So many are handed over in one turn of the loop."""
UNDER_WAY_MAX = 20_000
"""Messages of one spool that are with the producer."""
EXPIRE_EVERY_S = 10.0

log = structlog.get_logger()


class Sends(Protocol):
    """A producer."""

    def produce(self, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        """Those from `first` to before `end`, as many as there is room for; the place of the first that there is none
        for. Raises QueueFull where that is `first`.
        """


class Draining:
    """One spool's. `run` ends only by being cancelled, or by a bug."""

    def __init__(self, spool: ChannelSpool, producing: Sends, *, under_way: UnderWay, turns: Turns) -> None:
        """`under_way`: what is at the producers, of all spools; of this one it has its share, or one message. `turns`
        are those of all that has many messages.
        """
        self._spool = spool
        self._producing = self._next_producing = producing
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._given_up = ""
        """Why a message was that is to be sent again; empty: none was."""
        self._again_s = AGAIN_FIRST_S
        self._changed = asyncio.Event()
        self._share = under_way.share(self._changed.set)
        self._sent: list[int] = []
        """Numbers that are to be settled in this turn of the loop."""

    def send_by(self, producing: Sends) -> None:
        """By this producer, as soon as the other one has nothing under way: messages keep their order."""
        self._next_producing = producing
        self._changed.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is at the producer, nor about to be settled."""
        return not self._under_way and not self._sent

    async def run(self) -> None:
        """Sends what there is and what comes."""
        expiring = self._loop.create_task(self._expire(), name="expire spooled messages")
        try:
            while True:
                await self._hand_over(await self._spool.read())
                if self._given_up:
                    await self._begin_again()
        finally:
            expiring.cancel()
            self.settle()

    async def _hand_over(self, reads: Sequence[Read]) -> None:
        """All of them, or those before the first that is given up: something has to be sent again before the rest."""
        messages = [one.message for one in reads]
        at = 0
        while at < len(reads) and not self._given_up:
            self._changed.clear()
            some = self._with_room(messages, first=at, end=min(at + SLICE_MESSAGES, len(reads)))
            if some:
                reports = self._reports(reads, some, first=at)
                try:
                    end = self._producing.produce(messages, reports, first=at, end=at + len(some))
                except QueueFull:  # by others, too: nobody says when there is room
                    await asyncio.sleep(ROOM_S)
                    continue
                self._under_way += end - at
                self._share.take(sum(some[: end - at]))
                at = end
                if at < len(reads):
                    await self._turns.turn()
            else:
                await self._changed.wait()

    def _with_room(self, messages: Sequence[Spooled], *, first: int, end: int) -> list[int]:
        """The sizes of those, from `first` on, that may be under way beside what is."""
        if not self._under_way:
            self._producing = self._next_producing
        elif self._producing is not self._next_producing:
            return []
        sizes_bytes: list[int] = []
        is_first = not self._under_way
        room_bytes = self._share.room_bytes
        for place in range(first, min(end, first + UNDER_WAY_MAX - self._under_way)):
            size_bytes = bytes_of(messages[place])
            room_bytes -= size_bytes
            if room_bytes < 0 and not is_first:
                if not sizes_bytes:
                    self._share.wait(size_bytes)
                break
            is_first = False
            sizes_bytes.append(size_bytes)
        return sizes_bytes

    def _reports(self, reads: Sequence[Read], sizes_bytes: Sequence[int], *, first: int) -> Reports:
        def reported(place: int, error: KafkaError | None, partition: int, offset: int) -> None:
            self._share.give_back(sizes_bytes[place - first])
            self._reported(reads[place], error)

        return reported

    def _reported(self, one: Read, error: KafkaError | None) -> None:
        self._under_way -= 1
        self._changed.set()
        if error is None:
            self._again_s = AGAIN_FIRST_S
            self._sent.append(one.number)
            if len(self._sent) == 1:
                self._loop.call_soon(self.settle)
        elif error.code() in FOR_GOOD:
            log.error("spooled message refused", topic=one.message.topic, number=one.number, why=error.str())
            self._spool.refuse(one.number, one.message, error.str())
        else:
            self._given_up = error.str()
            self._spool.interrupt()  # all may have been read, and nothing more come

    def settle(self) -> None:
        """Hands what was reported of late to the spool, together; also for who closes that after `run` has ended."""
        sent, self._sent = self._sent, []
        if sent:
            self._spool.settle(sent, SENT)

    async def _begin_again(self) -> None:
        """Once nothing is under way, from the first on that is not there."""
        while self._under_way:
            self._changed.clear()
            await self._changed.wait()
        log.warning("spooled messages are sent again", why=self._given_up, after_s=self._again_s)
        await asyncio.sleep(self._again_s)
        self.settle()
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)
        await self._spool.rewind()
        self._given_up = ""

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            await self._spool.expire()
