"""From a spool to a cluster, in the order in which messages were accepted.

What the cluster refuses for good goes into a file of its own, from where it can be exported or sent again; everything
else is tried until it is there: librdkafka gives up nothing here.
"""

import asyncio
from functools import partial

import structlog
from confluent_kafka import KafkaError

from bmq_databus.errors import QueueFull
from bmq_databus.producing.outcomes import FOR_GOOD
from bmq_databus.producing.producer import Producing
from bmq_databus.spool.channel_spool import ChannelSpool, Read
from bmq_databus.spool.frames import SENT

ROOM_S = 0.05
AGAIN_S = 1.0
EXPIRE_EVERY_S = 10.0

log = structlog.get_logger()


class Draining:
    """One spool's. `run` ends only by being cancelled."""

    def __init__(self, spool: ChannelSpool, producing: Producing) -> None:
        self._spool = spool
        self._producing = producing
        self._loop = asyncio.get_running_loop()
        self.under_way = 0

    async def run(self) -> None:
        """Sends what there is and what comes."""
        expiring = self._loop.create_task(self._expire(), name="expire spooled messages")
        try:
            while True:
                for one in await self._spool.read():
                    await self._send(one)
        finally:
            expiring.cancel()

    async def _send(self, one: Read) -> None:
        while True:
            try:
                self._producing.produce(one.message, partial(self._reported, one))
            except QueueFull:
                await asyncio.sleep(ROOM_S)
            else:
                self.under_way += 1
                return

    def _reported(self, one: Read, error: KafkaError | None, partition: int, offset: int) -> None:
        self.under_way -= 1
        if error is None:
            self._spool.settle([one.number], SENT)
        elif error.code() in FOR_GOOD:
            log.error("spooled message refused", topic=one.message.topic, number=one.number, why=error.str())
            self._spool.refuse(one.number, one.message, error.str())
        else:
            self._loop.call_later(AGAIN_S, self._again, one)

    def _again(self, one: Read) -> None:
        try:
            self._producing.produce(one.message, partial(self._reported, one))
            self.under_way += 1
        except QueueFull:
            self._loop.call_later(AGAIN_S, self._again, one)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            await self._spool.expire()
