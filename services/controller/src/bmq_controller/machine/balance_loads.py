"""What the leader knows of the loads of partitions, from what their owners say. Pure; held by the leader beside the
image.

A new owner measures a partition from nothing, and the old one forgets it: for a while nobody says what it takes, and
who believed that would move more and more to a broker that looks idle. So what was said last is *carried* until the new
owner's figure can be trusted.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, NodeRegistered, NodeUnregistered, PartitionChange
from bmq.roles.controller import PartitionLoad
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_controller.machine.placement import Incarnation, living_brokers

CARRY_MS: Final = 30_000
"""How long what was said last counts: owners smooth what they measure over ten seconds, so theirs is nearly all there
by then."""


class KnownLoads:
    """By partition, the bytes written per second. The clock of `now_ms` must not go back: the event loop's."""

    def __init__(self, *, carry_ms: int = CARRY_MS) -> None:
        self._carry_ms = carry_ms
        self._reports: dict[Incarnation, Mapping[TopicPartition, float]] = {}
        """What each broker said last. Replaced and never changed, so that another thread may read a snapshot."""
        self._reporters: dict[TopicPartition, Incarnation] = {}
        """Who said something of a partition last."""
        self._carried: dict[TopicPartition, tuple[float, int]] = {}
        """Bytes per second, and until when they count."""
        self._order: deque[tuple[int, TopicPartition]] = deque()

    def reported(self, who: Incarnation, loads: Sequence[PartitionLoad], now_ms: int) -> None:
        """A broker said what its partitions take; of those that it does not name, next to nothing."""
        # What comes over the wire may be no number.
        report = {load.tp: load.bytes_per_s for load in loads if 0 < load.bytes_per_s < inf}
        for tp, bytes_per_s in self._reports.get(who, {}).items():
            if tp not in report and self._reporters.get(tp) == who:
                del self._reporters[tp]
                self._carry(tp, bytes_per_s, now_ms)
        self._reporters.update(dict.fromkeys(report, who))
        self._reports[who] = report

    def committed(self, records: Iterable[AnyRecord], now_ms: int) -> None:
        """To be called with the records of every entry that the leader commits."""
        for record in records:
            match record:
                case PartitionChange():
                    tp = TopicPartition(TopicId(record.topic_id), record.partition)
                    reporter = self._reporters.get(tp)
                    if reporter is not None:
                        self._carry(tp, self._reports[reporter][tp], now_ms)
                case NodeRegistered() | NodeUnregistered():
                    self._forget(NodeId(record.node_id), now_ms)
                case _:
                    pass

    def knows(self, image: Image, *, silent: Collection[Incarnation] = ()) -> bool:
        """Whether every living broker but those that are `silent` has said something to this leader. Who has not would
        look idle.
        """
        living = ((node.node_id, node.broker_epoch) for node in living_brokers(image))
        return all(who in self._reports or who in silent for who in living)

    def snapshot(self, now_ms: int) -> list[Mapping[TopicPartition, float]]:
        """For `merged`, which takes longer and may run in another thread."""
        while self._order and self._order[0][0] <= now_ms:
            until_ms, tp = self._order.popleft()
            if tp in self._carried and self._carried[tp][1] == until_ms:
                del self._carried[tp]
        return [*self._reports.values(), {tp: bytes_per_s for tp, (bytes_per_s, _) in self._carried.items()}]

    def _carry(self, tp: TopicPartition, bytes_per_s: float, now_ms: int) -> None:
        until_ms = now_ms + self._carry_ms
        known, _ = self._carried.get(tp, (0.0, 0))
        self._carried[tp] = (max(known, bytes_per_s), until_ms)
        self._order.append((until_ms, tp))

    def _forget(self, node_id: NodeId, now_ms: int) -> None:
        for who in [who for who in self._reports if who[0] == node_id]:
            self.reported(who, (), now_ms)
            del self._reports[who]


def merged(snapshot: Sequence[Mapping[TopicPartition, float]]) -> dict[TopicPartition, float]:
    """What each partition takes: for one that is changing hands, the most that anybody says."""
    loads: dict[TopicPartition, float] = {}
    for report in snapshot:
        for tp, bytes_per_s in report.items():
            if bytes_per_s > loads.get(tp, 0.0):
                loads[tp] = bytes_per_s
    return loads
