"""What other nodes are told of a partition that this broker has not heard of, and while it is not there at all."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from bmq.errors import NotReady, OffsetOutOfRange, UnknownTopic
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import (
    Appended,
    AppendedAlike,
    Caller,
    EpochEnd,
    OffsetForTime,
    PartitionStatus,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
)
from bmq.values import LeaderEpoch, Offset, TopicId, TopicPartition
from bmq_node.current_owner import CurrentOwner

KNOWN, UNKNOWN = (TopicPartition(TopicId(UUID(int=number)), 0) for number in (1, 2))
CALLER = Caller(client_id="c", client_host="/h")


class Broker:
    """Has heard of one partition."""

    def _check(self, tp: TopicPartition) -> None:
        if tp != KNOWN:
            raise UnknownTopic(f"partition {tp} does not exist")

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        try:
            self._check(tp)
            future.set_result(Appended(base_offset=Offset(7), log_append_time_ms=-1, log_start=Offset(0)))
        except UnknownTopic as error:
            future.set_exception(error)
        return future

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        if tp != KNOWN:
            return None
        future: asyncio.Future[AppendedAlike] = asyncio.get_running_loop().create_future()
        future.set_result(AppendedAlike([7] * len(batches), -1, Offset(0)))
        return len(batches), future

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
        return [
            TailAnswer(tp=one.tp, error=OffsetOutOfRange("above") if one.tp == KNOWN else UnknownTopic("none"))
            for one in requests
        ]

    async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int, **_: Any) -> OffsetForTime:
        self._check(tp)
        raise AssertionError

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, **_: Any) -> EpochEnd:
        self._check(tp)
        raise AssertionError

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        self._check(tp)
        raise AssertionError

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        return []

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        self._check(UNKNOWN)


def test_a_partition_that_the_broker_has_not_heard_of_may_be_asked_for_again() -> None:
    async def main() -> None:
        owner = CurrentOwner(Broker)
        for refused in (
            owner.append(UNKNOWN, b"", produce_version=9),
            owner.offset_for_time(UNKNOWN, -1),
            owner.epoch_end(UNKNOWN, 0),
            owner.delete_records(UNKNOWN, Offset(0)),
            owner.group_call(0, 11, None, CALLER),
        ):
            with pytest.raises(NotReady, match="as far as its broker has heard"):
                await refused
        requests = [TailRequest(tp=tp, offset=Offset(0), max_bytes=1) for tp in (KNOWN, UNKNOWN)]
        answers = await owner.read_tail(requests, min_bytes=0, max_bytes=1, max_wait_ms=0)
        assert [type(answer.error) for answer in answers] == [OffsetOutOfRange, NotReady]

    asyncio.run(main())


def test_what_the_broker_knows_is_told_as_it_is() -> None:
    async def main() -> None:
        assert (await CurrentOwner(Broker).append(KNOWN, b"", produce_version=9)).base_offset == 7

    asyncio.run(main())


def test_what_comes_together_is_taken_by_the_incarnation_of_the_moment_or_not_at_once() -> None:
    async def main() -> None:
        batches = [Proved(b"", None)] * 3
        taken = CurrentOwner(Broker).append_alike(KNOWN, batches, produce_version=9)
        assert taken is not None
        assert (taken[0], (await taken[1]).base_offsets) == (3, [7, 7, 7])
        assert CurrentOwner(Broker).append_alike(UNKNOWN, batches, produce_version=9) is None
        assert CurrentOwner(lambda: None).append_alike(KNOWN, batches, produce_version=9) is None

    asyncio.run(main())


def test_without_an_incarnation_nothing_is_applied() -> None:
    async def main() -> None:
        with pytest.raises(NotReady, match="is starting"):
            CurrentOwner(lambda: None).append(KNOWN, b"", produce_version=9)

    asyncio.run(main())


def test_the_broker_is_told_where_a_client_is() -> None:
    class Told(Broker):
        async def offset_for_time(self, tp: TopicPartition, timestamp_ms: int, **how: Any) -> OffsetForTime:
            assert how == {"current_leader_epoch": 3, "committed": True, "address": "/10.0.0.7"}
            return OffsetForTime(offset=Offset(7), timestamp_ms=timestamp_ms, leader_epoch=LeaderEpoch(3))

    async def main() -> None:
        found = await CurrentOwner(Told).offset_for_time(
            KNOWN, 5, current_leader_epoch=3, committed=True, address="/10.0.0.7"
        )
        assert found.offset == 7

    asyncio.run(main())
