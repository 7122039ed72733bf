"""Who answers for a topic of a lane that nobody has written to yet: it is empty, and ends where it begins."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from typing_extensions import Buffer

from bmq.errors import BmqError, NotOwner
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import (
    Appended,
    Caller,
    EpochEnd,
    OffsetForTime,
    Owner,
    PartitionStatus,
    Position,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
    Unread,
)
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq_proxy.lanes.views import LaneView

_LATEST = -1
_EARLIEST = (-2, -4)
_LATEST_TIERED = -5
_NOWHERE = LeaderEpoch(-1)


class UnwrittenOwner:
    """`Owner` of all such partitions: it has none of what it would have to store."""

    def __init__(self, first_offset: Callable[[TopicPartition], int]) -> None:
        """`first_offset`: where the topic begins that the first write makes. Raises NotOwner where there is one by now,
        or will be none.
        """
        self._first_offset = first_offset

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        """Where the topic will begin, for its earliest and latest offset; -1 for a time, as there are no records.
        Raises NotOwner.
        """
        first, there = self._first_offset(tp), timestamp_ms in (_LATEST, *_EARLIEST, _LATEST_TIERED)
        return OffsetForTime(offset=Offset(first if there else -1), timestamp_ms=-1, leader_epoch=_NOWHERE)

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """Both -1: there is no leader epoch yet that could end. Raises NotOwner."""
        self._first_offset(tp)
        return EpochEnd(leader_epoch=_NOWHERE, end_offset=Offset(-1))

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """Empty partitions that end where their topic will begin. Raises NotOwner."""
        found = [(tp, Offset(self._first_offset(tp))) for tp in tps]
        return [
            PartitionStatus(tp=tp, log_start=at, high_watermark=at, tail_bytes=0, segment_bytes=0, segment_count=0)
            for tp, at in found
        ]

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        """No records behind any of the positions."""
        return [Unread(records=0, seconds=0.0) for _ in positions]

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
        """NotOwner for each of the requests; a lane's reader does not come here."""
        return [TailAnswer(tp=request.tp, error=_not_there(request.tp)) for request in requests]

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Raises NotOwner; what is written goes to the topic that the write makes."""
        raise _not_there(tp)

    def append_alike(self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int) -> None:
        """None, as `append` raises."""

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> NoReturn:
        """Raises NotOwner: nothing goes on to a topic of a lane."""
        raise _not_there(tp)

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Raises NotOwner: there is nothing yet that could be deleted."""
        raise _not_there(tp)

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> NoReturn:
        """Raises BmqError; no group lives in a lane's topic."""
        raise BmqError("groups do not live in topics of lanes")


def owner_in_lane(view: LaneView, real: Callable[[TopicPartition], Owner]) -> Callable[[TopicPartition], Owner]:
    """Who answers for a partition that a lane's clients see."""

    def first_offset(tp: TopicPartition) -> int:
        """A question may have waited for its turn meanwhile."""
        if view.is_written(tp.topic_id) or tp.topic_id not in view.image.topics:
            raise NotOwner(f"{tp}: it was written to or deleted since its owner was looked for; ask again")
        return view.first_offset(tp.topic_id)

    nobody = UnwrittenOwner(first_offset)

    def owner_for(tp: TopicPartition) -> Owner:
        return real(tp) if view.is_written(tp.topic_id) else nobody

    return owner_for


def _not_there(tp: TopicPartition) -> NotOwner:
    return NotOwner(f"{tp}: nobody in the lane has written to it yet")
