"""What a partition does between the begin of a planned move and its closing: it is rolled while it still takes batches.

Its writes stand still while its heir reads what no segment holds, from the WAL objects of the whole broker. So the tail
is made short first: the segment has to be written anyway, and nobody waits for it. Only for a limited time: a move must
not wait for a store that is slow.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from bmq.errors import BmqError
from bmq.storage.durable import cancelled
from bmq.values import Offset, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState

log = structlog.get_logger()

ROLLS_MAX: Final = 3
"""Each takes what was appended during the one before."""
ROLLING_S: Final = 5.0
"""All of them together."""


class Leaving:
    """Rolls the partitions that one broker incarnation is to give away by plan, before they close."""

    def __init__(
        self,
        roll_to: Callable[[Partition, Offset, str], Awaitable[None]],
        *,
        roll_bytes: int,
        rolled: Callable[[TopicPartition], None],
    ) -> None:
        """Tails below `roll_bytes` are not rolled. `rolled` is called when a partition's tail is short, or the time is
        up.
        """
        self._roll_to = roll_to
        self._roll_bytes = roll_bytes
        self._rolled = rolled
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}

    def rolls_first(self, partition: Partition) -> bool:
        """Whether the partition is to stay a little, until `rolled` is called. False: it may leave at once."""
        tp = partition.tp
        if tp in self._tasks:
            return True
        if partition.tail.size_bytes < self._roll_bytes:
            return False
        task = asyncio.get_running_loop().create_task(self._roll(partition), name=f"roll {tp} before it leaves")
        self._tasks[tp] = task
        task.add_done_callback(partial(self._over, tp))
        return True

    async def close(self) -> None:
        """Ends what is under way; nothing leaves any more."""
        await cancelled(list(self._tasks.values()))

    async def _roll(self, partition: Partition) -> None:
        try:
            async with asyncio.timeout(ROLLING_S):
                for _ in range(ROLLS_MAX):
                    if partition.state is not PartitionState.APPENDING or partition.tail.size_bytes < self._roll_bytes:
                        break
                    await self._roll_to(partition, partition.high_watermark, "move")
        except (BmqError, OSError, TimeoutError) as error:
            log.info(
                "a partition is not rolled before it moves, its heir reads the WAL",
                partition=str(partition.tp),
                error=repr(error),
            )
        self._rolled(partition.tp)

    def _over(self, tp: TopicPartition, task: "asyncio.Task[None]") -> None:
        del self._tasks[tp]
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a bug: the loop's handler says so
