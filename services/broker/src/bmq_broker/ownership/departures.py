"""Partitions that leave this broker by plan: until when they write, what is said of them, and what of the WAL their
heirs have yet to read.

A planned move has two ends, and nothing may be taken for the other. When everything of the partition is durable, the
controller is told where its range ends, until the image names it under another leader epoch. When the image no longer
names that range, its heir's manifest covers it, and only then may this broker's WAL objects go. Once closed, a
partition is never opened again under the same leader epoch, whatever the image says: the report may be on its way, and
an append after it would lie above the end of the range.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bmq.metadata.image import Image, PartitionMeta, stream_of
from bmq.roles.controller import ClosedPartition
from bmq.values import LeaderEpoch, StreamId, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import Run, Slot

NOT_YET: Final = -1
"""The end of what is not closed."""


@dataclass(slots=True)
class Departure:
    """One partition under one leader epoch. `slots`: the WAL objects that it pins."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    slots: tuple[Slot, ...] = ()
    partition: Partition | None = None
    """Only until everything of it is durable."""
    end: int = NOT_YET
    start: int = 0


class Departures:
    """All of one broker incarnation."""

    def __init__(
        self, stream: StreamId, *, unpin: Callable[[Iterable[Slot]], None], closed: Callable[[], None]
    ) -> None:
        """`unpin` is called with the objects that an heir's manifest covers, `closed` when there is something new to
        report.
        """
        self._stream = stream
        self._unpin = unpin
        self._closed = closed
        self._departures: dict[TopicPartition, dict[LeaderEpoch, Departure]] = {}
        self._closing: list[Departure] = []

    def __len__(self) -> int:
        """Partitions that have left and that this broker still has to do with."""
        return len(self._departures)

    def leave(self, partition: Partition, runs: Iterable[Run]) -> None:
        """The partition takes no more batches; `runs` are those that no segment covers. What is buffered of it still
        goes to the WAL.
        """
        slots = tuple(run.slot for run in runs if run.slot is not None)
        departure = Departure(tp=partition.tp, leader_epoch=partition.leader_epoch, slots=slots, partition=partition)
        self._departures.setdefault(partition.tp, {})[partition.leader_epoch] = departure
        self._closing.append(departure)
        self.look()

    def leave_unopened(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """The partition never took a batch under this leader epoch: its heir reads what this broker would have read."""
        if not self.holds(tp, leader_epoch):
            self._departures.setdefault(tp, {})[leader_epoch] = Departure(tp=tp, leader_epoch=leader_epoch, end=0)
            self._closed()

    def holds(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Whether it has left under this leader epoch."""
        return leader_epoch in self._departures.get(tp, ())

    def departed(self, tp: TopicPartition) -> bool:
        """Whether it has left before, under any leader epoch that an heir has yet to cover."""
        return tp in self._departures

    def look(self) -> None:
        """Something became durable: which partitions are closed by it? Cheap where none is closing."""
        if not self._closing:
            return
        closing, self._closing = self._closing, []
        for departure in closing:
            partition = departure.partition
            assert partition is not None
            if partition.state is PartitionState.CLOSED:
                # A partition without runs is in segments altogether, or wrote nothing: its heir need not read this
                # stream.
                departure.end = max((slot.number + 1 for slot in departure.slots), default=0)
                departure.start = min((slot.number for slot in departure.slots), default=0)
                departure.partition = None
            else:
                self._closing.append(departure)
        if len(self._closing) < len(closing):
            self._closed()

    def reports(self, image: Image, *, count_max: int) -> tuple[ClosedPartition, ...]:
        """Those that are closed and that the image still gives to this broker, under the leader epoch under which they
        were closed.
        """
        found: list[ClosedPartition] = []
        for tp, departures in self._departures.items():
            if len(found) == count_max:
                break
            meta = image.partition(tp)
            departure = departures.get(meta.leader_epoch) if meta is not None and self._is_owned(meta) else None
            if departure is not None and departure.end != NOT_YET:
                found.append(
                    ClosedPartition(
                        tp=tp, leader_epoch=departure.leader_epoch, end=departure.end, start=departure.start
                    )
                )
        return tuple(found)

    def image_changed(self, old: Image, new: Image) -> list[Partition]:
        """Lets go of what heirs have covered and of deleted topics; returns partitions of those that were still
        closing.
        """
        if not self._departures or old.topics is new.topics:
            return []
        over = [
            departure
            for tp, departures in self._departures.items()
            if old.topics.get(tp.topic_id) is not new.topics.get(tp.topic_id)
            for departure in departures.values()
            if self._is_over(departure, new)
        ]
        for departure in over:
            departures = self._departures[departure.tp]
            del departures[departure.leader_epoch]
            if not departures:
                del self._departures[departure.tp]
        cut_short = [departure.partition for departure in over if departure.partition is not None]
        if cut_short:
            self._closing = [departure for departure in self._closing if departure.partition not in cut_short]
        self._unpin(slot for departure in over for slot in departure.slots)
        return cut_short

    def _is_owned(self, meta: PartitionMeta) -> bool:
        return (meta.node_id, meta.broker_epoch) == self._stream

    def _is_over(self, departure: Departure, image: Image) -> bool:
        """What was given to another without having been closed is never over: then this broker was replaced and has yet
        to hear of it.
        """
        meta = image.partition(departure.tp)
        if meta is None:
            return True
        if departure.end == NOT_YET or meta.leader_epoch <= departure.leader_epoch:
            return False
        return not any(
            stream_of(found) == self._stream and found.leader_epoch == departure.leader_epoch for found in meta.ranges
        )
