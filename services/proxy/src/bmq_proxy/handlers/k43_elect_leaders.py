"""ElectLeaders, key 43, versions 0 to 2. Nothing is ever to be elected: a partition has one owner, and who owns it is
the controller's to say.

A partition with an owner needs no election. One without has no broker that may own it, and gets one when such a broker
comes. Of all partitions (none are named), those that need no election are left out, as Kafka does.
"""

from functools import partial
from typing import Any, Final

from bmq.metadata.image import Topic
from bmq.naming.names import shown
from bmq.values import NO_NODE
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy

PREFERRED = 0
UNCLEAN = 1
TOPIC_COUNTS: Final = 10
"""A topic of which all partitions are looked at counts as so many elements."""


def route(proxy: Proxy) -> Route:
    """Serves ElectLeaders: says which partitions need no election, and elects nobody."""
    return plain(proxy, ApiKey.ELECT_LEADERS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Partition by partition."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return {"error_code": int(ErrorCode.invalid_request), "replica_election_results": []}
    unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        results = await _of_all(proxy, call, unclean=unclean)
    else:
        image, results, pace = proxy.image, [], proxy.bulk.pace(call)
        for one in request.topic_partitions:
            outcomes = []
            for index in one.partitions:
                await pace.step()
                outcomes.append(_outcome(image.topic(one.topic), one.topic, index, unclean=unclean))
            results.append(_result(one.topic, outcomes))
    return {"error_code": 0, "replica_election_results": results}


async def _of_all(proxy: Proxy, call: Call, *, unclean: bool) -> list[dict[str, Any]]:
    """Those without an owner, which are first counted: that is what an answer is admitted by."""
    topics = proxy.image.topics.values()  # of an image, which stays as it is: not one list of them for each that asks
    count = 0
    await proxy.bulk.turn(call)
    async for topic in proxy.bulk.paced(call, topics, each=TOPIC_COUNTS):
        count += sum(meta.node_id == NO_NODE for meta in topic.partitions)
    await proxy.bulk.built(call, count)
    results = []
    async for topic in proxy.bulk.paced(call, topics, each=TOPIC_COUNTS):
        ownerless = [index for index, meta in enumerate(topic.partitions) if meta.node_id == NO_NODE]
        if ownerless:
            outcomes = [_outcome(topic, topic.name, index, unclean=unclean) for index in ownerless]
            results.append(_result(topic.name, outcomes))
    return results


def _result(name: str, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"topic": name, "partition_result": outcomes}


def _outcome(topic: Topic | None, name: str, index: int, *, unclean: bool) -> dict[str, Any]:
    if topic is None or not 0 <= index < len(topic.partitions):
        why = f"There is no partition {index} of topic {shown(name)}"
        return _failed(index, ErrorCode.unknown_topic_or_partition, why)
    meta = topic.partitions[index]
    if meta.node_id != NO_NODE:
        return _failed(
            index,
            ErrorCode.election_not_needed,
            f"Broker {meta.node_id} owns the partition, and the object store has every record of it",
        )
    code = ErrorCode.eligible_leaders_not_available if unclean else ErrorCode.preferred_leader_not_available
    return _failed(
        index,
        code,
        "No broker that may own the partition is registered: start one; it gets the partition at once, and loses "
        "nothing",
    )


def _failed(index: int, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"partition_id": index, "error_code": int(code), "error_message": message}
