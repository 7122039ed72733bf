"""Fencing a node that was silent for too long: first it is committed that there is no way back, then its stream is
sealed, then it goes. Pure.
"""

from collections.abc import Collection

from bmq.metadata.image import Image
from bmq.metadata.records import FencingBegun, NodeUnregistered, StreamSealed
from bmq.values import NodeId, StreamId
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.heirs import give_to_others
from bmq_controller.machine.placement import Incarnation


def begin_fencing(image: Image, who: Incarnation) -> Decision[bool]:
    """True: the incarnation's stream is to be sealed. A node that is no broker has none and just goes."""
    node_id, broker_epoch = who
    node = image.nodes.get(node_id)
    if node is None or node.broker_epoch != broker_epoch:
        return Decision(False)
    if "broker" not in node.roles:
        return Decision(False, (NodeUnregistered(node_id=node_id, broker_epoch=broker_epoch),))
    if node_id in image.fencing:
        return Decision(True)
    return Decision(True, (FencingBegun(node_id=node_id, broker_epoch=broker_epoch),))


def complete_fencing(image: Image, who: Incarnation, *, end: int, avoid: Collection[NodeId] = ()) -> Decision[bool]:
    """The stream was sealed at `end`: the node goes, and its partitions go to heirs. False where it has gone otherwise
    meanwhile.

    `avoid` are brokers that stop soon.
    """
    node_id, broker_epoch = who
    if image.fencing.get(node_id) != broker_epoch:
        return Decision(False)
    return Decision(
        True,
        (
            StreamSealed(node_id=node_id, broker_epoch=broker_epoch, end=end),
            NodeUnregistered(node_id=node_id, broker_epoch=broker_epoch),
            *give_to_others(image, StreamId(node_id, broker_epoch), end=end, avoid=avoid),
        ),
    )
