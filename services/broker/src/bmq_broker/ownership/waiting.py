"""What waits for partitions that are being opened, in the order in which it came. Pure."""

from collections import deque
from collections.abc import Callable, Hashable

from bmq.errors import BmqError, NotReady
from bmq.fairness.fair_room import FairRoom
from bmq.values import TopicPartition
from bmq_broker.partitions.partition import Partition

Then = Callable[[Partition | BmqError], BmqError | None]
"""Takes the partition, or why it cannot be had; returns what those that wait behind it are to be told instead."""


class Waiting:
    """For the partitions of one broker incarnation: batches of `bytes_max` at most, of one address no more than it
    leaves to others. A larger one never waits: its sender sends it again when the partition is open.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._room = FairRoom(bytes_max)
        self._lines: dict[TopicPartition, deque[tuple[int, Hashable, Then]]] = {}
        self.size_bytes = 0

    def add(self, tp: TopicPartition, size_bytes: int, then: Then, *, address: Hashable) -> None:
        """Behind all that waits for the partition. Raises NotReady where too much waits already."""
        if not self._room.has(size_bytes, address=address):
            raise NotReady(f"{self.size_bytes} bytes wait for partitions that are being opened")
        self._room.take(size_bytes, address=address)
        self._lines.setdefault(tp, deque()).append((size_bytes, address, then))
        self.size_bytes += size_bytes

    def serve(self, tp: TopicPartition, outcome: Partition | BmqError) -> None:
        """Tells all that wait for the partition, in their order; what one of them returns is told to those behind it
        instead: what is to be sent again first must not be overtaken.
        """
        for size_bytes, address, then in self._lines.pop(tp, ()):
            self.size_bytes -= size_bytes
            self._room.give_back(size_bytes, address=address)
            outcome = then(outcome) or outcome

    def end(self, refusal: BmqError) -> None:
        """None of the partitions is opened any more."""
        for tp in list(self._lines):
            self.serve(tp, refusal)
