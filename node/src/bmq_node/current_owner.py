"""This process's broker as other nodes ask it: always the incarnation of the moment.

Who asks has seen the partition in its image. Where this node has not, it is behind, or the partition is deleted and the
other is: asked again, one of them knows better. So that is NotReady here, and clients do not hear of a topic that has
just been made that it does not exist.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from typing_extensions import Buffer

from bmq.errors import NotReady, UnknownTopic
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import (
    Appended,
    AppendedAlike,
    Caller,
    EpochEnd,
    HandedOver,
    OffsetForTime,
    OwnerHere,
    PartitionStatus,
    Position,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
    Tails,
    Unread,
)
from bmq.values import Offset, TopicPartition

T = TypeVar("T")


class CurrentOwner:
    """Implements OwnerHere. NotReady while there is no incarnation: nothing was applied."""

    def __init__(self, current: Callable[[], OwnerHere | None]) -> None:
        self._current = current

    @property
    def _owner(self) -> OwnerHere:
        owner = self._current()
        if owner is None:
            raise NotReady("this broker is starting")
        return owner

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Submits to the incarnation of the moment before it returns. Where that refuses at once with UnknownTopic, the
        future raises NotReady.
        """
        future = self._owner.append(tp, records, produce_version=produce_version, party=party)
        if future.done() and not future.cancelled() and isinstance(error := future.exception(), UnknownTopic):
            future = asyncio.get_running_loop().create_future()
            future.set_exception(_not_heard_of(error))
        return future

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        """Submits to the incarnation of the moment, where there is one."""
        owner = self._current()
        return None if owner is None else owner.append_alike(tp, batches, produce_version=produce_version)

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        """The answers of the incarnation of the moment, in order, with NotReady where it says UnknownTopic. `room` is
        not used.
        """
        answers = await self._owner.read_tail(
            requests, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
        )
        return [
            replace(one, error=_not_heard_of(one.error)) if isinstance(one.error, UnknownTopic) else one
            for one in answers
        ]

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether the incarnation of the moment has opened it."""
        owner = self._current()
        return owner is not None and owner.is_open(tp)

    def tails(self, changed: Callable[[TopicPartition], None]) -> Tails:
        """The tails of the incarnation of this moment: who follows hears when it ends. Raises NotReady."""
        return self._owner.tails(changed)

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        """Asks the incarnation of the moment for the offset; its UnknownTopic is raised as NotReady."""
        return await _asked(
            self._owner.offset_for_time(
                tp, timestamp_ms, current_leader_epoch=current_leader_epoch, committed=committed, address=address
            )
        )

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """Asks the incarnation of the moment where the epoch ends; its UnknownTopic is raised as NotReady."""
        return await _asked(self._owner.epoch_end(tp, leader_epoch, current_leader_epoch=current_leader_epoch))

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Has the incarnation of the moment raise the log start, and returns it; its UnknownTopic is raised as
        NotReady.
        """
        return await _asked(self._owner.delete_records(tp, before))

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> HandedOver:
        """Asks the incarnation of the moment how far a lane's turn got; its UnknownTopic is raised as NotReady."""
        return await _asked(self._owner.handed_over(tp, producer_id))

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """What the incarnation of the moment says of those that are open, or can be within a moment; others are left
        out.
        """
        return await self._owner.status(tps)

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        """One answer of the incarnation of the moment per position, in order; None for partitions that are not open
        there, nor can be within a moment.
        """
        return await self._owner.unread(positions)

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """Hands the request to the coordinator in this partition of `__consumer_offsets`, at the incarnation of the
        moment; its UnknownTopic is raised as NotReady.
        """
        return await _asked(self._owner.group_call(partition, api_key, request, caller))


async def _asked(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except UnknownTopic as error:
        raise _not_heard_of(error) from error


def _not_heard_of(error: UnknownTopic) -> NotReady:
    return NotReady(f"{error}, as far as its broker has heard")
