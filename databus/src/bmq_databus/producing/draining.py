"""From a spool to a cluster, in the order in which messages were accepted.

What the cluster refuses for good goes into a file of its own; everything else is tried until it is there. Where
librdkafka gives a message up, nothing behind it goes on: what is under way is waited for, and then all is sent again
from the first message on that is not there.
"""

import asyncio
from functools import partial
from typing import Protocol

import structlog
from confluent_kafka import KafkaError

from bmq.fairness.turns import Turns
from bmq_databus.errors import QueueFull
from bmq_databus.producing.outcomes import FOR_GOOD
from bmq_databus.producing.producer import Report
from bmq_databus.spool.channel_spool import ChannelSpool, bytes_of
from bmq_databus.spool.frames import SENT, Spooled
from bmq_databus.spool.reading import Read

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

    def produce(self, message: Spooled, report: Report) -> None:
        """Raises QueueFull."""


class Draining:
    """One spool's. `run` ends only by being cancelled, or by a bug."""

    def __init__(self, spool: ChannelSpool, producing: Sends, *, under_way_bytes_max: int, turns: Turns) -> None:
        """`under_way_bytes_max`: so much, or one message, is at the producer at a time, which is for all spools.
        `turns` are those of all that has many messages.
        """
        self.under_way_bytes_max = under_way_bytes_max
        self._spool = spool
        self._producing = self._next_producing = producing
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._under_way = self._under_way_bytes = 0
        self._given_up = ""
        """Why a message was that is to be sent again; empty: none was."""
        self._again_s = AGAIN_FIRST_S
        self._changed = asyncio.Event()

    def send_by(self, producing: Sends) -> None:
        """By this producer, as soon as the other one has nothing under way: messages keep their order."""
        self._next_producing = producing
        self._changed.set()

    async def run(self) -> None:
        """Sends what there is and what comes."""
        expiring = self._loop.create_task(self._expire(), name="expire spooled messages")
        try:
            while True:
                for at, one in enumerate(await self._spool.read()):
                    if at and at % SLICE_MESSAGES == 0:
                        await self._turns.turn()
                    if not await self._handed_over(one):
                        break
                if self._given_up:
                    await self._begin_again()
        finally:
            expiring.cancel()

    async def _handed_over(self, one: Read) -> bool:
        """False where something before it has to be sent again first."""
        while not self._given_up:
            size_bytes = bytes_of(one.message)
            fits = self._under_way_bytes + size_bytes <= self.under_way_bytes_max
            if not self._under_way:
                self._producing = self._next_producing
            stays = self._producing is self._next_producing
            if not self._under_way or (stays and self._under_way < UNDER_WAY_MAX and fits):
                try:
                    self._producing.produce(one.message, partial(self._reported, one, size_bytes))
                except QueueFull:
                    await asyncio.sleep(ROOM_S)
                    continue
                self._under_way += 1
                self._under_way_bytes += size_bytes
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def _reported(self, one: Read, size_bytes: int, error: KafkaError | None, partition: int, offset: int) -> None:
        self._under_way -= 1
        self._under_way_bytes -= size_bytes
        self._changed.set()
        if error is None:
            self._again_s = AGAIN_FIRST_S
            self._spool.settle([one.number], SENT)
        elif error.code() in FOR_GOOD:
            log.error("spooled message refused", topic=one.message.topic, number=one.number, why=error.str())
            self._spool.refuse(one.number, one.message, error.str())
        else:
            self._given_up = error.str()

    async def _begin_again(self) -> None:
        """Once nothing is under way, from the first on that is not there."""
        while self._under_way:
            self._changed.clear()
            await self._changed.wait()
        log.warning("spooled messages are sent again", why=self._given_up, after_s=self._again_s)
        await asyncio.sleep(self._again_s)
        self._again_s = min(2 * self._again_s, AGAIN_MAX_S)
        await self._spool.rewind()
        self._given_up = ""

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            await self._spool.expire()
