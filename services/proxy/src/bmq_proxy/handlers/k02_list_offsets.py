"""ListOffsets, key 2, versions 1 to 11. Exact to the record; -1 latest, -2 earliest, -3 largest timestamp, -4 and -5 as
KIP-405 has them.

Who says that it is a replica is answered as everybody else: kafka-python 3.0 says that it is replica 0, and nothing
above the high watermark is told.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.roles.owner import OffsetForTime
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.patience import STORE, TURN
from bmq_proxy.proxy import Proxy
from bmq_proxy.repeats import is_repeated
from bmq_proxy.topics import find_partition

LOOK_UPS_AT_ONCE = 64
READ_COMMITTED = 1


def route(proxy: Proxy) -> Route:
    """Serves ListOffsets: offsets by time, and where partitions begin and end."""
    return plain(proxy, ApiKey.LIST_OFFSETS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """One look-up per partition; one that is named twice is refused."""
    committed = request.isolation_level == READ_COMMITTED

    async def look_up(one: tuple[str, Any]) -> dict[str, Any]:
        name, asked = one
        if is_repeated(asked):
            return _failed(asked, int(ErrorCode.invalid_request))
        try:
            return await _look_up(proxy, call, name, asked, committed=committed)
        except BmqError as error:
            return _failed(asked, code_for(error))

    wanted = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
    found = iter(await proxy.bulk.each(call, look_up, wanted, at_once=LOOK_UPS_AT_ONCE))
    return {
        "topics": [
            {"name": topic.name, "partitions": [next(found) for _ in topic.partitions]} for topic in request.topics
        ]
    }


async def _look_up(proxy: Proxy, call: Call, name: str, asked: Any, *, committed: bool) -> dict[str, Any]:
    tp = find_partition(proxy.image, name, asked.partition_index)
    owner, epoch = proxy.owner_for(tp), asked.current_leader_epoch

    def ask() -> Awaitable[OffsetForTime]:
        return owner.offset_for_time(
            tp, asked.timestamp, current_leader_epoch=epoch, committed=committed, address=call.client_host
        )

    is_by_time = asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP
    found = await proxy.patience.answered(
        call, lambda: proxy.bulk.looked_up(call, ask), lack=TURN if is_by_time else STORE
    )
    return {
        "partition_index": asked.partition_index,
        "error_code": 0,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


def _failed(asked: Any, code: int) -> dict[str, Any]:
    return {
        "partition_index": asked.partition_index,
        "error_code": code,
        "timestamp": -1,
        "offset": -1,
        "leader_epoch": -1,
    }
