"""Which brokers new partitions go to where whoever creates them names nodes. Pure.

Of the nodes that are named for a partition the first broker that takes partitions gets it: it is where a client that
knows brokers wants the leader. Where only proxies are named, which is all that clients see of most clusters, bmq
chooses: every proxy serves every partition.
"""

from collections.abc import Sequence

from bmq.errors import InvalidReplicaAssignment
from bmq.metadata.assignments import Assignments, brokers_among, check_assignments
from bmq.metadata.image import Image
from bmq.values import NodeId
from bmq_controller.machine.placement import Placement

Wanted = Sequence[NodeId | None] | None
"""For each new partition the broker that is to own it; None: whichever. None for all: nothing was asked for."""


def wanted_brokers(image: Image, placement: Placement, assignments: Assignments | None, *, pool: str) -> Wanted:
    """Raises InvalidReplicaAssignment where an assignment cannot be, or none of its brokers takes partitions of topics
    of this pool.
    """
    if assignments is None:
        return None
    check_assignments(image, assignments)
    return [_wanted(image, placement, node_ids, pool=pool) for node_ids in assignments]


def _wanted(image: Image, placement: Placement, node_ids: Sequence[int], *, pool: str) -> NodeId | None:
    brokers = brokers_among(image, node_ids)
    if not brokers:
        return None
    for broker in brokers:
        if placement.takes(pool, NodeId(broker)):
            return NodeId(broker)
    raise InvalidReplicaAssignment(
        f"None of the brokers {', '.join(map(str, brokers))} takes partitions of this topic: they are cordoned, "
        "stop soon, or are in another pool; name others, or leave the assignment out"
    )
