"""Group commit: batches of all partitions gather in a buffer, become one WAL object, and complete in order.

Owns the order of effects: when an object and all before it are durable, the high watermarks rise,
then replies go out, then waiting fetches wake. Nothing is acknowledged earlier, whatever it says: a reply about state
that is not yet durable waits here too.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

from typing_extensions import Buffer

from bmq.errors import NotOwner, NotReady, UnknownOutcome
from bmq.ports import Tracer
from bmq.storage.durable import settle
from bmq.storage.stream import StreamWriter
from bmq.values import Offset
from bmq.wire.batches import BatchHeader
from bmq_broker.ended import Ended
from bmq_broker.metrics import APPENDED_BYTES, APPENDED_RECORDS, FLUSH_BYTES, FLUSH_SECONDS, WAL_BYTES
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import BATCH_MEMORY_BYTES, RUN_MEMORY_BYTES, Run, Slot, memory_bytes
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.pacing import Pacing
from bmq_broker.wal.wal_group import WalGroup

T = TypeVar("T")

TICK_S = 0.0005
"""A timer that fires by less than this too early is in time: event loops count in milliseconds."""
TAKEN_WITHIN_S = 10.0
"""The store takes what is written if it has taken something no longer ago."""
BUFFER_MAX_FLUSHES = 4
"""Where all creates are in flight, a buffer grows up to so many times the flush size before the next one begins."""

GATHERING_TURNS = 4
"""A buffer that is due is not sent as long as the loop's last turn put more into it, for so many turns."""


class GroupCommit:
    """The buffer in front of one WAL stream."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        ended: Ended,
        may_send: Callable[[], bool],
        woken: Callable[[Partition, Run], None],
        carried: Callable[[Sequence[Partition]], None],
        completed: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        """`woken` is called for each partition whose high watermark rose and for what it rose by, `carried` with those
        that were carried, `completed` once after them.
        """
        self._settings = settings
        self._group_bytes_max = BUFFER_MAX_FLUSHES * settings.flush_bytes
        self._may_send = may_send
        self._woken = woken
        self._carried = carried
        self._completed = completed
        self._tracer = tracer
        self._writer: StreamWriter | None = None
        self._open = WalGroup()
        self._full: deque[WalGroup] = deque()
        self._in_flight: dict[int, WalGroup] = {}
        self._slots: deque[Slot] = deque()
        """Objects that are needed until their runs are in segments, oldest first."""
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._pacing = Pacing(linger_s=settings.linger_ms / 1000, eager=settings.eager)
        self._timer: asyncio.Handle | None = None
        self._due_now = False
        """Whether the timer is for this turn of the loop's end."""
        self._gathered = self._gathering = 0
        """How many batches the buffer had when that was looked at last, and how many turns it may go on growing."""
        self._ended = ended
        self._durable_at_s = -inf
        self.wal_bytes = 0
        self.sent_bytes = 0
        """How many bytes of batches were sent for the first time, ever."""
        self.sent_objects = 0
        self.buffered_bytes = 0
        """What is not yet durable takes in memory."""

    def start(self, writer: StreamWriter) -> None:
        """From now on there is a stream to write to."""
        self._writer = writer

    def check_room(self) -> None:
        """Raises NotReady where the store is so slow that the buffer is full: nothing more is taken until it has
        written some.
        """
        if self.buffered_bytes >= self._settings.buffer_max_bytes:
            raise NotReady(f"{self.buffered_bytes} bytes wait for the object store")

    def check_takes(self, partition: Partition) -> None:
        """Raises NotOwner for a partition that has left, PartitionStopped for one that cannot be rolled, and what this
        broker ended with.
        """
        if self._ended.lost is not None:
            raise self._ended.lost.with_traceback(None)
        if partition.state is not PartitionState.APPENDING:
            raise NotOwner(f"partition {partition.tp} is not this broker's any more")
        if partition.stopped is not None:
            raise partition.stopped.with_traceback(None)

    def append(self, partition: Partition, batch: Buffer, header: BatchHeader, *, now_ms: int) -> Offset:
        """Puts the batch, patched with its offset, into the buffer and into the partition's state; returns its base
        offset.

        `header` is as it came, but for a max timestamp that was set.

        Raises, with nothing applied, what `check_takes` raises.
        """
        self.check_takes(partition)
        base_offset = partition.next_offset
        group = self._group_with_room()
        entry = group.runs.get(partition.tp)
        if entry is None:
            run = Run(
                slot=group.slot,
                leader_epoch=partition.leader_epoch,
                base_offset=base_offset,
                next_offset=base_offset,
                batches=[],
                size_bytes=0,
                max_timestamp_ms=header.max_timestamp_ms,
                since_ms=now_ms,
            )
            group.runs[partition.tp] = (partition, run)
            group.slot.runs += 1
            self.buffered_bytes += RUN_MEMORY_BYTES
        else:
            assert entry[0] is partition, "one that came back is opened when all that it appended before is durable"
            run = entry[1]
            # before anything is applied: what is not dense must never be in an object
            assert run.next_offset == base_offset, (
                f"{partition.tp}: offset {base_offset} follows a run that ends at {run.next_offset}"
            )
        run.batches.append(batch)
        run.size_bytes += header.size_bytes
        run.max_timestamp_ms = max(run.max_timestamp_ms, header.max_timestamp_ms)
        group.slot.size_bytes += header.size_bytes
        group.appended_bytes += header.size_bytes
        if not group.batches:
            group.since_s = self._loop.time()
        group.batches += 1
        group.records += header.record_count
        self.buffered_bytes += header.size_bytes + BATCH_MEMORY_BYTES
        partition.appended(run, batch, header, now_ms=now_ms)
        self._schedule()
        return base_offset

    def goes_on(self, partition: Partition) -> bool:
        """Whether what the partition appends next comes into the WAL object that has its last batch."""
        return partition.appended_slot is self._group_with_room().slot

    def carry(self, partition: Partition) -> int:
        """Puts the next part of what is carried of the tail into the buffer once more; returns how many bytes, 0 where
        nothing is left.

        Once that is durable the tail needs it there, and of the older objects no more. Offsets, epochs and bytes are
        the same: an heir that finds both copies takes one.
        """
        if self._ended.lost is not None:
            return 0
        group = self._group_with_room()
        copy = partition.carry(group.slot, max_bytes=self._settings.carry_chunk_bytes)
        if copy is None:
            return 0
        if group.is_empty:
            group.since_s = self._loop.time()
        group.carried.append((partition, copy))
        group.slot.runs += 1
        group.slot.size_bytes += copy.size_bytes
        self._schedule()
        return copy.size_bytes

    def when_durable(self, partition: Partition, future: "asyncio.Future[T]", result: T) -> None:
        """Resolves `future` with `result` once everything that the partition has appended so far is durable.

        Where that can no longer be known it gets the error: what this broker ended with, or UnknownOutcome for a
        partition that was taken away.
        """

        reply = partial(settle, future, result=result)
        slot = partition.appended_slot
        if slot is None or slot.durable:
            reply(None)
        elif self._ended.lost is not None:
            reply(self._ended.lost)
        else:
            self._group_of(slot).replies.append((partition, reply))

    def when_all_durable(self) -> "asyncio.Future[None]":
        """Resolves once everything appended so far, of any partition, is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        groups = [group for group in self._groups() if group.runs]
        if self._ended.lost is not None:
            future.set_exception(self._ended.lost)
        elif groups:
            groups[-1].replies.append((None, partial(settle, future)))
        else:
            future.set_result(None)
        return future

    def abandoned(self, partitions: Iterable[Partition]) -> None:
        """The partitions were taken away: whether their heirs read what is not durable yet is not known, and so whoever
        waits for it is told.

        Not for those that leave by plan: their ranges end above all that they were given.
        """
        gone = set(map(id, partitions))
        for group in self._groups():
            waiting, group.replies = group.replies, []
            for one in waiting:
                partition, reply = one
                if partition is not None and id(partition) in gone:
                    reply(_left(partition))
                else:
                    group.replies.append(one)

    def covered(self, runs: list[Run]) -> None:
        """Segments hold these runs now: their WAL objects may go."""
        self.unpin(run.slot for run in runs if run.slot is not None)
        self._try_send()

    def unpin(self, slots: Iterable[Slot]) -> None:
        """Each of these WAL objects is needed by one run less."""
        for slot in slots:
            assert slot.runs > 0, f"WAL object {slot.number} is needed no more, and once less"
            slot.runs -= 1
        self._advance_checkpoint()

    @property
    def wal_objects(self) -> int:
        """How many have to be kept, or are kept because of older ones."""
        return len(self._slots)

    def needed(self) -> list[Slot]:
        """The objects that have to be kept, or are kept because of older ones, oldest first."""
        return list(self._slots)

    @property
    def is_taken(self) -> bool:
        """Whether the store takes what this broker writes: it did a moment ago, or has taken all, and what comes waits
        for room in memory.
        """
        if self._loop.time() - self._durable_at_s < TAKEN_WITHIN_S:
            return True
        return self._writer is not None and not self._in_flight and not self._may_send()

    def poke(self) -> None:
        """Room may have appeared."""
        self._try_send()

    def end(self) -> None:
        """Nothing more is written from now on; whoever waits is told."""
        lost = self._ended.lost
        assert lost is not None
        if self._timer is not None:
            self._timer.cancel()
        groups = self._groups()
        self._in_flight.clear()
        self._full.clear()
        self._open = WalGroup()
        for group in groups:
            for _, reply in group.replies:
                reply(lost)

    def on_durable(self, number: int) -> None:
        """The stream's object `number` and all before it are durable: watermarks, replies, wakes, in that order."""
        if self._ended.lost is not None:
            return  # whoever waited was told that the outcome is unknown
        group = self._in_flight[number]
        assert group.slot.number == number, f"WAL object {group.slot.number} is in flight as {number}"
        group.slot.durable = True
        self._durable_at_s = self._loop.time()
        self.buffered_bytes -= memory_bytes(group.appended_bytes, batches=group.batches, runs=len(group.runs))
        assert self.buffered_bytes >= 0, f"{self.buffered_bytes} bytes wait for WAL objects after {number}"
        for partition, run in group.runs.values():
            partition.durable(run)
        if group.carried:
            self.unpin([slot for partition, copy in group.carried for slot in partition.carried(copy)])
        # Not before: where what comes first fails, by a bug, `end` tells those that wait for this object, too.
        del self._in_flight[number]
        for _, reply in group.replies:
            reply(None)
        for partition, run in group.runs.values():
            self._woken(partition, run)
        if group.carried:
            self._carried([partition for partition, _ in group.carried])
        self._completed()
        self._advance_checkpoint()
        self._pacing.answered(group.batches, self._loop.time())
        self._try_send()

    def observed(self, size_bytes: int, seconds: float) -> None:
        """One create's size and time, for the metrics."""
        FLUSH_BYTES.observe(size_bytes)
        FLUSH_SECONDS.observe(seconds)
        if self._tracer is not None:
            self._tracer.span("Flush", took_s=seconds, attributes={"bmq.wal_object_bytes": size_bytes})

    def _group_with_room(self) -> WalGroup:
        if self._open.slot.size_bytes >= self._group_bytes_max or self._open.run_count >= self._settings.flush_runs_max:
            self._full.append(self._open)
            self._open = WalGroup()
        return self._open

    def _groups(self) -> list[WalGroup]:
        """All that are not durable, oldest first."""
        return [*(self._in_flight[number] for number in sorted(self._in_flight)), *self._full, self._open]

    def _group_of(self, slot: Slot) -> WalGroup:
        if slot is self._open.slot:
            return self._open
        if slot.number >= 0:
            return self._in_flight[slot.number]
        return next(group for group in self._full if group.slot is slot)

    def _schedule(self) -> None:
        if self._open.slot.size_bytes >= self._settings.flush_bytes:
            self._try_send()
        elif self._timer is None or not (self._due_now or self._in_flight):
            wait_s = self._wait_s()
            if wait_s <= 0:
                self._set_timer(0.0)  # what else arrives in this turn of the loop goes with it
            elif self._timer is None:
                self._set_timer(wait_s)

    def _wait_s(self) -> float:
        group, now_s = self._open, self._loop.time()
        in_flight = [each.slot.size_bytes // max(1, each.batches) for each in self._in_flight.values()]
        return self._pacing.wait_s(
            batches=group.batches,
            size_bytes=group.slot.size_bytes,
            since_s=group.since_s,
            in_flight=in_flight,
            now_s=now_s,
        )

    def _set_timer(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_now = wait_s <= 0
        self._gathered, self._gathering = self._open.batches, GATHERING_TURNS
        self._timer = self._loop.call_soon(self._due) if self._due_now else self._loop.call_later(wait_s, self._due)

    def _due(self) -> None:
        if self._due_now and self._gathering and self._open.batches > self._gathered:
            # Proxies begin so many requests in a turn of the loop: the others come in the next ones, and an object for
            # each part of them would cost as much as one for all.
            self._gathered, self._gathering = self._open.batches, self._gathering - 1
            self._timer = self._loop.call_soon(self._due)
            return
        self._timer = None
        self._due_now = False
        # Frugal, a full object may have gone since the timer was set: then it is too early.
        self._try_send(due=self._settings.eager or self._wait_s() < TICK_S)

    def _try_send(self, *, due: bool = False) -> None:
        writer = self._writer
        if writer is None or self._ended.lost is not None:
            return
        while self._full and writer.has_room and self._may_send():
            self._send(writer, self._full.popleft())
        if self._open.is_empty or self._full or not writer.has_room or not self._may_send():
            return
        wait_s = 0.0 if due or self._open.slot.size_bytes >= self._settings.flush_bytes else self._wait_s()
        if wait_s <= 0:
            group, self._open = self._open, WalGroup()
            self._send(writer, group)
        elif self._timer is None:
            self._set_timer(wait_s)

    def _send(self, writer: StreamWriter, group: WalGroup) -> None:
        """The writer has room: what ends it ends this too, before anything else is sent."""
        number = writer.submit(group.wal_runs())
        assert number not in self._in_flight, f"WAL object {number} is in flight already"
        self._pacing.sent(self._loop.time())
        group.sent(number)
        self._in_flight[number] = group
        self._slots.append(group.slot)
        self.wal_bytes += group.slot.size_bytes
        WAL_BYTES.set(self.wal_bytes)
        self.sent_bytes += group.appended_bytes
        self.sent_objects += 1
        APPENDED_BYTES.inc(group.appended_bytes)
        APPENDED_RECORDS.inc(group.records)

    def _advance_checkpoint(self) -> None:
        if self._ended.lost is not None:
            return  # a stream that may be another's: nothing is deleted any more
        moved = False
        next_number = -1
        while self._slots and self._slots[0].durable and self._slots[0].runs == 0:
            slot = self._slots.popleft()
            assert slot.number >= next_number, f"WAL object {slot.number} stands behind {next_number - 1}"
            self.wal_bytes -= slot.size_bytes
            next_number = slot.number + 1
            moved = True
        if moved and self._writer is not None:
            WAL_BYTES.set(self.wal_bytes)
            self._writer.checkpoint(next_number)


def _left(partition: Partition) -> UnknownOutcome:
    return UnknownOutcome(
        f"partition {partition.tp} left this broker: whether its last batches are in the log is not known"
    )
