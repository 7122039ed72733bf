"""FindCoordinator, key 10, versions 0 to 6. Missing: transactions and share groups (refused with a reason).

A group's coordinator is the proxy that stands for its partition of `__consumer_offsets`; like every proxy it forwards
to the broker that has it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.metadata.image import Topic
from bmq.values import TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies
from bmq_proxy.topics import proxies_of
from bmq_proxy.transactions import TRANSACTION_REFUSED

GROUP = 0
TRANSACTION = 1
_TYPES = {TRANSACTION: "transactions are not served", 2: "share groups are not served"}
_SEVERAL_FROM = 4


def route(proxy: Proxy) -> Route:
    """Serves FindCoordinator: which proxy stands for a group's partition of `__consumer_offsets`."""
    return plain(proxy, ApiKey.FIND_COORDINATOR, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Any) -> Reply:
    """One coordinator, or from version 4 on one per key."""
    keys = request.coordinator_keys if call.version >= _SEVERAL_FROM else [request.key]
    coordinators = await _coordinators(proxy, call, keys, request.key_type)
    if call.version >= _SEVERAL_FROM:
        return {"coordinators": coordinators}
    return {name: value for name, value in coordinators[0].items() if name != "key"}


async def _coordinators(proxy: Proxy, call: Call, keys: Sequence[str], key_type: int) -> list[dict[str, Any]]:
    if key_type != GROUP:
        reason = f"Key type {key_type}: {_TYPES.get(key_type, 'unknown')} by this version of bmq"
        code = int(ErrorCode.invalid_request)
        if key_type == TRANSACTION:
            proxy.tell(TRANSACTION_REFUSED, client=call.client_id)
            code = _refusal_of_transactions(call.version)
        return [_refused(key, code, reason) for key in keys]
    try:
        topic = await proxy.coordinators.offsets_topic(call)
    except BmqError as error:
        return [_refused(key, coordinator_code(error), str(error)) for key in keys]
    proxies = proxies_of(proxy, proxy.image, call)
    return [
        _found(key, topic, proxy.coordinators.partition_of(key, topic), proxies)
        async for key in proxy.bulk.paced(call, keys)
    ]


def _refusal_of_transactions(version: int) -> int:
    """What clients do not ask again: librdkafka, by versions below 4, goes on for ever after every code but the
    authorisation's.
    """
    return int(
        ErrorCode.unsupported_version if version >= _SEVERAL_FROM else ErrorCode.transactional_id_authorization_failed
    )


def _found(key: str, topic: Topic, index: int, proxies: Proxies) -> dict[str, Any]:
    found = proxies.standing_for(TopicPartition(topic.topic_id, index), owner=topic.partitions[index].node_id)
    if found is None:
        return _refused(
            key,
            ErrorCode.coordinator_not_available,
            "No proxy has a known address of this listener yet: look at advertised_listeners",
        )
    return {
        "key": key,
        "node_id": found.node_id,
        "host": found.host,
        "port": found.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _refused(key: str, code: int, message: str) -> dict[str, Any]:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}
