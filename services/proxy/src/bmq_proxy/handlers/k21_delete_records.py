"""DeleteRecords, key 21, versions 0 to 2."""

import asyncio
from functools import partial
from typing import Any

from bmq.errors import BmqError, InvalidRequest, PolicyViolation
from bmq.naming.names import is_internal, shown
from bmq.values import Offset
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.repeats import is_repeated
from bmq_proxy.topics import find_partition

TIMEOUT_MS_MAX = 300_000
DELETIONS_AT_ONCE = 64


def route(proxy: Proxy) -> Route:
    """Serves DeleteRecords: raises the log starts of partitions."""
    return plain(proxy, ApiKey.DELETE_RECORDS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Durable when answered; what the owner does not finish in time says so, and may still happen. A time-out below the
    least one counts as it.
    """
    until_s = (
        proxy.loop.time() + min(max(request.timeout_ms, proxy.settings.write_timeout_ms_min), TIMEOUT_MS_MAX) / 1000
    )

    async def delete(one: tuple[str, Any]) -> dict[str, Any]:
        return await _delete(proxy, call, *one, until_s)

    wanted = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
    done = iter(await proxy.bulk.each(call, delete, wanted, at_once=DELETIONS_AT_ONCE))
    return {
        "topics": [
            {"name": topic.name, "partitions": [next(done) for _ in topic.partitions]} for topic in request.topics
        ]
    }


async def _delete(proxy: Proxy, call: Call, name: str, asked: Any, until_s: float) -> dict[str, Any]:
    low_watermark, code = -1, 0
    try:
        if is_internal(name):
            raise PolicyViolation(f"{name} is bmq's own")
        if is_repeated(asked):
            raise InvalidRequest(f"The request names partition {asked.partition_index} of {shown(name)} more than once")
        tp = find_partition(proxy.image, name, asked.partition_index)
        async with asyncio.timeout_at(until_s):
            low_watermark = await proxy.bulk.deleted(
                call, lambda: proxy.owner_for(tp).delete_records(tp, Offset(asked.offset))
            )
    except TimeoutError:
        code = int(ErrorCode.request_timed_out)
    except BmqError as error:
        code = int(code_for(error))
    return {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": code}
