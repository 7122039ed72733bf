"""Which broker gets a partition: the one that owns the fewest, by count. Pure.

A move copies nothing, so a first placement need not be a good one for ever; it must only be fair and deterministic.
"""

import heapq
from collections.abc import Collection, Mapping

from bmq.metadata.image import Image, Node
from bmq.values import BrokerEpoch, NodeId


class Placement:
    """Places partitions one by one on the brokers of an image, counting what it has placed. Lives for one decision."""

    def __init__(self, brokers: Collection[Node], owned_counts: Mapping[NodeId, int]) -> None:
        self._epochs = {node.node_id: node.broker_epoch for node in brokers}
        self._heap = [(owned_counts.get(node.node_id, 0), node.node_id) for node in brokers]
        heapq.heapify(self._heap)

    @staticmethod
    def on(image: Image, *, without: NodeId | None = None) -> "Placement":
        """Over the registered brokers, `without` one that is leaving."""
        return Placement([node for node in image.nodes.values() if "broker" in node.roles and node.node_id != without], image.owned_counts)

    def next(self) -> tuple[NodeId, BrokerEpoch] | None:
        """The broker of one more partition: the fewest partitions, then the lowest id. None where no broker is there."""
        if not self._heap:
            return None
        count, node_id = self._heap[0]
        heapq.heapreplace(self._heap, (count + 1, node_id))
        return node_id, self._epochs[node_id]
