"""This process's broker as other nodes ask it: always the incarnation of the moment."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

from bmq.errors import NotReady
from bmq.roles.owner import Appended, Caller, EpochEnd, OffsetForTime, Owner, PartitionStatus, TailAnswer, TailRequest
from bmq.values import Offset, TopicPartition


class CurrentOwner:
    """Implements Owner. NotReady while there is no incarnation: nothing was applied."""

    def __init__(self, current: Callable[[], Owner | None]) -> None:
        self._current = current

    @property
    def _owner(self) -> Owner:
        owner = self._current()
        if owner is None:
            raise NotReady("this broker is starting")
        return owner

    def append(self, tp: TopicPartition, records: Buffer, *, produce_version: int) -> "asyncio.Future[Appended]":
        """See Owner."""
        return self._owner.append(tp, records, produce_version=produce_version)

    async def read_tail(self, requests: Sequence[TailRequest], *, min_bytes: int, max_bytes: int, max_wait_ms: int) -> list[TailAnswer]:
        """See Owner."""
        return await self._owner.read_tail(requests, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms)

    async def offset_for_time(
        self, tp: TopicPartition, timestamp_ms: int, *, current_leader_epoch: int = -1, committed: bool = False
    ) -> OffsetForTime:
        """See Owner."""
        return await self._owner.offset_for_time(tp, timestamp_ms, current_leader_epoch=current_leader_epoch, committed=committed)

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """See Owner."""
        return await self._owner.epoch_end(tp, leader_epoch, current_leader_epoch=current_leader_epoch)

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """See Owner."""
        return await self._owner.delete_records(tp, before)

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """See Owner."""
        return await self._owner.status(tps)

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """See Owner."""
        return await self._owner.group_call(partition, api_key, request, caller)
