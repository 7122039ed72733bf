"""Partitions that cannot be rolled, because something of their own in the store is missing or damaged: each stops
alone, the others go on.

Such a partition refuses batches, so its tail grows no more, and what it has is still read. It does not count where
memory is used up, and is carried forward out of the WAL objects that it pins as others write new ones. Its roll is
tried again, and once it succeeds the partition goes on, unless it stands still for another reason, too.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from bmq.errors import BmqError, Fenced, NotOwner, NotReady, ObjectMissing, PartitionStopped, StoreError
from bmq.values import TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.segments.manifests import ManifestMoved
from bmq_broker.wal.carrying import Carrier
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

BYTES_PER_CARRIED_BYTE: Final = 4
"""A stopped partition's tail is carried once for each so many times its size that were appended meanwhile."""


class Stalled(BmqError):
    """The store takes what others write and not what the partition's roll does."""


_PASSING: Final = (Fenced, NotOwner, NotReady, ManifestMoved)


@dataclass(slots=True)
class _Stopped:
    partition: Partition
    carry_at_bytes: int = 0
    """How many bytes this broker has to have appended before it is carried again."""


class StoppedPartitions:
    """Those partitions of one broker incarnation that cannot be rolled."""

    def __init__(self, carrier: Carrier, commit: GroupCommit) -> None:
        self._carrier = carrier
        self._commit = commit
        self._stopped: dict[TopicPartition, _Stopped] = {}

    def __len__(self) -> int:
        return len(self._stopped)

    def __contains__(self, partition: Partition) -> bool:
        known = self._stopped.get(partition.tp)
        return known is not None and known.partition is partition

    @property
    def tail_bytes(self) -> int:
        """What they keep in memory."""
        return sum(each.partition.tail.memory_bytes for each in self._stopped.values()) if self._stopped else 0

    def failed(self, partition: Partition, error: BaseException) -> bool:
        """A roll of the partition alone failed; returns whether that stops it. What troubles the store in general stops
        nobody.
        """
        if not _is_its_own(error):
            return False
        if partition not in self:
            log.error(
                "partition takes no more records, its roll is tried again",
                partition=str(partition.tp),
                error=repr(error),
            )
            self._stopped[partition.tp] = _Stopped(partition)
        partition.cannot_roll = PartitionStopped(
            f"partition {partition.tp} takes no more records: what it has cannot be written as a segment, because "
            f"{_reason(error)}; {_remedy(error)}"
        )
        return True

    def rolled(self, partition: Partition) -> None:
        """A roll of it succeeded."""
        if partition in self:
            del self._stopped[partition.tp]
            partition.cannot_roll = None
            if partition.stopped is None:
                log.info("partition takes records again", partition=str(partition.tp))

    def forget_left(self) -> None:
        """Lets go of what is not this broker's any more."""
        for tp in [tp for tp, each in self._stopped.items() if each.partition.state is not PartitionState.APPENDING]:
            del self._stopped[tp]

    def carry(self, partition: Partition) -> None:
        """Takes the partition out of old WAL objects, if others have written enough since it was last."""
        stopped = self._stopped[partition.tp]
        if self._commit.sent_bytes >= stopped.carry_at_bytes and self._carrier.carry_whole(partition):
            stopped.carry_at_bytes = self._commit.sent_bytes + BYTES_PER_CARRIED_BYTE * partition.tail.size_bytes


def _is_its_own(error: BaseException) -> bool:
    """Whether the roll would fail as well if nothing were wrong with the store and this process."""
    if isinstance(error, BmqError):
        return isinstance(error, ObjectMissing) or not isinstance(error, (StoreError, *_PASSING))
    return not isinstance(error, (OSError, MemoryError, RuntimeError))


def _remedy(error: BaseException) -> str:
    if isinstance(error, Stalled):
        return "see what the store says of what begins with that (the log has it), and make it take that again"
    return "restore the object from a backup, or stop the cluster and run `bmq store check --repair`"


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, BmqError) else f"of a bug in bmq: {error!r}"
