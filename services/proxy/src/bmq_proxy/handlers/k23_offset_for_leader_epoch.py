"""OffsetForLeaderEpoch, key 23, versions 2 to 4. How consumers notice that what they read was cut off."""

from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_partition

LOOK_UPS_AT_ONCE = 64


def route(proxy: Proxy) -> Route:
    """Serves OffsetForLeaderEpoch: where a leader epoch ends, as the owner of a partition knows it."""
    return plain(proxy, ApiKey.OFFSET_FOR_LEADER_EPOCH, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """One look-up per partition."""

    async def look_up(one: tuple[str, Any]) -> dict[str, Any]:
        return await _look_up(proxy, call, *one)

    wanted = [(topic.topic, asked) for topic in request.topics for asked in topic.partitions]
    found = iter(await proxy.bulk.each(call, look_up, wanted, at_once=LOOK_UPS_AT_ONCE))
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [next(found) for _ in topic.partitions]} for topic in request.topics
        ]
    }


async def _look_up(proxy: Proxy, call: Call, name: str, asked: Any) -> dict[str, Any]:
    try:
        tp = find_partition(proxy.image, name, asked.partition)
        owner, current_epoch = proxy.owner_for(tp), asked.current_leader_epoch
        ask = partial(owner.epoch_end, tp, asked.leader_epoch, current_leader_epoch=current_epoch)
        end = await proxy.patience.answered(call, lambda: proxy.bulk.looked_up(call, ask))
    except BmqError as error:
        return {"error_code": code_for(error), "partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    return {
        "error_code": 0,
        "partition": asked.partition,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
