"""Manual assignments as CreateTopics and CreatePartitions have them: what may be asked for. Pure.

An assignment names nodes for each partition, the wanted leader first. Clients know two kinds of them: the proxies that
Metadata names as the brokers, and the brokers. A partition has one owner and no followers, so of a list one broker is
taken, and proxies own nothing: this checks what Kafka checks, and what becomes of it is the controller's
(docs/decisions/0013-reassignment-and-pools.md).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from bmq.errors import InvalidReplicaAssignment
from bmq.metadata.image import Image
from bmq.values import NodeId

BROKER: Final = "broker"
SERVING: Final = frozenset({BROKER, "proxy"})
_NAMED_MAX: Final = 10
"""How many nodes a sentence names."""

Assignments = Sequence[Sequence[int]]
"""For each new partition, in order, the ids of its nodes."""


def check_assignments(image: Image, assignments: Assignments) -> None:
    """Raises InvalidReplicaAssignment where Kafka does: no nodes, one twice, one that is not there, lists of different
    lengths.
    """
    for partition, node_ids in enumerate(assignments):
        if not node_ids:
            raise InvalidReplicaAssignment(
                f"The assignment of the partition {partition} (of those that are new) names no broker: name one"
            )
        if len(node_ids) != len(assignments[0]):
            raise InvalidReplicaAssignment(
                f"The assignment names {len(assignments[0])} brokers for the first partition and {len(node_ids)} "
                "for another: name as many for each of them"
            )
        known: set[int] = set()
        for node_id in node_ids:
            if node_id in known:
                raise InvalidReplicaAssignment(
                    f"The assignment names the broker {node_id} twice for one partition: name it once"
                )
            if not _serves(image, node_id):
                raise InvalidReplicaAssignment(
                    f"The assignment names the broker {node_id}, which is not registered: {_serving(image)}"
                )
            known.add(node_id)


def brokers_among(image: Image, node_ids: Iterable[int]) -> list[int]:
    """Those that can own partitions, in order."""
    return [
        node_id
        for node_id in node_ids
        if (node := image.nodes.get(NodeId(node_id))) is not None and BROKER in node.roles
    ]


def _serves(image: Image, node_id: int) -> bool:
    node = image.nodes.get(NodeId(node_id))
    return node is not None and not SERVING.isdisjoint(node.roles)


def _serving(image: Image) -> str:
    ids = sorted(node_id for node_id in image.nodes if _serves(image, node_id))
    if not ids:
        return "none is: start one"
    return f"name one of {', '.join(map(str, ids[:_NAMED_MAX]))}" + (", …" if len(ids) > _NAMED_MAX else "")
