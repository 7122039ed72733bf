"""How a broker hands over all that it owns: it rolls larger tails while it still serves, stops, makes everything
durable, and seals its stream.

The clean stop. It costs no requests per partition but for the rolls: heirs read
the stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping

import structlog

from bmq.errors import BmqError, ControllerUnavailable
from bmq.ports import Rng
from bmq.storage.durable import Backoff, cancelled
from bmq.storage.stream import StreamWriter
from bmq.values import TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.rolling import Roller
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

REPORT_S = 5.0
"""How long the end of the stream is told to controllers that may be changing their leader, which takes 3 s at most.
Unheard, the lease runs out."""
SIGN_OFF_S = 3.0
"""How long a broker that did not start tries to say so."""
ROLLING_SHARE = 0.5
"""The share of the time for the stop that rolling may take: what is not rolled by then is read by heirs."""


class Handover:
    """Takes one broker incarnation through its stop: rolls larger tails, seals the stream, tells a controller."""

    def __init__(
        self,
        *,
        partitions: Mapping[TopicPartition, Partition],
        commit: GroupCommit,
        roller: Roller,
        writer: StreamWriter,
        settings: BrokerSettings,
        rng: Rng,
    ) -> None:
        self._partitions = partitions
        self._commit = commit
        self._roller = roller
        self._writer = writer
        self._settings = settings
        self._rng = rng

    async def roll_larger_tails(self) -> None:
        """Writes tails of `stop_roll_bytes` and more as segments, so that heirs have little to read. What cannot be
        rolled is left to them.
        """
        try:
            async with asyncio.timeout(self._settings.stop_timeout_ms / 1000 * ROLLING_SHARE):
                for partition in list(self._partitions.values()):
                    if partition.tail.size_bytes >= self._settings.stop_roll_bytes:
                        await self._roll(partition)
        except TimeoutError:
            log.info("larger tails are not all rolled, their heirs read the WAL")

    async def seal(self, stop_serving: Callable[[], None]) -> int:
        """Stops, makes durable what was appended, and seals the own stream. Returns its end. Raises BmqError.

        Rolls go on until everything is durable, because they make room for what is to be sent. Then they are given up:
        nobody serves the partitions until the stream is sealed, and what no manifest names heirs read from it.
        """
        stop_serving()
        await self._commit.when_all_durable()
        await self._roller.close()
        return await self._writer.seal_own()

    async def tell(self, report: Callable[[], Awaitable[None]]) -> None:
        """Awaits `report` until a controller has heard it. Raises TimeoutError, and what it raises but for
        ControllerUnavailable.
        """
        backoff, said = Backoff(self._rng), False
        async with asyncio.timeout(REPORT_S):
            while True:
                try:
                    return await report()
                except ControllerUnavailable as error:
                    if not said:
                        log.info("no controller hears that this broker stops, trying again", reason=str(error))
                    said = True
                await backoff.wait()

    async def _roll(self, partition: Partition) -> None:
        try:
            await self._roller.roll_to(partition, partition.high_watermark, "stop")
        except BmqError as error:
            log.info(
                "a partition was not rolled at the stop, its heir reads the WAL",
                partition=str(partition.tp),
                error=str(error),
            )
        except (
            Exception
        ):  # a bug: it must not keep the broker from sealing its stream, by which its partitions have heirs at once
            log.exception("a partition was not rolled at the stop, its heir reads the WAL", partition=str(partition.tp))


async def sign_off(hand_over: Callable[[], Coroutine[None, None, None]]) -> None:
    """Hands over for a broker that did not start, as far as that goes quickly: nobody waits long for what never
    served.
    """
    task = asyncio.get_running_loop().create_task(hand_over(), name="sign off")
    await asyncio.wait([task], timeout=SIGN_OFF_S)
    await cancelled([task])
    error = None if task.cancelled() else task.exception()
    if task.cancelled() or error is not None:
        log.info("a broker that did not start has not signed off, its lease runs out", error=repr(error))
