"""AlterPartitionReassignments, key 45, versions 0 and 1. A reassignment is a planned move: it copies nothing and is
done in a moment.

A partition has one owner, so one broker is to be named. Metadata names proxies as the brokers: the one that stands for
a partition may be named for it, which changes nothing; another one is refused, with the brokers that may
(docs/decisions/0013-reassignment-and-pools.md).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bmq.errors import BmqError, InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest
from bmq.metadata.image import Image
from bmq.naming.names import shown
from bmq.roles.controller import Reassignment
from bmq.values import NO_NODE, NodeId, TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import controller_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.images import image_with
from bmq_proxy.led import when_led
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import BROKER_ROLE, Proxies
from bmq_proxy.topics import find_partition, proxies_of

_NAMED_MAX = 10
"""How many brokers a sentence names."""

Key = tuple[str, int]
Outcomes = dict[Key, BmqError | None]


def route(proxy: Proxy) -> Route:
    """Serves AlterPartitionReassignments: begins planned moves, and takes them back."""
    return plain(proxy, ApiKey.ALTER_PARTITION_REASSIGNMENTS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Partition by partition; one that occurs twice is refused. Answered once this node knows that the moves have
    begun.
    """
    image = proxy.image
    proxies = proxies_of(proxy, image, call)
    asked = [((topic.name, one.partition_index), one.replicas) for topic in request.topics for one in topic.partitions]
    outcomes: Outcomes = {}
    changes: dict[Key, Reassignment] = {}
    pace = proxy.bulk.pace(call)
    for key, replicas in asked:
        await pace.step()
        if key in outcomes:
            outcomes[key] = InvalidRequest(
                f"The request names partition {key[1]} of topic {shown(key[0])} more than once"
            )
            changes.pop(key, None)
            continue
        outcomes[key] = None
        try:
            change = _change(proxies, image, key, replicas)
        except BmqError as error:
            outcomes[key] = error.with_traceback(None)  # which has these outcomes
        else:
            if change is not None:
                changes[key] = change
    await _reassign(proxy, call, changes, outcomes, timeout_ms=request.timeout_ms)
    answers: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in request.topics}
    for (name, partition), outcome in outcomes.items():
        await pace.step()
        answers[name].append(_outcome(partition, outcome))
    return {
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "error_code": 0,
        "error_message": None,
        "responses": [{"name": name, "partitions": partitions} for name, partitions in answers.items()],
    }


def _change(proxies: Proxies, image: Image, key: Key, replicas: Sequence[int] | None) -> Reassignment | None:
    """What the controller is to do; None: what is asked for is so already. Raises RequestError."""
    tp = find_partition(image, *key)
    if replicas is None:
        return Reassignment(tp=tp, to=None)
    if not replicas:
        raise InvalidReplicaAssignment("No broker is named: name the one that is to own the partition")
    if len(replicas) != 1:
        raise InvalidReplicationFactor(
            f"{len(replicas)} brokers are named: name one; a partition has one owner and no followers, the object "
            "store replicates"
        )
    [node_id] = replicas
    node = image.nodes.get(NodeId(node_id))
    is_broker = node is not None and BROKER_ROLE in node.roles
    if node_id in proxies.by_id and not is_broker:
        owner = image.topics[tp.topic_id].partitions[tp.partition].node_id
        standing = proxies.standing_for(tp, owner=owner)
        if standing is not None and standing.node_id == node_id:
            return None
        raise InvalidReplicaAssignment(
            f"Node {node_id} is a proxy: which one stands for a partition follows from all of them, and it owns "
            f"nothing; {_brokers(image)}"
        )
    return Reassignment(tp=tp, to=NodeId(node_id))


async def _reassign(
    proxy: Proxy, call: Call, changes: Mapping[Key, Reassignment], outcomes: Outcomes, *, timeout_ms: int
) -> None:
    """Has the changes begun, and notes which were not."""
    if not changes:
        return
    reassign = partial(proxy.controller.reassign, list(changes.values()))
    try:
        refusals = await when_led(proxy, call, reassign, timeout_ms=timeout_ms)
    except BmqError as error:
        outcomes.update(dict.fromkeys(changes, error.with_traceback(None)))
        return
    outcomes.update(zip(changes, refusals, strict=True))
    begun = [change for change, refusal in zip(changes.values(), refusals, strict=True) if refusal is None]

    def shown(image: Image) -> bool | None:
        return True if all(_is_shown(image, change.tp, change.to) for change in begun) else None

    await image_with(proxy.metadata, shown)


def _is_shown(image: Image, tp: TopicPartition, to: NodeId | None) -> bool:
    meta = image.partition(tp)
    if meta is None:
        return True
    return meta.moving_to in (NO_NODE, meta.node_id) if to is None else to in (meta.node_id, meta.moving_to)


def _brokers(image: Image) -> str:
    ids = sorted(node.node_id for node in image.nodes.values() if BROKER_ROLE in node.roles)
    if not ids:
        return "no broker is registered: start one"
    return f"name a broker: {', '.join(map(str, ids[:_NAMED_MAX]))}" + (", …" if len(ids) > _NAMED_MAX else "")


def _outcome(partition: int, error: BmqError | None) -> dict[str, Any]:
    if error is None:
        return {"partition_index": partition, "error_code": int(ErrorCode.none), "error_message": None}
    return {"partition_index": partition, "error_code": controller_code(error), "error_message": str(error)}
