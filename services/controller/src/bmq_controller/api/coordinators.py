"""What the API asks of groups' coordinators: the owners of the partitions of `__consumer_offsets`, reached as a proxy
reaches them.

Nothing is created here: where no group has ever been, there is none.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bmq.errors import BmqError
from bmq.metadata.image import Topic
from bmq.naming.group_partition import partition_of_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import TOPIC_CONSUMERS, Caller, Owner, PartitionStatus
from bmq.storage.durable import together
from bmq.values import TopicPartition
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Fields, Message
from bmq_controller.api.paging import Page, page
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.machine.routes import Consumers

CALLS_AT_ONCE: Final = 16
LOOK_UPS_AT_ONCE: Final = 8
OFFSETS_PER_TURN: Final = 500
"""A group's offsets are looked at so many at a time."""
GROUPS_NAMED_MAX: Final = 10
"""So many of those that consume a topic in a lane; the others are counted."""
CONSUMERS_PATIENCE_S: Final = 5.0
"""For a coordinator, where others have said theirs."""
_CLIENT_ID: Final = "bmq-admin"
_NO_GROUP_STATES: Final = ("Dead", "")


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


class GroupListed(NamedTuple):
    """As a coordinator lists it."""

    group_id: str
    state: str
    protocol_type: str


async def list_groups(sources: ApiSources) -> list[GroupListed]:
    """Those of all coordinators. Raises BmqError, Refused where one cannot answer."""
    topic = sources.image.topic(CONSUMER_OFFSETS)
    if topic is None:
        return []
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)

    async def ask(partition: int) -> list[GroupListed]:
        async with at_once:
            answer = await _ask(
                sources, topic, partition, ApiKey.LIST_GROUPS, Message(states_filter=[], types_filter=[])
            )
            _check(answer.get("error_code", 0))
            return await in_thread(lambda: [_listed(group) for group in answer.get("groups") or []])

    answers = await together(ask(partition) for partition in range(len(topic.partitions)))
    return [group for answer in answers for group in answer]


def _listed(group: Fields) -> GroupListed:
    found = fields_of(group)
    return GroupListed(found["group_id"], found.get("group_state") or "", found.get("protocol_type") or "")


async def topic_consumers(sources: ApiSources, topic: str, lanes: Mapping[str, int]) -> dict[str, Consumers]:
    """Which groups with members consume the topic in each of these lanes, given with their numbers; "" and 0: the base.
    What a coordinator does not answer is left out, and said to be.
    """
    offsets = sources.image.topic(CONSUMER_OFFSETS)
    if offsets is None:
        return dict.fromkeys(lanes, Consumers())
    at_once = asyncio.Semaphore(CALLS_AT_ONCE)
    asked = [{"name": name, "number": number} for name, number in lanes.items()]

    async def ask(partition: int) -> list[dict[str, Any]] | None:
        request = Message(topic=topic, lanes=asked, named_max=GROUPS_NAMED_MAX)
        try:
            async with at_once, asyncio.timeout(CONSUMERS_PATIENCE_S):
                answer = await _ask(sources, offsets, partition, TOPIC_CONSUMERS, request)
        except (BmqError, TimeoutError):
            return None
        return None if answer["error_code"] else [fields_of(one) for one in answer["lanes"]]

    answers = await together(ask(partition) for partition in range(len(offsets.partitions)))
    groups: dict[str, list[str]] = {name: [] for name in lanes}
    counts: Counter[str] = Counter()
    for said in (one for answer in answers if answer is not None for one in answer):
        if said["lane"] in groups:
            groups[said["lane"]] += said["groups"]
            counts[said["lane"]] += said["count"]
    is_known = None not in answers
    return {
        name: Consumers(groups=sorted(found)[:GROUPS_NAMED_MAX], count=counts[name], is_known=is_known)
        for name, found in groups.items()
    }


async def describe_group(
    sources: ApiSources, group_id: str, *, limit: int, after: str | None
) -> tuple[dict[str, Any], Page[GroupOffset]]:
    """The fields of DescribeGroups, and a page of its committed offsets with their lag. Raises BmqError, Refused (also
    where there is no such group).
    """
    request = Message(groups=[group_id], include_authorized_operations=False)
    reply = await _ask_about(sources, group_id, ApiKey.DESCRIBE_GROUPS, request)
    found = fields_of(reply["groups"][0])
    code = found.get("error_code", 0)
    if code != ErrorCode.group_id_not_found:
        _check(code)
    offsets = await _offsets(sources, group_id, limit=limit, after=after)
    if not offsets.items and after is None and (code or (found.get("group_state") or "") in _NO_GROUP_STATES):
        raise _no_such_group()
    return found, offsets


async def delete_group(sources: ApiSources, group_id: str) -> None:
    """Deletes a group that has no members, with its offsets. Raises as `describe_group`."""
    reply = await _ask_about(sources, group_id, ApiKey.DELETE_GROUPS, Message(groups_names=[group_id]))
    _check(fields_of(reply["results"][0]).get("error_code", 0))


async def partition_statuses(sources: ApiSources, tps: list[TopicPartition]) -> dict[TopicPartition, PartitionStatus]:
    """What the owners say of these partitions, one question per owner; those of an owner that does not answer are left
    out.
    """
    shares: dict[int, tuple[Owner, list[TopicPartition]]] = {}
    for tp in tps:
        try:
            owner = sources.owner_for(tp)
        except BmqError:
            continue
        shares.setdefault(id(owner), (owner, []))[1].append(tp)

    async def ask(owner: Owner, theirs: list[TopicPartition]) -> list[PartitionStatus]:
        try:
            return await owner.status(theirs)
        except BmqError:
            return []

    answers = await together(ask(owner, theirs) for owner, theirs in shares.values())
    return {status.tp: status for answer in answers for status in answer}


def fields_of(reply: Fields) -> dict[str, Any]:
    """A reply's fields."""
    return dict(reply if isinstance(reply, Mapping) else reply.__dict__)


async def _offsets(sources: ApiSources, group_id: str, *, limit: int, after: str | None) -> Page[GroupOffset]:
    group = Message(group_id=group_id, member_id=None, member_epoch=-1, topics=None)
    reply = await _ask_about(sources, group_id, ApiKey.OFFSET_FETCH, Message(groups=[group], require_stable=False))
    topics = [fields_of(topic) for topic in fields_of(reply["groups"][0])["topics"]]

    def chosen() -> Page[Any]:
        committed = ((topic["name"], fields_of(one)) for topic in topics for one in topic["partitions"])
        return page(
            committed,
            key=lambda each: (each[0], int(each[1]["partition_index"])),
            view=lambda each: each,
            limit=limit,
            after=after,
            kind=f"offsets of {group_id}",
        )

    shown = await in_thread(chosen)
    committed: list[tuple[str, dict[str, Any]]] = shown.items
    image = sources.image
    statuses: dict[TopicPartition, PartitionStatus] = {}
    at_once = asyncio.Semaphore(LOOK_UPS_AT_ONCE)

    async def with_lag(name: str, one: dict[str, Any]) -> GroupOffset:
        index, offset = int(one["partition_index"]), int(one["committed_offset"])
        topic = image.topic(name)
        status = None if topic is None else statuses.get(TopicPartition(topic.topic_id, index))
        if status is None:
            return GroupOffset(topic=name, partition=index, committed_offset=offset, metadata=one.get("metadata") or "")
        next_offset = max(offset, status.log_start)
        lag_records = max(0, status.high_watermark - next_offset)
        async with at_once:
            lag_seconds = await sources.age_of(status.tp, next_offset) if lag_records else 0.0
        return GroupOffset(
            topic=name,
            partition=index,
            committed_offset=offset,
            metadata=one.get("metadata") or "",
            log_start=status.log_start,
            high_watermark=status.high_watermark,
            lag_records=lag_records,
            lag_seconds=lag_seconds,
        )

    found: list[GroupOffset] = []
    for first in range(0, len(committed), OFFSETS_PER_TURN):
        part = committed[first : first + OFFSETS_PER_TURN]
        wanted = [
            TopicPartition(topic.topic_id, one["partition_index"])
            for name, one in part
            if (topic := image.topic(name)) is not None
        ]
        statuses = await partition_statuses(sources, wanted)
        found += await together(with_lag(name, one) for name, one in part)
    return Page(items=found, next_token=shown.next_token)


async def _ask_about(sources: ApiSources, group_id: str, api_key: ApiKey, request: Message) -> dict[str, Any]:
    topic = sources.image.topic(CONSUMER_OFFSETS)
    if topic is None:
        raise _no_such_group()
    return await _ask(sources, topic, partition_of_group(group_id, len(topic.partitions)), api_key, request)


async def _ask(sources: ApiSources, topic: Topic, partition: int, api_key: int, request: Message) -> dict[str, Any]:
    owner = sources.owner_for(TopicPartition(topic.topic_id, partition))
    version = SERVED[ApiKey(api_key)].version_max if api_key in SERVED else -1
    caller = Caller(client_id=_CLIENT_ID, client_host="/127.0.0.1", api_version=version)
    return fields_of(await owner.group_call(partition, api_key, request, caller))


def _check(code: int) -> None:
    """Raises Refused for what a coordinator refuses."""
    match code:
        case ErrorCode.none:
            return
        case ErrorCode.group_id_not_found:
            raise _no_such_group()
        case ErrorCode.non_empty_group:
            raise Refused("GroupNotEmpty", "the group has members", "stop them first")
        case ErrorCode.invalid_group_id:
            raise Refused("InvalidGroupId", "this is no group's id", "name a group")
        case _:
            raise Refused(
                "CoordinatorUnavailable",
                f"its coordinator answers {ErrorCode(code).name}",
                "try again in a moment",
            )


def _no_such_group() -> Refused:
    return Refused("UnknownGroup", "there is no such group", "list the groups")
