"""The state of one partition at its owner, and every change of it. Pure: the shell brings batches, outcomes and
time.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from typing_extensions import Buffer

from bmq.config.topic_config import TopicConfig
from bmq.errors import FencedLeaderEpoch, PartitionStopped, UnknownLeaderEpoch
from bmq.metadata.records import Range
from bmq.storage import leader_epochs
from bmq.storage.flatlog import Entry
from bmq.storage.keys import NumberedKey, segment_prefix
from bmq.storage.leader_epochs import EpochHistory
from bmq.storage.manifest import Manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import NO_MANIFEST, LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq.wire.batches import BatchHeader, max_timestamp_of
from bmq_broker.partitions.producers import Producers
from bmq_broker.partitions.states import PartitionEvent, PartitionState, next_state
from bmq_broker.partitions.tail import Run, Slot, Tail, TailTotal

_Batch = tuple[int, int, int]
"""(next offset, CRC, leader epoch): of two batches with one base offset that agree in these, one is the other's
copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollPlan:
    """What a roll writes: whole runs from the tail's start on, all below the high watermark."""

    runs: tuple[Run, ...]
    base_offset: Offset
    next_offset: Offset
    size_bytes: int

    @property
    def batches(self) -> list[Buffer]:
        """In offset order."""
        return [batch for run in self.runs for batch in run.batches]


class UnnamedSegment(NamedTuple):
    """A segment of this ownership that is in the store, and the producers as of its end."""

    plan: RollPlan
    entry: SegmentEntry
    producers: Producers


class Partition:
    """One owned partition."""

    __slots__ = (
        "appended_slot",
        "cannot_roll",
        "carried_below",
        "carry_below",
        "carrying",
        "claimed",
        "config",
        "entry",
        "epochs",
        "high_watermark",
        "leader_epoch",
        "live",
        "manifest",
        "next_offset",
        "ranges",
        "recovered_next_offset",
        "rolled",
        "state",
        "stray",
        "tail",
        "tp",
        "unnamed",
        "written_bytes",
    )

    def __init__(
        self,
        tp: TopicPartition,
        *,
        leader_epoch: LeaderEpoch,
        config: TopicConfig,
        ranges: tuple[Range, ...],
        total: TailTotal,
    ) -> None:
        self.tp = tp
        self.leader_epoch = leader_epoch
        self.config = config
        self.state = PartitionState.ASSIGNED
        self.manifest = Manifest()
        self.entry: Entry | None = None
        self.claimed = False
        """Whether the newest manifest version is of this ownership."""
        self.tail = Tail(total)
        self.next_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.live = Producers()
        """As of `next_offset`."""
        self.rolled = Producers()
        """As of the manifest's next offset: what a segment's snapshot is made from."""
        self.epochs: EpochHistory = ()
        self.ranges = ranges
        """Streams of earlier owners that the image still names for it."""
        self.recovered_next_offset = Offset(0)
        """Where this ownership began: what lies below it was inherited."""
        self.appended_slot: Slot | None = None
        """The newest WAL object with a batch of it."""
        self.cannot_roll: PartitionStopped | None = None
        """Why it takes no more batches, while it cannot be rolled."""
        self.stray: PartitionStopped | None = None
        """Why this ownership takes no more batches: versions of the manifest are missing, which no roll brings back."""
        self.unnamed: UnnamedSegment | None = None
        """What the last roll wrote, where no version came to name it: the next one takes it instead of writing it
        again."""
        self.carrying = False
        """Whether its tail is being carried to newer WAL objects: a copy of a part of it is on its way."""
        self.carried_below = self.carry_below = Offset(0)
        """Where the next copy begins, and where the last one ends."""
        self.written_bytes = 0
        """What this ownership has made durable."""

    @property
    def stopped(self) -> PartitionStopped | None:
        """Why it takes no more batches; None where it takes them."""
        return self.stray or self.cannot_roll

    @property
    def manifest_version(self) -> ManifestVersion:
        """The number of the manifest that is in force."""
        return NO_MANIFEST if self.entry is None else ManifestVersion(self.entry.number)

    @property
    def tail_start(self) -> Offset:
        """Below it everything is in segments."""
        return Offset(self.manifest.next_offset)

    @property
    def log_start(self) -> Offset:
        """The first offset that can be read."""
        return Offset(self.manifest.log_start)

    def start(self) -> None:
        """Recovery begins."""
        self._happen(PartitionEvent.START)

    def recovered(self) -> None:
        """Recovery is over: the partition may append."""
        self._happen(PartitionEvent.RECOVERED)

    def _happen(self, event: PartitionEvent) -> None:
        self.state = next_state(self.state, event)

    def opened(
        self,
        manifest: Manifest,
        entry: Entry | None,
        rolled: Producers,
        recovered: Sequence[tuple[Run, Sequence[BatchHeader]]],
        *,
        now_ms: int,
    ) -> None:
        """Recovery has read everything: the partition may append. Raises PartitionStopped where offsets are missing."""
        assert self.state is PartitionState.RECOVERING, f"{self.tp} is {self.state.name}, and is to be opened"
        assert not self.tail.runs, f"{self.tp} has {len(self.tail.runs)} runs before it is opened"
        assert entry is None or entry.epoch <= self.leader_epoch, (
            f"{self.tp} under {self.leader_epoch} begins with a manifest of epoch {entry.epoch}"
        )
        self.manifest = manifest
        self.entry = entry
        self.claimed = entry is not None and entry.epoch == self.leader_epoch
        self.rolled = rolled
        self.live = rolled.copy()
        self.epochs = manifest.leader_epochs
        self.next_offset = Offset(manifest.next_offset)
        taken: dict[int, _Batch] = {}
        for run, headers in recovered:
            self._take_over(run, headers, taken, now_ms=now_ms)
        self.high_watermark = self.next_offset
        self.recovered_next_offset = self.next_offset
        self.begin_epoch(self.leader_epoch, self.next_offset)

    def _take_over(self, run: Run, headers: Sequence[BatchHeader], taken: dict[int, _Batch], *, now_ms: int) -> None:
        """What a recovered run has that is neither in segments nor in an older copy of it: an owner that carried it
        forward wrote it again.

        `taken`: the batches that are in the tail already, by base offset. Raises PartitionStopped.
        """
        first = 0
        while first < len(headers) and headers[first].next_offset <= self.next_offset:
            header = headers[first]
            if header.base_offset >= self.manifest.next_offset and taken.get(header.base_offset) != _batch(header):
                raise self._twice(header)
            first += 1
        if first == len(headers):
            return
        if headers[first].base_offset < self.next_offset:
            raise self._twice(headers[first])
        if headers[first].base_offset > self.next_offset:
            raise PartitionStopped(
                f"partition {self.tp}: offsets {self.next_offset} to {headers[first].base_offset - 1} are neither "
                f"in the manifest {self.manifest_version} nor in the WAL; restore the missing objects from a "
                "backup, and they are read again"
            )
        if first:
            size_bytes = sum(header.size_bytes for header in headers[first:])
            run = replace(run, base_offset=self.next_offset, batches=run.batches[first:], size_bytes=size_bytes)
        for batch, header in zip(run.batches, headers[first:], strict=True):
            if self.epochs and header.leader_epoch < self.epochs[-1].epoch:
                raise self._twice(header)
            self.begin_epoch(header.leader_epoch, header.base_offset)
            self.tail.add(run, batch, base_offset=header.base_offset, size_bytes=header.size_bytes)
            self.live.replay(header, base_offset=header.base_offset, seen_ms=now_ms)
            taken[header.base_offset] = _batch(header)
        self.tail.durable(len(run.batches))
        self.next_offset = run.next_offset

    def _twice(self, header: BatchHeader) -> PartitionStopped:
        return PartitionStopped(
            f"partition {self.tp}: the WAL holds offsets from {header.base_offset} on, of leader epoch "
            f"{header.leader_epoch}, a second time: up to {self.next_offset - 1} they are there already, and "
            "others; this is a bug in bmq, or the store was tampered with"
        )

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Records at and above `start` are of `epoch`."""
        self.epochs = leader_epochs.with_epoch(self.epochs, epoch, start)

    def check_leader_epoch(self, epoch: int) -> None:
        """-1 is not checked. Raises FencedLeaderEpoch or UnknownLeaderEpoch."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {epoch} of partition {self.tp} is over, it is {self.leader_epoch} now"
            )
        raise UnknownLeaderEpoch(
            f"leader epoch {epoch} of partition {self.tp} is not known here yet, it is {self.leader_epoch}"
        )

    def appended(self, run: Run, batch: Buffer, header: BatchHeader, *, now_ms: int) -> None:
        """The batch has got `next_offset` and is on its way to the WAL. The one place where live state changes."""
        base_offset = self.next_offset
        self.live.replay(header, base_offset=base_offset, seen_ms=now_ms)
        self.tail.add(run, batch, base_offset=base_offset, size_bytes=header.size_bytes)
        self.next_offset = Offset(base_offset + header.last_offset_delta + 1)
        run.next_offset = self.next_offset
        self.appended_slot = run.slot

    def settle_producers(self, *, forget_before_ms: int, shorten_before_ms: int) -> None:
        """Forgets those that were last seen before the one time, and the older batches of those before the other."""
        self._producers_became(
            self.live.settled(forget_before_ms=forget_before_ms, shorten_before_ms=shorten_before_ms),
            self.rolled.settled(forget_before_ms=forget_before_ms, shorten_before_ms=shorten_before_ms),
        )

    def forget_turns(self, is_over: Callable[[int], bool]) -> None:
        """Forgets how far lanes' turns got that are over."""
        self._producers_became(self.live.without_turns(is_over), self.rolled.without_turns(is_over))

    def keep_newest_producers(self, count: int, further: int) -> None:
        """Forgets all but so many, and the older batches where more than so many lie beyond what each keeps."""
        self._producers_became(self.live.newest(count, further), self.rolled.newest(count, further))

    def _producers_became(self, live: Producers, rolled: Producers) -> None:
        if rolled is not self.rolled:
            rolled.share(live)
        self.live, self.rolled = live, rolled

    def durable(self, run: Run) -> None:
        """The run's WAL object and all before it are durable."""
        assert run.base_offset == self.high_watermark, (
            f"{self.tp}: offsets from {run.base_offset} on are durable, and the high watermark is {self.high_watermark}"
        )
        assert run.base_offset < run.next_offset <= self.next_offset, (
            f"{self.tp}: offsets {run.base_offset} to {run.next_offset} are durable, and it ends at {self.next_offset}"
        )
        self.high_watermark = run.next_offset
        self.written_bytes += run.size_bytes
        if self.state is PartitionState.APPENDING:
            self.tail.durable(len(run.batches))
        else:
            self._closed_if_durable()

    def leave(self) -> list[Run]:
        """The partition is not this broker's any more: takes no more batches and forgets those it has. Returns their
        runs.
        """
        assert self.high_watermark <= self.next_offset, (
            f"{self.tp}: the high watermark {self.high_watermark} is above the end {self.next_offset}"
        )
        self._happen(PartitionEvent.MOVED_AWAY)
        self._closed_if_durable()
        return self.tail.drop()

    def _closed_if_durable(self) -> None:
        if self.high_watermark == self.next_offset:
            self._happen(PartitionEvent.BUFFER_DURABLE)

    def plan_roll(self, *, target_bytes: int) -> RollPlan | None:
        """The oldest durable runs, up to `target_bytes` and at least one; None where there is nothing to roll."""
        runs: list[Run] = []
        size_bytes = 0
        for run in self.tail.runs:
            if run.next_offset > self.high_watermark or (runs and size_bytes + run.size_bytes > target_bytes):
                break
            runs.append(run)
            size_bytes += run.size_bytes
        if not runs:
            return None
        return RollPlan(
            runs=tuple(runs), base_offset=runs[0].base_offset, next_offset=runs[-1].next_offset, size_bytes=size_bytes
        )

    def oldest_needed(self) -> int:
        """The number of the oldest durable WAL object of this broker that the tail needs; -1: none. What was carried is
        not in their order.
        """
        return min((run.slot.number for run in self.tail.runs if run.slot is not None and run.slot.durable), default=-1)

    def begin_carrying(self) -> bool:
        """Whether there is something to carry that is not being carried: all that is durable of the tail now, own or
        inherited.
        """
        if self.carrying or not self.tail.durable_bytes or self.state is not PartitionState.APPENDING:
            return False
        self.carrying = True
        self.carried_below, self.carry_below = self.tail_start, self.high_watermark
        return True

    def carry(self, slot: Slot, *, max_bytes: int) -> Run | None:
        """The next copy, to be asked for when the one before it is durable: one run of up to `max_bytes`, or with one
        batch.

        None where nothing is left: all was carried, or is in segments by now, or the partition has left.
        """
        assert self.carrying, f"{self.tp}: nothing of it is being carried"
        runs = (
            self.tail.part(self.carried_below, self.carry_below, max_bytes=max_bytes)
            if self.state is PartitionState.APPENDING
            else []
        )
        if not runs:
            self.carrying = False
            return None
        batches = [batch for run in runs for batch in run.batches]
        return Run(
            slot=slot,
            leader_epoch=self.leader_epoch,
            base_offset=runs[0].base_offset,
            next_offset=runs[-1].next_offset,
            batches=batches,
            size_bytes=sum(run.size_bytes for run in runs),
            # it is written, and of a run that was divided it is more than this
            max_timestamp_ms=max(map(max_timestamp_of, batches)),
            since_ms=runs[0].since_ms,
        )

    def carried(self, copy: Run) -> list[Slot]:
        """The copy and every WAL object before it are durable. Returns the slots that are needed once less: those of
        the originals, and the copy's own, which was needed for its own sake until now. What has left meanwhile stays
        needed where it was, and so does what the copy has not.
        """
        assert copy.slot is not None, f"{self.tp}: a copy in no WAL object"
        assert self.carried_below <= copy.base_offset < copy.next_offset <= self.high_watermark, (
            f"{self.tp}: {copy.base_offset} to {copy.next_offset} were carried, what is below {self.carried_below} was "
            f"before, and the high watermark is {self.high_watermark}"
        )
        if self.state is not PartitionState.APPENDING:
            return [copy.slot]
        self.carried_below = copy.next_offset
        return [*self.tail.carried(copy.base_offset, copy.next_offset, copy.slot), copy.slot]

    def manifest_changed(self, manifest: Manifest, entry: Entry, *, rolled: Producers | None = None) -> list[Run]:
        """A manifest version is durable; returns the runs that it freed. `rolled`: the producers as of its next
        offset.
        """
        before = self.manifest
        assert before.next_offset <= manifest.next_offset <= self.high_watermark, (
            f"{self.tp}: manifest {entry.number} ends at {manifest.next_offset}, the one before it at "
            f"{before.next_offset}, and the high watermark is {self.high_watermark}"
        )
        assert before.log_start <= manifest.log_start <= max(before.log_start, self.high_watermark), (
            f"{self.tp}: manifest {entry.number} begins at {manifest.log_start}, the one before it at "
            f"{before.log_start}, and the high watermark is {self.high_watermark}"
        )
        assert self.manifest_version < entry.number and entry.epoch <= self.leader_epoch, (
            f"{self.tp}: manifest {entry.number} of epoch {entry.epoch} follows {self.manifest_version} under "
            f"{self.leader_epoch}"
        )
        self.manifest = manifest
        self.entry = entry
        self.claimed = entry.epoch == self.leader_epoch
        if rolled is not None:
            self.rolled = rolled
        return self.tail.trim(manifest.next_offset)

    def covers_recovered(self) -> bool:
        """Whether the manifest and this owner's own stream hold all that this ownership inherited."""
        if self.manifest.next_offset >= self.recovered_next_offset:
            return True
        if self.state is not PartitionState.APPENDING or not self.tail.runs:
            return False
        inherited = takewhile(lambda run: run.base_offset < self.recovered_next_offset, self.tail.runs)
        return all(run.slot is not None for run in inherited)  # some may be copies, and some not yet

    def covers_ranges(self) -> bool:
        """Whether there are ranges and nothing that was in them is needed any more."""
        return bool(self.ranges) and self.covers_recovered()

    def is_stray(self, leader_epoch: int, base_offset: int) -> bool:
        """Whether a segment of an earlier owner, which nothing names, begins where a later one found no records any
        more.

        Nobody rolls what is not durable, and an heir finds all that is: so a version of the manifest that covered it is
        missing. What is there now at these offsets, if anything, was given them a second time.
        """
        if leader_epoch >= self.leader_epoch:
            return False
        _, end = leader_epochs.epoch_end(self.epochs, leader_epoch, log_end=self.high_watermark)
        return 0 <= end <= base_offset

    def check_end(self, beyond: Iterable[NumberedKey]) -> None:
        """That no segment of an earlier owner begins where recovery found no records any more; `beyond` are its own
        segments that may.

        Raises PartitionStopped.
        """
        for found in beyond:
            if found.offset >= self.next_offset and self.is_stray(found.leader_epoch, found.offset):
                key = f"{segment_prefix(self.tp)}{found.leader_epoch:010d}/{found.offset:020d}-{found.nonce_hex}"
                raise missing_versions(self.tp, key, base_offset=found.offset, ended=self.next_offset)

    def check_left(self, end: int, lost: str) -> None:
        """That the log reaches `end`, as it did below the missing WAL object `lost`: who owned it deleted from below,
        and what is kept elsewhere.

        Raises PartitionStopped.
        """
        if end > self.next_offset:
            raise PartitionStopped(
                f"partition {self.tp}: {lost} is missing, and offsets {self.next_offset} to {end - 1}, which lie "
                f"below it, are neither in the manifest {self.manifest_version} nor in the WAL above it: its owner "
                "cannot have deleted it; restore the object from a backup, and it is read again, or stop the "
                "cluster and run `bmq store check --repair`"
            )

    def stop_for_stray(self, key: str, base_offset: int) -> bool:
        """Takes no more batches, unless it begins below what this owner found at its opening: then it is too late.
        Returns whether it stops.
        """
        if base_offset < self.recovered_next_offset:
            return False
        if self.stray is None:
            self.stray = missing_versions(self.tp, key, base_offset=base_offset, ended=self.recovered_next_offset)
        return True

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, the offset where it ends); (-1, -1) where there is none."""
        return leader_epochs.epoch_end(self.epochs, epoch, log_end=self.high_watermark)

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The leader epoch of the record at `offset`."""
        at = bisect_right(self.epochs, offset, key=lambda each: each.start_offset) - 1
        return LeaderEpoch(self.epochs[at].epoch if at >= 0 else -1)


def missing_versions(tp: TopicPartition, key: str, *, base_offset: int, ended: int) -> PartitionStopped:
    """Why a partition takes no records: an earlier owner had records where this one found the log's end."""
    return PartitionStopped(
        f"partition {tp} takes no records: {key}, which an earlier owner wrote, begins at offset {base_offset}, "
        f"and the log ends at {ended} by its manifest and the WAL. Newer versions of the manifest are missing, "
        "somebody else deleted them: restore them from a backup, or stop the cluster and run `bmq store check "
        "--repair`"
    )


def _batch(header: BatchHeader) -> _Batch:
    return header.next_offset, header.crc, header.leader_epoch
