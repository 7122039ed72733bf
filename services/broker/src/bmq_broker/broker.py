"""The broker as proxies see it (bmq.roles.owner.Owner): every request to a partition or a coordinator that this node
owns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from typing_extensions import Buffer

from bmq.clocks.clock_guard import ClockGuard
from bmq.clocks.in_time import in_time
from bmq.config.topic_config import LANE_HEADER, TopicConfig
from bmq.errors import (
    BmqError,
    InvalidBatch,
    InvalidProducerEpoch,
    NotOwner,
    NotReady,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RequestError,
)
from bmq.fairness.turns import NOBODY, Party, Turns
from bmq.fairness.waiters import Waiters
from bmq.metadata.image import Image
from bmq.roles.owner import (
    ASKED,
    HANDED_OVER,
    NEXT,
    OF_LANE,
    Appended,
    AppendedAlike,
    Caller,
    EpochEnd,
    HandedOver,
    OffsetForTime,
    PartitionStatus,
    Position,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
    Tails,
    Unread,
)
from bmq.roles.unheard import REFUSALS
from bmq.roles.waited_tails import lacking
from bmq.values import LANE_TURN_IDS, LeaderEpoch, Offset, TopicPartition
from bmq.wire.batch_headers import LOG_APPEND_TIME_BIT
from bmq.wire.batches import BatchHeader, check_crc, only_header, patched
from bmq_broker.handed_over import check_handed_over, is_closing
from bmq_broker.hosted import Coordinators
from bmq_broker.lag import unread
from bmq_broker.ownership.opening_turns import reading
from bmq_broker.ownership.ownership import Ownership
from bmq_broker.partitions.beginnings import Beginnings
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.validation import Limits, Taken, validate
from bmq_broker.segments.lookups import Lookups
from bmq_broker.segments.retention import Retention
from bmq_broker.segments.rolling import Roller
from bmq_broker.wal.commit import GroupCommit
from bmq_broker.watched_tails import WatchedTails

READ_PATIENCE_S: Final = 0.1
"""So long a reader waits for partitions that are being opened, though others have something for it."""
STATUS_PATIENCE_S: Final = 1.0
"""And so long who asks for figures, which are nobody's hurry: what is not open then has none."""
LOOKED_AT_ONCE: Final = 500
"""Partitions of one request that are looked at in one turn of the loop."""
FEW_PARTITIONS: Final = 10
"""Who waited for more looks at them in a turn of its own: hundreds may wait for the same record."""
UNREAD_AT_ONCE: Final = 250
FENCE_PATIENCE_S: Final = 10.0
"""So long a reader waits for the store to say that what it asks for is out of range; no client waits for much
longer."""

_NO_LIMIT: Final = 1 << 63

Openings = dict[TopicPartition, "asyncio.Task[Partition]"]


class Broker:
    """Implements OwnerHere."""

    def __init__(
        self,
        *,
        ownership: Ownership,
        commit: GroupCommit,
        roller: Roller,
        lookups: Lookups,
        retention: Retention,
        coordinators: Coordinators,
        verify_not_sealed: Callable[[], Awaitable[None]],
        image: Callable[[], Image],
        waiters: Waiters,
        clock: ClockGuard,
    ) -> None:
        self._ownership = ownership
        self._commit = commit
        self._roller = roller
        self._lookups = lookups
        self._retention = retention
        self._coordinators = coordinators
        self._verify_not_sealed = verify_not_sealed
        self._image = image
        self._waiters = waiters
        self._turns = Turns()
        self._beginnings = Beginnings()
        self._clock = clock
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._refusals: set[asyncio.Task[None]] = set()

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        """Appends one record batch at once where its partition is open, else once it is. The future resolves when what
        the answer rests on is durable, and has the BmqError where the batch is not taken.
        """
        future: asyncio.Future[Appended] = self._loop.create_future()
        try:
            partition = self._ownership.appending(tp)
            if partition is not None:
                self._append(partition, records, produce_version, future)
                return future

            def then(outcome: Partition | BmqError) -> BmqError | None:
                if future.done():
                    return None
                if isinstance(outcome, BmqError):
                    future.set_exception(outcome)
                    return None
                try:
                    self._append(outcome, records, produce_version, future)
                except Exception as error:  # noqa: BLE001 - the others that wait for the partition are still served
                    future.set_exception(error)
                    return error if isinstance(error, REFUSALS) else None
                return None

            self._ownership.when_open(tp, memoryview(records).nbytes, then, party=party)
        except BmqError as error:
            future.set_exception(error)
        return future

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        """Appends those from the first on that nothing is against and of which nothing is known yet, at once; None
        where that is none. What is against the next one `append` finds, and tells.
        """
        base_offsets: list[int] = []
        now_ms, append_time_ms = self._clock.now_ms(), -1
        try:
            partition = self._ownership.appending(tp)
            if partition is None:
                return None
            if partition.config.log_append_time:
                append_time_ms = now_ms
            for records, header, is_whole in batches:
                if header is None or header.producer_id >= LANE_TURN_IDS:
                    break
                if base_offsets and not self._commit.goes_on(partition):
                    break  # the others may become durable, or not, without these
                if not is_whole:
                    check_crc(records, header)
                validate(header, partition.config, now_ms=now_ms, produce_version=produce_version)
                if header.producer_id >= 0 and not self._is_next(partition, header):
                    break
                self._commit.check_room()
                base_offsets.append(self._place(partition, records, header, now_ms, append_time_ms))
        except BmqError:
            pass
        except Exception:
            if not base_offsets:  # a bug, which the next one meets again: what was taken is answered
                raise
        if not base_offsets:
            return None
        assert partition is not None
        future: asyncio.Future[AppendedAlike] = self._loop.create_future()
        answer = AppendedAlike(base_offsets, append_time_ms, partition.log_start)
        self._commit.when_durable(partition, future, answer)
        return len(base_offsets), future

    @staticmethod
    def _is_next(partition: Partition, header: BatchHeader) -> bool:
        """Whether a producer's batch is one that was not there yet, and nothing has to be asked about it."""
        live = partition.live
        return (header.base_sequence <= 0 or header.producer_id in live) and live.check(header) is None

    def _place(
        self, partition: Partition, records: Buffer, header: BatchHeader, now_ms: int, append_time_ms: int
    ) -> Offset:
        """Puts a batch behind all that the partition has; `append_time_ms` is -1 where its time is its producer's."""
        batch = patched(
            records,
            header,
            base_offset=partition.next_offset,
            leader_epoch=partition.leader_epoch,
            log_append_time_ms=None if append_time_ms < 0 else append_time_ms,
        )
        if append_time_ms >= 0:
            header = header._replace(
                max_timestamp_ms=append_time_ms, attributes=header.attributes | LOG_APPEND_TIME_BIT
            )
        return self._commit.append(partition, batch, header, now_ms=now_ms)

    def _append(
        self, partition: Partition, records: Buffer, produce_version: int, future: "asyncio.Future[Appended]"
    ) -> None:
        header = only_header(records)
        if header is None:
            found = "several" if memoryview(records).nbytes else "none"
            raise InvalidBatch(f"a produce request holds exactly one record batch per partition, not {found}")
        check_crc(records, header)
        now_ms = self._clock.now_ms()
        is_handed_over, is_part = produce_version == HANDED_OVER, produce_version >= HANDED_OVER
        if is_handed_over or header.producer_id >= LANE_TURN_IDS:
            check_handed_over(self._image(), partition.tp, header, is_handed_over=is_handed_over)
        if produce_version > ASKED:
            raise InvalidBatch(f"what Produce version {produce_version} asks for is of a later bmq: upgrade this node")
        limits: Taken = partition.config
        if is_part:
            limits = _of_part(partition.config, was_taken=produce_version != ASKED)
        validate(header, limits, now_ms=now_ms, produce_version=produce_version, may_have_gaps=is_part)
        append_time_ms = now_ms if limits.log_append_time else -1
        try:
            is_sparse = produce_version == OF_LANE
            earlier = partition.live.check(header, is_sparse=is_sparse) if header.producer_id >= 0 else None
        except (OutOfOrderSequence, InvalidProducerEpoch) as refused:
            self._wait_for_what_precedes(partition, header)
            self._refuse(partition, refused, future)
            return
        if header.base_sequence > 0 and not is_sparse and header.producer_id not in partition.live:
            self._wait_for_what_precedes(partition, header)
        if earlier is not None:
            then_ms = partition.live.append_time_ms(header.producer_id, earlier)
            answer = Appended(base_offset=Offset(earlier), log_append_time_ms=then_ms, log_start=partition.log_start)
            self._commit.when_durable(partition, future, answer)
            return
        self._commit.check_room()
        if produce_version == ASKED:
            self._commit.check_takes(partition)
            if header.producer_id >= 0 and header.producer_id not in partition.live:
                self._beginnings.asked(partition.tp, header, now_s=self._loop.time())
            future.set_result(Appended(base_offset=NEXT, log_append_time_ms=-1, log_start=partition.log_start))
            return
        base_offset = self._place(partition, records, header, now_ms, append_time_ms)
        answer = Appended(base_offset=base_offset, log_append_time_ms=append_time_ms, log_start=partition.log_start)
        self._commit.when_durable(partition, future, answer)

    def _wait_for_what_precedes(self, partition: Partition, header: BatchHeader) -> None:
        """Raises NotYetNext."""
        tp, live = partition.tp, partition.live
        topic = self._image().topics.get(tp.topic_id)
        if topic is not None and topic.configs.get(LANE_HEADER) and live.lacks_before(header):
            self._beginnings.check(tp, header, is_known=header.producer_id in live, now_s=self._loop.time())

    def _refuse(self, partition: Partition, refused: RequestError, future: "asyncio.Future[Appended]") -> None:
        """What a producer sent before decides, so it has to be durable, and this broker still the owner: an heir
        may know more.
        """

        async def refuse() -> None:
            durable: asyncio.Future[None] = self._loop.create_future()
            self._commit.when_durable(partition, durable, None)
            error: BmqError = refused
            try:
                await durable
                await self._verify_not_sealed()
                _check_still_here(partition)
            except BmqError as ended:
                error = NotOwner(f"{ended}; the batch was not taken")
            if not future.done():
                future.set_exception(error)

        task = asyncio.get_running_loop().create_task(refuse(), name=f"refuse a batch of {partition.tp}")
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)

    async def close(self) -> None:
        """Waits for what is being refused; call it when the writer has ended, which ends that."""
        await asyncio.gather(*self._refusals)

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
        """One answer per request, in order, from memory. Waits until `min_bytes` are there, an answer needs no waiting,
        or the time is up; a partition that is being opened is waited for like records. A `room` is not needed here.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + max_wait_ms / 1000
        opening = await self._open_all([request.tp for request in requests], patience_s=READ_PATIENCE_S, party=party)
        while True:
            with self._waiters.watched(
                [request.tp for request in requests] if len(requests) > LOOKED_AT_ONCE else ()
            ) as news:
                self._ownership.check_alive()
                if len(requests) > LOOKED_AT_ONCE:
                    answers, size_bytes, settled = await self._collect_in_turns(
                        requests, opening, max_bytes=max_bytes, party=party
                    )
                else:
                    answers, size_bytes, settled = self._collect(requests, opening, max_bytes=max_bytes)
                if any(isinstance(answer.error, OffsetOutOfRange) for answer in answers):
                    answers = await self._made_sure(answers)
                left_s = deadline_s - loop.time()
                if settled or size_bytes >= min_bytes or left_s <= 0:
                    return answers
                more = lacking(requests, answers, min_bytes=min_bytes)
                if len(requests) > LOOKED_AT_ONCE:
                    await self._waiters.until(news, left_s, more)
                else:
                    await self._waiters.wait([request.tp for request in requests], left_s, more)
            if len(requests) > FEW_PARTITIONS:
                await self._turns.turn(party=party[0], sender=party[1])

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether this broker has opened it."""
        return tp in self._ownership.partitions

    def tails(self, changed: Callable[[TopicPartition], None]) -> Tails:
        """This broker's tails for one who follows them; `changed` is told of the partitions that change."""
        return WatchedTails(self._waiters, self._read_at_once, changed)

    def _read_at_once(self, request: TailRequest) -> TailAnswer:
        self._ownership.check_alive()
        return self._answer(request, {}, max_bytes=request.max_bytes, first=True)

    async def _made_sure(self, answers: list[TailAnswer]) -> list[TailAnswer]:
        """With those out of range only where this broker still is the owner: an heir may have what it has not.
        Raises Fenced, NotReady.
        """
        why = f"if this broker still is the owner, which the store did not say within {FENCE_PATIENCE_S:g} s"
        try:
            await in_time(self._loop.time() + FENCE_PATIENCE_S, self._verify_not_sealed, TimeoutError)
        except TimeoutError:
            return [
                TailAnswer(tp=one.tp, error=NotReady(f"{one.error}, {why}"))
                if isinstance(one.error, OffsetOutOfRange)
                else one
                for one in answers
            ]
        return answers

    async def _open_all(self, tps: Sequence[TopicPartition], *, patience_s: float, party: Party = NOBODY) -> Openings:
        """Opens what is not open yet, and waits for it a little: one that takes long holds up no other. Returns the
        openings, over or not.
        """
        opening: Openings = {}
        looked_at = 0
        for tp in tps:
            if tp not in self._ownership.partitions:
                with suppress(BmqError):  # whoever looks at the partition finds the same
                    task = self._ownership.begin_to_open(tp, party=party)
                    if task is not None:
                        opening[tp] = task
                looked_at += 1
                if looked_at % LOOKED_AT_ONCE == 0:  # what was begun takes its first step in the loop's next turn
                    await self._turns.turn()
        if unfinished := [task for task in opening.values() if not task.done()]:
            await asyncio.wait(unfinished, timeout=patience_s)
        return opening

    async def _collect_in_turns(
        self, requests: Sequence[TailRequest], opening: Openings, *, max_bytes: int, party: Party
    ) -> tuple[list[TailAnswer], int, bool]:
        """The same, with turns of the loop between: each commit has those looked at again who wait for many
        partitions.
        """
        answers: list[TailAnswer] = []
        size_bytes = 0
        settled = False
        for first in range(0, len(requests), LOOKED_AT_ONCE):
            await self._turns.turn(party=party[0], sender=party[1])
            some = requests[first : first + LOOKED_AT_ONCE]
            more, more_bytes, more_settled = self._collect(
                some, opening, max_bytes=max_bytes - size_bytes, first=not size_bytes
            )
            answers += more
            size_bytes += more_bytes
            settled = settled or more_settled
        return answers, size_bytes, settled

    def _collect(
        self, requests: Sequence[TailRequest], opening: Openings, *, max_bytes: int, first: bool = True
    ) -> tuple[list[TailAnswer], int, bool]:
        """(answers, bytes in them, whether there is nothing to wait for). A partition that is being opened may bring
        something yet.
        """
        answers = []
        size_bytes = 0
        settled = False
        for request in requests:
            answer = self._answer(request, opening, max_bytes=max_bytes - size_bytes, first=first and size_bytes == 0)
            size_bytes += answer.size_bytes
            if answer.error is not None:
                settled = settled or not _is_under_way(opening.get(request.tp))
            else:
                settled = settled or request.offset < answer.tail_start
            answers.append(answer)
        return answers, size_bytes, settled

    def _answer(self, request: TailRequest, opening: Openings, *, max_bytes: int, first: bool) -> TailAnswer:
        try:
            partition = self._ownership.appending(request.tp)
            if partition is None:
                return TailAnswer(tp=request.tp, error=self._not_open(request.tp, opening.get(request.tp)))
            partition.check_leader_epoch(request.current_leader_epoch)
        except BmqError as refused:
            # which has the frames of whoever has the answer
            return TailAnswer(tp=request.tp, error=refused.with_traceback(None))
        error: BmqError | None = None
        batches: tuple[Buffer, ...] = ()
        size_bytes = 0
        if not partition.log_start <= request.offset <= partition.high_watermark:
            error = OffsetOutOfRange(
                f"offset {request.offset} of {request.tp} is not within {partition.log_start} to "
                f"{partition.high_watermark}"
            )
        elif partition.tail_start <= request.offset < partition.high_watermark and (first or max_bytes > 0):
            batches, size_bytes = partition.tail.read(
                request.offset, max_bytes=min(request.max_bytes, max_bytes), at_least_one=first
            )
        return TailAnswer(
            tp=request.tp,
            error=error,
            leader_epoch=partition.leader_epoch,
            manifest_version=partition.manifest_version,
            log_start=partition.log_start,
            tail_start=partition.tail_start,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.high_watermark,
            batches=batches,
            size_bytes=size_bytes,
        )

    def _not_open(self, tp: TopicPartition, opening: "asyncio.Task[Partition] | None") -> BmqError:
        if opening is None or not opening.done():
            return NotReady(f"partition {tp} is being opened")
        return self._ownership.why_not_open(tp, opening)

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        """Opens the partition and looks the timestamp up; answers once this broker is sure to be its owner still."""
        partition = await self._ownership.open(tp, party=reading((address, "")))
        partition.check_leader_epoch(current_leader_epoch)
        found = await self._lookups.offset_for_time(partition, timestamp_ms, committed=committed, address=address)
        await self._verify_not_sealed()
        _check_still_here(partition)
        return found

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        """The largest epoch at or below `leader_epoch`, and where it ends; answers once this broker is sure to be the
        owner still.
        """
        partition = await self._ownership.open(tp, party=reading(NOBODY))
        partition.check_leader_epoch(current_leader_epoch)
        epoch, end_offset = partition.epoch_end(leader_epoch)
        await self._verify_not_sealed()
        _check_still_here(partition)
        return EpochEnd(leader_epoch=LeaderEpoch(epoch), end_offset=Offset(end_offset))

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        """Rolls up to `before` (-1: the high watermark), raises the log start to it, and returns the log start,
        durable. Raises OffsetOutOfRange above the high watermark.
        """
        partition = await self._ownership.open(tp, party=reading(NOBODY))
        before = partition.high_watermark if before == -1 else before
        if not 0 <= before <= partition.high_watermark:
            await self._verify_not_sealed()
            raise OffsetOutOfRange(f"offset {before} of {tp} is above the high watermark {partition.high_watermark}")
        await self._roller.roll_to(partition, min(before, partition.high_watermark), "delete-records")
        await self._retention.raise_log_start(partition, before)
        await self._verify_not_sealed()
        _check_still_here(partition)  # its heir may have begun with the manifest before this one
        return partition.log_start

    async def handed_over(self, tp: TopicPartition, producer_id: int) -> HandedOver:
        """How far a lane's turn got here, as far as this owner has heard of it."""
        partition = await self._ownership.open(tp, party=reading(NOBODY))
        is_final = is_closing(self._image(), tp, producer_id)
        count = partition.live.next_sequence(producer_id)
        durable: asyncio.Future[None] = self._loop.create_future()
        self._commit.when_durable(partition, durable, None)
        await durable
        await self._verify_not_sealed()
        _check_still_here(partition)
        return HandedOver(count=count, is_final=is_final)

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        """Figures of those partitions that are open here, or can be within a moment; others are left out."""
        await self._open_all(tps, patience_s=STATUS_PATIENCE_S)
        found = []
        for tp in tps:
            partition = self._ownership.partitions.get(tp)
            if partition is not None:
                found.append(_status(partition))
        return found

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        """What lies behind each position, in order, from memory alone; None for partitions that are not open here, nor
        can be within a moment.
        """
        await self._open_all([one.tp for one in positions], patience_s=STATUS_PATIENCE_S)
        self._ownership.check_alive()
        now_ms = self._clock.now_ms()
        found: list[Unread | None] = []
        for number, one in enumerate(positions):
            if number % UNREAD_AT_ONCE == UNREAD_AT_ONCE - 1:
                await asyncio.sleep(0)  # others' turn: there may be tens of thousands
            partition = self._ownership.partitions.get(one.tp)
            found.append(None if partition is None else unread(partition, one.offset, now_ms=now_ms))
        return found

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """The answer of the coordinator that lives in this partition of `__consumer_offsets`."""
        return await self._coordinators.group_call(partition, api_key, request, caller)


def _is_under_way(opening: "asyncio.Task[Partition] | None") -> bool:
    return opening is not None and not opening.done()


def _check_still_here(partition: Partition) -> None:
    """What a partition that has left says may be old. Raises NotOwner."""
    if partition.state is not PartitionState.APPENDING:
        raise NotOwner(f"partition {partition.tp} left this broker meanwhile")


def _of_part(config: TopicConfig, *, was_taken: bool) -> Limits:
    """The size of the whole was judged before. `was_taken`: and by another topic's limits all else."""
    return Limits(
        max_message_bytes=_NO_LIMIT,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=_NO_LIMIT if was_taken else config.timestamp_before_max_ms,
        timestamp_after_max_ms=_NO_LIMIT if was_taken else config.timestamp_after_max_ms,
    )


def _status(partition: Partition) -> PartitionStatus:
    return PartitionStatus(
        tp=partition.tp,
        log_start=partition.log_start,
        high_watermark=partition.high_watermark,
        tail_bytes=partition.tail.size_bytes,
        segment_bytes=partition.manifest.size_bytes,
        segment_count=partition.manifest.segment_count,
    )
