"""The lives of one broker incarnation's partitions: the one place where they change. Pure.

A life is one partition under one leader epoch (the table is bmq_broker.partitions.states). It is *current* until the
partition leaves, and *left* until an heir covers what it left: a partition that came back has a current one and some
that left.

A planned move has two ends, and nothing may be taken for the other. When everything of the partition is durable, the
controller is told where its range ends, until the image names it under another leader epoch. When the image no longer
names that range, its heir's manifest covers it, and only then may this broker's WAL objects go. Once closed, a
partition is never opened again under the same leader epoch, whatever the image says: the report may be on its way, and
an append after it would lie above the end of the range.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bmq.errors import PartitionStopped
from bmq.metadata.image import Image, stream_of
from bmq.metadata.records import Range
from bmq.metadata.shared_map import differences
from bmq.values import LeaderEpoch, StreamId, TopicPartition
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionEvent, PartitionState, next_state
from bmq_broker.partitions.tail import Run, Slot

Ranges = Mapping[TopicPartition, tuple[Range, ...]]

NOT_YET: Final = -1
"""The end of what is not closed."""


@dataclass(slots=True, eq=False)
class Life:
    """One partition under one leader epoch. Changed by `Lives` alone."""

    tp: TopicPartition
    read: tuple[Range, ...] = ()
    """The ranges of earlier owners of which is known what they hold."""
    found: Inheritance | None = None
    """What they hold, until the partition is open and has taken it over."""
    partition: Partition | None = None
    """From its opening until everything of it is durable."""
    leader_epoch: LeaderEpoch = LeaderEpoch(NOT_YET)
    """From its opening, or from where it leaves unopened; before, it is that of the image."""
    slots: tuple[Slot, ...] = ()
    """The WAL objects that it pins since it left."""
    end: int = NOT_YET
    start: int = 0
    _state: PartitionState = PartitionState.ASSIGNED

    @property
    def state(self) -> PartitionState:
        """While the partition is open, and while it closes, its own."""
        return self._state if self.partition is None else self.partition.state

    @property
    def is_stopped(self) -> bool:
        """Whether something that it needs was missing or damaged when it was last looked at."""
        return self._state is PartitionState.STOPPED or self._state is PartitionState.RESTORING

    def happen(self, event: PartitionEvent) -> None:
        """Raises ImpossibleTransition."""
        self._state = next_state(self.state, event)

    def let_go(self) -> None:
        """It is over."""
        self.happen(PartitionEvent.LET_GO)
        self.partition = None

    def open(self, partition: Partition) -> None:
        """It takes batches from now on."""
        assert partition.tp == self.tp
        assert partition.state is PartitionState.APPENDING
        self.happen(PartitionEvent.START)
        self.partition, self.found = partition, None
        self.leader_epoch = partition.leader_epoch

    def close(self) -> None:
        """Everything of it is durable: its range has an end. One without runs is in segments altogether, or wrote
        nothing: its heir need not read this stream.
        """
        assert self.partition is not None
        assert self.end == NOT_YET, f"{self.tp} ended at {self.end} already"
        self._state = self.partition.state
        assert self._state is PartitionState.CLOSED, f"{self.tp} ends, and is {self._state.name}"
        self.end = max((slot.number + 1 for slot in self.slots), default=0)
        self.start = min((slot.number for slot in self.slots), default=0)
        assert 0 <= self.start <= self.end, f"{self.tp} is in the objects {self.start} to {self.end}"
        self.partition = None


class NowRead(NamedTuple):
    """Which partitions are to be opened, and whether ranges held nothing of theirs."""

    to_open: Sequence[TopicPartition]
    held_nothing: bool


class LetGo(NamedTuple):
    """What lives that are over need no more: WAL objects, each of them needed by one run less, and partitions that were
    still closing.
    """

    slots: Sequence[Slot] = ()
    cut_short: Sequence[Partition] = ()


class Lives:
    """All of one broker incarnation, current and left."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self._current: dict[TopicPartition, Life] = {}
        """The lives of partitions of which anything was named, read, found or opened; the others are as they were
        assigned.
        """
        self._left: dict[TopicPartition, dict[LeaderEpoch, Life]] = {}
        self._left_open: dict[TopicPartition, None] = {}
        """Those of them that somebody wrote to or read."""
        self._closing: list[Life] = []
        self.appending: dict[TopicPartition, Partition] = {}
        """The partitions of current lives that take batches."""
        self.unread: dict[TopicPartition, tuple[Range, ...]] = {}
        """What is to be read of earlier owners' streams."""
        self.held_nothing: dict[TopicPartition, tuple[Range, ...]] = {}
        """Ranges that were read and hold nothing of their partitions: they are covered as they are."""
        self.covered_by_left: dict[TopicPartition, tuple[Range, ...]] = {}
        """What manifests covered of earlier owners' streams when their partitions left."""
        self.stopped_count = 0
        """Partitions that cannot be opened, because something that they need is missing or damaged."""

    @property
    def left_count(self) -> int:
        """Partitions that have left and that this broker still has to do with."""
        return len(self._left)

    def want(self, tp: TopicPartition, ranges: tuple[Range, ...]) -> bool:
        """These have to be read before the partition opens; returns whether that is news."""
        if self.unread.get(tp) == ranges or self.has_read(tp, ranges):
            return False
        self._happen(self._life(tp), PartitionEvent.RANGES_NAMED)
        self.unread[tp] = ranges
        return True

    def has_read(self, tp: TopicPartition, ranges: Iterable[Range]) -> bool:
        """Whether what the ranges hold is known. Ranges are covered, and leave the image, while others are still to be
        read.
        """
        life = self._current.get(tp)
        return set(ranges) <= set(() if life is None else life.read)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether anything was named, read, found or opened of the partition."""
        return tp in self._current

    def holds(self, tp: TopicPartition) -> bool:
        """Whether something was found that the partition has yet to take over."""
        life = self._current.get(tp)
        return life is not None and life.found is not None

    def found(self, tp: TopicPartition) -> Inheritance:
        """What was found of the partition."""
        life = self._current.get(tp)
        return Inheritance() if life is None or life.found is None else life.found

    def read(self, ranges: Ranges, found: Mapping[TopicPartition, Inheritance]) -> NowRead:
        """The ranges were read, and held this. Keeps what is still wanted as it was when that began."""
        to_open, held_nothing = [], False
        for tp in [tp for tp, named in ranges.items() if self.unread.get(tp) == named]:
            life = self._current[tp]
            life.read = self.unread.pop(tp)
            was, inheritance = life.state, found.get(tp)
            if inheritance is None:
                self.held_nothing[tp] = life.read
                held_nothing = True
            else:
                life.found = inheritance
            if inheritance is not None and inheritance.stopped is not None:
                self._happen(life, PartitionEvent.DAMAGED)
            elif inheritance is not None or was is not PartitionState.STOPPED:  # else it is, by something else
                self._happen(life, PartitionEvent.RANGES_READ)
            if inheritance is not None or was is PartitionState.RESTORING:
                to_open.append(tp)
        return NowRead(to_open, held_nothing)

    def stop(self, tp: TopicPartition, stopped: PartitionStopped) -> None:
        """What was found cannot be explained, or the manifest lacks something."""
        life = self._life(tp)
        life.found = Inheritance(stopped=stopped)
        self._happen(life, PartitionEvent.DAMAGED)

    def look_again(
        self, still_named: Callable[[TopicPartition, tuple[Range, ...]], tuple[Range, ...]]
    ) -> list[TopicPartition]:
        """Has what stops partitions read again; returns those partitions. `still_named` says which of the ranges that
        were read are to be: one that held nothing was covered, and its stream may be gone since.
        """
        stopped = [life for life in self._current.values() if life.state is PartitionState.STOPPED]
        for life in stopped:
            read, life.read, life.found = life.read, (), None
            self._happen(life, PartitionEvent.LOOKED_AT_AGAIN)
            if ranges := still_named(life.tp, read):
                self.unread[life.tp] = ranges
        return [life.tp for life in stopped]

    def open(self, partition: Partition) -> None:
        """The partition has taken over what was found, and takes batches."""
        assert partition.tp not in self.appending, f"{partition.tp} is open already"
        assert not self.has_left(partition.tp, partition.leader_epoch), (
            f"{partition.tp} has left under {partition.leader_epoch}, and is opened under it"
        )
        life = self._life(partition.tp)
        self.stopped_count -= life.is_stopped
        life.open(partition)
        self.unread.pop(partition.tp, None)
        self.appending[partition.tp] = partition

    def leave(self, partition: Partition) -> None:
        """By plan: the partition takes no more batches. What is buffered of it still goes to the WAL; `close` and
        `forget` follow.
        """
        life = self._end_current(partition)
        runs = partition.leave()
        if partition.ranges and partition.manifest.next_offset >= partition.recovered_next_offset:
            self.covered_by_left[partition.tp] = partition.ranges  # told when it is closed: its heir need not read it
        life.slots = tuple(run.slot for run in runs if run.slot is not None)
        self._add_left(life)
        self._left_open[partition.tp] = None
        self._closing.append(life)

    def leave_unopened(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """The partition never took a batch under this leader epoch: its heir reads what this broker would have read.
        Returns whether that is news; `forget` follows.
        """
        if self.has_left(tp, leader_epoch):
            return False
        life = self._life(tp)
        del self._current[tp]
        self._happen(life, PartitionEvent.MOVED_AWAY)
        life.leader_epoch, life.found, life.end = leader_epoch, None, 0
        self._add_left(life)
        return True

    def take_away(self, partition: Partition) -> list[Run]:
        """It was deleted, or the image gives it to another without having asked. Returns the runs that its tail had;
        `forget` follows.
        """
        life = self._end_current(partition)
        runs = partition.leave()
        life.let_go()
        return runs

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not this broker's any more: what was read or found of it is of no use here."""
        life = self._current.pop(tp, None)
        if life is not None:
            self._happen(life, PartitionEvent.LET_GO)
        self.unread.pop(tp, None)
        self.held_nothing.pop(tp, None)

    def has_left(self, tp: TopicPartition, leader_epoch: LeaderEpoch) -> bool:
        """Whether it left under this leader epoch."""
        return leader_epoch in self._left.get(tp, ())

    def left(self) -> Iterator[tuple[TopicPartition, Mapping[LeaderEpoch, Life]]]:
        """The lives that left each partition, by leader epoch; first those of partitions that were open, whose clients
        wait.
        """
        yield from ((tp, self._left[tp]) for tp in self._left_open)
        yield from ((tp, lives) for tp, lives in self._left.items() if tp not in self._left_open)

    def close(self) -> bool:
        """Something became durable: closes those of which everything is. Returns whether there are any. Cheap where
        none is closing.
        """
        if not self._closing:
            return False
        closing, self._closing = self._closing, []
        for life in closing:
            if life.state is PartitionState.CLOSED:
                life.close()
            else:
                self._closing.append(life)
        return len(self._closing) < len(closing)

    def image_changed(self, old: Image, new: Image) -> LetGo:
        """Lets go of what heirs have covered and of deleted topics."""
        if not self._left or old.topics is new.topics:
            return LetGo()
        found = differences(old.topics, new.topics)
        over = [
            life
            for topic in (*(was for _, was, _ in found.changed if was is not None), *(was for _, was in found.gone))
            for index in range(len(topic.partitions))
            for life in self._left.get(TopicPartition(topic.topic_id, index), {}).values()
            if self._is_over(life, new)
        ]
        cut_short = [life.partition for life in over if life.partition is not None]
        for life in over:
            lives = self._left[life.tp]
            del lives[life.leader_epoch]
            if not lives:
                del self._left[life.tp]
                self._left_open.pop(life.tp, None)
            life.let_go()
        if cut_short:
            gone = set(map(id, over))
            self._closing = [life for life in self._closing if id(life) not in gone]
        return LetGo([slot for life in over for slot in life.slots], cut_short)

    def drop(self) -> None:
        """This broker has ended: nothing is kept in memory any more."""
        for partition in self.appending.values():
            partition.tail.drop()
        self.appending.clear()
        self._current.clear()

    def _is_over(self, life: Life, image: Image) -> bool:
        """What was given to another without having been closed is never over: then this broker was replaced and has yet
        to hear of it.
        """
        meta = image.partition(life.tp)
        if meta is None:
            return True
        if life.end == NOT_YET or meta.leader_epoch <= life.leader_epoch:
            return False
        return not any(
            stream_of(found) == self._stream and found.leader_epoch == life.leader_epoch for found in meta.ranges
        )

    def _life(self, tp: TopicPartition) -> Life:
        """The current one, which may begin here."""
        life = self._current.get(tp)
        if life is None:
            life = self._current[tp] = Life(tp)
        return life

    def _end_current(self, partition: Partition) -> Life:
        life, appending = self._current.pop(partition.tp), self.appending.pop(partition.tp)
        assert life.partition is partition
        assert appending is partition
        return life

    def _add_left(self, life: Life) -> None:
        lives = self._left.setdefault(life.tp, {})
        assert life.leader_epoch not in lives, f"{life.tp} leaves twice under {life.leader_epoch}"
        lives[life.leader_epoch] = life

    def _happen(self, life: Life, event: PartitionEvent) -> None:
        self.stopped_count -= life.is_stopped
        life.happen(event)
        self.stopped_count += life.is_stopped
