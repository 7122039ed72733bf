"""Carrying forward: what a quiet partition has in old WAL objects is written once more into a new one, instead of
becoming a segment.

A segment and a manifest version for each of thousands of partitions whenever the WAL has become long cost many times
the WAL's own requests; their few bytes, again, cost none. Owns who is carried: small tails, as far as the credit goes
that appended batches earn. What grows or comes often is rolled (bmq_broker.segments.rolling). A large tail that cannot
be rolled is carried in parts, each when the one before it is durable: an object with all of it would never be in a slow
store before the time of its create is over.
"""

from collections.abc import Iterable
from typing import Final

from bmq_broker.metrics import CARRIED_BYTES
from bmq_broker.partitions.partition import Partition
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.commit import GroupCommit

PARTITIONS_AT_ONCE: Final = 500
"""So many are carried in one turn of the event loop: some milliseconds."""


class Carrier:
    """Carries what quiet partitions of one broker incarnation have in old WAL objects, and keeps the credit."""

    def __init__(self, commit: GroupCommit, settings: BrokerSettings) -> None:
        self._commit = commit
        self._share = settings.carry_share
        self._bytes_max = settings.carry_bytes_max
        self._parts = settings.carry_parts
        self._credit_bytes_max = self._credit_bytes = settings.wal_budget_bytes * settings.carry_share
        self._earned_bytes = 0
        self._under_way: set[Partition] = set()

    @property
    def under_way(self) -> int:
        """Small tails that are not durable yet where they are carried to. What is carried whole takes long, and others
        do not wait for it.
        """
        return len(self._under_way)

    def carry(self, partition: Partition) -> bool:
        """Whether the partition's tail is on its way to a new WAL object; False: it is to be rolled."""
        if partition.carrying:
            return True
        self._earn()
        size_bytes = partition.tail.durable_bytes
        if not 0 < size_bytes <= min(self._bytes_max, self._credit_bytes / self._parts):
            return False
        if not partition.begin_carrying() or not self._carry_next(partition):
            return False
        self._under_way.add(partition)
        self._credit_bytes -= size_bytes
        return True

    def carry_whole(self, partition: Partition) -> bool:
        """The same for one that cannot be rolled, whatever its size: nothing else takes it out of the WAL objects that
        it pins.
        """
        if partition.carrying:
            return True
        return partition.begin_carrying() and self._carry_next(partition)

    def carried(self, partitions: Iterable[Partition]) -> None:
        """Copies of parts of these are durable: the next parts go."""
        for partition in partitions:
            if not self._carry_next(partition):
                self._under_way.discard(partition)

    def _carry_next(self, partition: Partition) -> bool:
        carried_bytes = self._commit.carry(partition)
        CARRIED_BYTES.inc(carried_bytes)
        return carried_bytes > 0

    def _earn(self) -> None:
        earned_bytes = self._commit.sent_bytes - self._earned_bytes
        self._earned_bytes = self._commit.sent_bytes
        self._credit_bytes = min(self._credit_bytes_max, self._credit_bytes + earned_bytes * self._share)
