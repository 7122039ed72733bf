"""What becomes one WAL object: batches that partitions append, and batches that are carried forward out of older
objects.
"""

from collections.abc import Callable

from bmq.errors import BmqError
from bmq.storage.wal import WalRun
from bmq.values import Offset, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import Run, Slot

Reply = Callable[[BmqError | None], None]


class WalGroup:
    """The buffer of one object, and who waits for it. It is filled by bmq_broker.wal.commit alone."""

    __slots__ = ("appended_bytes", "batches", "carried", "records", "replies", "runs", "since_s", "slot")

    def __init__(self) -> None:
        self.slot = Slot()
        """Its size counts everything, `appended_bytes` only what is here for the first time."""
        self.appended_bytes = 0
        self.batches = 0
        self.records = 0
        self.since_s = 0.0
        """When the first of them came, in the loop's time."""
        self.runs: dict[TopicPartition, tuple[Partition, Run]] = {}
        self.carried: list[tuple[Partition, Run]] = []
        """Copies of what tails hold of older objects, to be needed here instead of there once this object is
        durable."""
        self.replies: list[tuple[Partition | None, Reply]] = []
        """Who waits, and for which partition; None: for all of them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.runs and not self.carried

    @property
    def run_count(self) -> int:
        """How many entries its directory will have."""
        return len(self.runs) + len(self.carried)

    def wal_runs(self) -> list[WalRun]:
        """What the object holds. Of a partition what is carried comes first: its offsets are the lower ones."""
        return [_wal_run(partition, run) for partition, run in self.carried] + [
            _wal_run(*pair) for pair in self.runs.values()
        ]

    def sent(self, number: int) -> None:
        """It is object `number` of the stream."""
        self.slot.number = number
        self.slot.tps = (*self.runs, *(partition.tp for partition, _ in self.carried))


def _wal_run(partition: Partition, run: Run) -> WalRun:
    return WalRun(
        partition.tp,
        run.leader_epoch,
        partition.manifest_version,
        run.base_offset,
        Offset(run.next_offset - 1),
        run.max_timestamp_ms,
        run.batches,
    )
