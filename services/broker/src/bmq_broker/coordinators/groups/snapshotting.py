"""When a shard's snapshot is taken, and how it becomes one of durable records alone.

The state is copied at the log's end, in one step; the copy is stored only once everything below that end is durable. So
a snapshot never holds the effect of a record that a fence may have cut off.
"""

import asyncio
import logging
from collections.abc import Callable

from bmq.errors import BmqError, Fenced
from bmq.roles.log import CoordinatorLog
from bmq.values import Offset
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.snapshot import encode_state

_log = logging.getLogger(__name__)


class Snapshotting:
    """One snapshot at a time; one that fails for now is tried again after another interval of records."""

    def __init__(self, log: CoordinatorLog, settings: GroupSettings, fail: Callable[[BaseException], None]) -> None:
        self._log = log
        self._settings = settings
        self._fail = fail
        self._records = 0
        self._size_bytes = 0
        self._is_enabled = True
        self._task: asyncio.Task[None] | None = None

    def disable(self) -> None:
        """A snapshot would not hold everything that the log does, or more than it does. One that is being written may
        still be stored.
        """
        self._is_enabled = False

    def count(self, records: int, size_bytes: int) -> None:
        """The log has grown by this much since."""
        self._records += records
        self._size_bytes += size_bytes

    def take_if_due(self, state: DurableState) -> None:
        """Starts one where the log has grown enough. `state` must be that of the log's end."""
        due = (
            self._records >= self._settings.snapshot_record_interval
            or self._size_bytes >= self._settings.snapshot_byte_interval
        )
        if not due or not self._is_enabled or (self._task is not None and not self._task.done()):
            return
        self._records = self._size_bytes = 0
        durable = self._log.barrier()
        durable.add_done_callback(_heard)  # it may fail after this has ended, before it waited
        self._task = asyncio.get_running_loop().create_task(self._take(state.copy(), self._log.end_offset(), durable))

    async def close(self) -> None:
        """Gives up one that is under way."""
        self._is_enabled = False
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _take(self, state: DurableState, offset: Offset, durable: "asyncio.Future[None]") -> None:
        try:
            await asyncio.shield(durable)
            if not self._is_enabled:  # the shard has ended: the log refused something that the state has
                return
            data = await asyncio.get_running_loop().run_in_executor(None, encode_state, state)
            await self._log.save_snapshot(offset, data)
        except Fenced as error:
            self._fail(error)
        except BmqError as error:
            _log.warning(
                "the snapshot of __consumer_offsets at offset %d could not be stored, the next one will be: %s",
                offset,
                error,
            )


def _heard(durable: "asyncio.Future[None]") -> None:
    if not durable.cancelled():
        durable.exception()
