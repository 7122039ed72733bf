"""The shell's side of the log: records become batches of a bounded size, and it is known what is not durable yet."""

import asyncio
from collections.abc import Callable, Sequence

from bmq.errors import NotOwner
from bmq.roles.log import CoordinatorLog
from bmq_broker.coordinators.groups.machine import NewRecord
from bmq_broker.coordinators.groups.records import GroupKey
from bmq_broker.coordinators.groups.settings import GroupSettings


class Appending:
    """`fail` hears of the first append that did not succeed, `grown` how many records and bytes went to the log."""

    def __init__(
        self,
        log: CoordinatorLog,
        settings: GroupSettings,
        *,
        fail: Callable[[BaseException], None],
        grown: Callable[[int, int], None],
    ) -> None:
        self._log = log
        self._settings = settings
        self._fail = fail
        self._grown = grown
        self._stored: dict[str, asyncio.Future[None]] = {}
        self.undurable_bytes = 0

    def append(self, records: Sequence[NewRecord]) -> "asyncio.Future[None]":
        """The future of the last batch, which is durable after all before it."""
        assert records
        batch: list[tuple[bytes, bytes | None]] = []
        size_bytes = 0
        for record in records:
            raw = record.raw
            record_bytes = len(raw[0]) + len(raw[1] or b"")
            if batch and size_bytes + record_bytes > self._settings.append_size_bytes_max:
                self._append_batch(batch, size_bytes)
                batch, size_bytes = [], 0
            batch.append(raw)
            size_bytes += record_bytes
        done = self._append_batch(batch, size_bytes)
        for record in records:
            if isinstance(record.key, GroupKey):
                self._remember(record.key.group_id, done)
        return done

    def stored(self, group_id: str) -> "asyncio.Future[None] | None":
        """When the group's newest generation is durable; None where it is."""
        return self._stored.get(group_id)

    def _append_batch(self, batch: Sequence[tuple[bytes, bytes | None]], size_bytes: int) -> "asyncio.Future[None]":
        done = self._log.append(batch)
        self.undurable_bytes += size_bytes
        self._grown(len(batch), size_bytes)

        def finished(future: "asyncio.Future[None]") -> None:
            self.undurable_bytes -= size_bytes
            error = failure_of(future)
            if error is not None:
                self._fail(error)

        done.add_done_callback(finished)
        return done

    def _remember(self, group_id: str, done: "asyncio.Future[None]") -> None:
        self._stored[group_id] = done

        def forget(_: "asyncio.Future[None]") -> None:
            if self._stored.get(group_id) is done:
                del self._stored[group_id]

        done.add_done_callback(forget)


def failure_of(done: "asyncio.Future[None]") -> BaseException | None:
    """Why a future of the log did not succeed; None where it did."""
    return NotOwner("an append to __consumer_offsets was given up") if done.cancelled() else done.exception()
