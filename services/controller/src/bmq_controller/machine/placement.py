"""Which broker gets a partition: the one that owns the fewest, by count. Pure.

A move copies nothing, so a first placement need not be a good one for ever; it must only be fair and deterministic.
"""

import heapq
from collections.abc import Collection, Mapping

from bmq.metadata.image import Image, Node
from bmq.values import BrokerEpoch, NodeId

Incarnation = tuple[NodeId, BrokerEpoch]
"""One start of a node."""


def living_broker(image: Image, node_id: NodeId) -> Incarnation | None:
    """The broker of this id where it is registered and not being fenced."""
    node = image.nodes.get(node_id)
    if node is None or "broker" not in node.roles or node_id in image.fencing:
        return None
    return node_id, node.broker_epoch


class Placement:
    """Places partitions one by one on the brokers of an image, counting what it has placed. Lives for one decision."""

    def __init__(self, brokers: Collection[Node], owned_counts: Mapping[NodeId, int]) -> None:
        self._epochs = {node.node_id: node.broker_epoch for node in brokers}
        self._heap = [(owned_counts.get(node.node_id, 0), node.node_id) for node in brokers]
        heapq.heapify(self._heap)

    @staticmethod
    def on(image: Image, *, without: Collection[NodeId] = (), cordoned: bool = False) -> "Placement":
        """Over the living brokers, `without` those that are leaving; cordoned ones only where `cordoned` says so."""
        brokers = [
            node
            for node_id, node in image.nodes.items()
            if living_broker(image, node_id) is not None and node_id not in without and (cordoned or node_id not in image.cordoned)
        ]
        return Placement(brokers, image.owned_counts)

    @staticmethod
    def for_heirs(image: Image, *, without: Collection[NodeId]) -> "Placement":
        """For partitions whose owner is gone: on cordoned brokers, too, where there are no others."""
        placement = Placement.on(image, without=without)
        return placement if placement else Placement.on(image, without=without, cordoned=True)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def next(self) -> Incarnation | None:
        """The broker of one more partition: the fewest partitions, then the lowest id. None where no broker is there."""
        if not self._heap:
            return None
        count, node_id = self._heap[0]
        heapq.heapreplace(self._heap, (count + 1, node_id))
        return node_id, self._epochs[node_id]
