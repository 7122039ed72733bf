"""ListOffsets, key 2, versions 1 to 11. Exact to the record; -1 latest, -2 earliest, -3 largest timestamp, -4 and -5 as KIP-405 has them.

Who says that it is a replica is answered as everybody else: kafka-python 3.0 says that it is replica 0, and nothing above the high watermark is told.
"""

import asyncio
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import code_for
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_partition

LOOK_UPS_AT_ONCE = 64
READ_COMMITTED = 1


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(ApiKey.LIST_OFFSETS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """One look-up per partition."""
    at_once = asyncio.Semaphore(LOOK_UPS_AT_ONCE)

    async def look_up(name: str, asked: Any) -> dict[str, Any]:
        async with at_once:
            try:
                return await _look_up(proxy, name, asked, committed=request.isolation_level == READ_COMMITTED)
            except BmqError as error:
                return _failed(asked, code_for(error))

    topics = []
    for topic in request.topics:
        partitions = await asyncio.gather(*(look_up(topic.name, asked) for asked in topic.partitions))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _look_up(proxy: Proxy, name: str, asked: Any, *, committed: bool) -> dict[str, Any]:
    tp = find_partition(proxy.image, name, asked.partition_index)
    found = await proxy.owner_for(tp).offset_for_time(tp, asked.timestamp, current_leader_epoch=asked.current_leader_epoch, committed=committed)
    return {
        "partition_index": asked.partition_index,
        "error_code": 0,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _failed(asked: Any, code: int) -> dict[str, Any]:
    return {"partition_index": asked.partition_index, "error_code": code, "timestamp": -1, "offset": -1, "leader_epoch": -1}
