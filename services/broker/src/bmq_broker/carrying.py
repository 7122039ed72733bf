"""Carrying forward: what a quiet partition has in old WAL objects is written once more into a new one, instead of becoming a segment.

A segment and a manifest version for each of thousands of partitions whenever the WAL has become long cost many times the WAL's own requests;
their few bytes, again, cost none. Owns who is carried: small tails, as far as the credit goes that appended batches earn. What grows or comes
often is rolled (bmq_broker.rolling).
"""

from typing import Final

from bmq_broker.commit import GroupCommit
from bmq_broker.metrics import CARRIED_BYTES
from bmq_broker.partitions.partition import Partition
from bmq_broker.settings import BrokerSettings

PARTITIONS_AT_ONCE: Final = 500
"""So many are carried in one turn of the event loop: some milliseconds."""


class Carrier:
    """Of one broker incarnation."""

    def __init__(self, commit: GroupCommit, settings: BrokerSettings) -> None:
        self._commit = commit
        self._share = settings.carry_share
        self._bytes_max = settings.carry_bytes_max
        self._parts = settings.carry_parts
        self._credit_bytes_max = self._credit_bytes = settings.wal_budget_bytes * settings.carry_share
        self._earned_bytes = 0
        self.under_way = 0
        """Partitions whose copies are not durable yet."""

    def carry(self, partition: Partition) -> bool:
        """Whether the partition's tail is on its way to a new WAL object; False: it is to be rolled."""
        if partition.carrying:
            return True
        self._earn()
        size_bytes = partition.tail.durable_bytes
        if not 0 < size_bytes <= min(self._bytes_max, self._credit_bytes / self._parts):
            return False
        carried_bytes = self._commit.carry(partition)
        if not carried_bytes:
            return False
        self.under_way += 1
        self._credit_bytes -= carried_bytes
        CARRIED_BYTES.inc(carried_bytes)
        return True

    def carry_whole(self, partition: Partition) -> bool:
        """The same for one that cannot be rolled, whatever its size: nothing else takes it out of the WAL objects that it pins."""
        if partition.carrying:
            return True
        carried_bytes = self._commit.carry(partition)
        if not carried_bytes:
            return False
        self.under_way += 1
        CARRIED_BYTES.inc(carried_bytes)
        return True

    def _earn(self) -> None:
        earned_bytes = self._commit.sent_bytes - self._earned_bytes
        self._earned_bytes = self._commit.sent_bytes
        self._credit_bytes = min(self._credit_bytes_max, self._credit_bytes + earned_bytes * self._share)
