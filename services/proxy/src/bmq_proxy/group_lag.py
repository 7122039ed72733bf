"""What is asked about groups outside the Kafka protocol: lists, members, committed offsets, and how far behind they are."""

import asyncio
from dataclasses import dataclass
from typing import Any

from bmq.errors import BmqError
from bmq.values import TopicPartition
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.batch_headers import read_header
from bmq.wire.message import Message
from bmq.wire.records import iterate_records
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.calls import Call, Lease
from bmq_proxy.fetch.reader import Read
from bmq_proxy.group_calls import fields_of
from bmq_proxy.handlers.k35_describe_log_dirs import partition_statuses
from bmq_proxy.proxy import Proxy

LOOK_UPS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed offset beside its partition's ends. None: not known now."""

    topic: str
    partition: int
    committed_offset: int
    metadata: str
    log_start: int | None = None
    high_watermark: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None


def own_call(api_key: ApiKey) -> Call:
    """A call that this process makes for itself, in the newest version."""
    return Call(
        api_key=api_key,
        version=SERVED[api_key].version_max,
        correlation_id=0,
        client_id="bmq-admin",
        client_host="/127.0.0.1",
        lease=Lease(MemoryBudget(1), 0),
        arrived=0.0,
    )


async def list_groups(proxy: Proxy) -> list[dict[str, Any]]:
    """The fields of ListGroups, by group id. Raises BmqError."""
    request = Message(states_filter=[], types_filter=[])
    answers = await proxy.coordinators.call_all(ApiKey.LIST_GROUPS, request, own_call(ApiKey.LIST_GROUPS))
    groups = [fields_of(group) for answer in answers for group in fields_of(answer).get("groups") or []]
    return sorted(groups, key=lambda group: str(group["group_id"]))


async def describe_group(proxy: Proxy, group_id: str) -> dict[str, Any]:
    """The fields of DescribeGroups of one group; `error_code` says whether there is one. Raises BmqError."""
    request = Message(groups=[group_id], include_authorized_operations=False)
    reply = await proxy.coordinators.call(group_id, ApiKey.DESCRIBE_GROUPS, request, own_call(ApiKey.DESCRIBE_GROUPS))
    return fields_of(fields_of(reply)["groups"][0])


async def group_offsets(proxy: Proxy, group_id: str) -> list[GroupOffset]:
    """All committed offsets of a group with their lag. Raises BmqError where the coordinator does not answer."""
    group = Message(group_id=group_id, member_id=None, member_epoch=-1, topics=None)
    request = Message(groups=[group], require_stable=False)
    reply = await proxy.coordinators.call(group_id, ApiKey.OFFSET_FETCH, request, own_call(ApiKey.OFFSET_FETCH))
    topics = [fields_of(topic) for topic in fields_of(fields_of(reply)["groups"][0])["topics"]]
    committed = [(topic["name"], fields_of(one)) for topic in topics for one in topic["partitions"]]
    image = proxy.image
    wanted = [(topic, one["partition_index"]) for name, one in committed if (topic := image.topic(name)) is not None]
    statuses = await partition_statuses(proxy, wanted)
    at_once = asyncio.Semaphore(LOOK_UPS_AT_ONCE)

    async def with_lag(name: str, one: dict[str, Any]) -> GroupOffset:
        index, offset = int(one["partition_index"]), int(one["committed_offset"])
        base = GroupOffset(topic=name, partition=index, committed_offset=offset, metadata=one.get("metadata") or "")
        topic = image.topic(name)
        tp = None if topic is None else TopicPartition(topic.topic_id, index)
        status = None if tp is None else statuses.get(tp)
        if tp is None or status is None:
            return base
        next_offset = max(offset, status.log_start)
        lag_records = max(0, status.high_watermark - next_offset)
        async with at_once:
            lag_seconds = await _age_seconds(proxy, tp, next_offset) if lag_records else 0.0
        return GroupOffset(
            topic=name,
            partition=index,
            committed_offset=offset,
            metadata=base.metadata,
            log_start=status.log_start,
            high_watermark=status.high_watermark,
            lag_records=lag_records,
            lag_seconds=lag_seconds,
        )

    return list(await asyncio.gather(*(with_lag(name, one) for name, one in committed)))


async def _age_seconds(proxy: Proxy, tp: TopicPartition, offset: int) -> float | None:
    """How old the record at (or after) an offset is by its timestamp; None where it cannot be read now."""
    result = await proxy.reader.read([Read(tp=tp, offset=offset, max_bytes=1)], min_bytes=0, max_bytes=1, max_wait_ms=0)
    try:
        [found] = result.found
        if found.error is not None or not found.size_bytes:
            return None
        data = b"".join(found.parts)
        timestamp_ms = await asyncio.get_running_loop().run_in_executor(None, _timestamp_at, data, offset)
    except BmqError:
        return None
    finally:
        result.release()
    return None if timestamp_ms is None else max(0.0, (proxy.clock.now_ms() - timestamp_ms) / 1000)


def _timestamp_at(data: bytes, offset: int) -> int | None:
    header = read_header(data)
    if header.is_log_append_time:
        return header.max_timestamp_ms
    return next((record.timestamp_ms for record in iterate_records(data, header) if record.offset >= offset), None)
