"""OffsetDelete, version 0. Nothing is missing."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.offsets import delete_offsets
from bmq_broker.coordinators.groups.requests import DeleteOffsets, Now, Refusal
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard, TopicNames
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.walks import OFFSETS_PER_TURN
from bmq_broker.handlers.group_errors import code_of, group_id_error

_Answered = tuple[Refusal | None, list[dict[str, Any]]]


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Offsets of topics that the group consumes now are left alone, each with an error of its own. Of very many those
    that are named first go first, and others have their turn before the next go; where the group may then lose no more,
    the whole is an error.
    """
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    found = await shard.look_in_turns(_deletions(shard.topics, request), party=caller.client_host)
    refusal = next(
        (
            refusal
            for number, (refusal, _) in enumerate(found)
            if refusal is not None and not (number and _is_gone(refusal))
        ),
        None,
    )
    if refusal is not None:
        return failed(request, code_of(refusal))
    partitions = (one for _, some in found for one in some)
    topics = [
        {"name": topic.name, "partitions": list(islice(partitions, len(topic.partitions)))} for topic in request.topics
    ]
    return {"throttle_time_ms": 0, "error_code": ErrorCode.none, "topics": topics}


def _is_gone(refusal: Refusal) -> bool:
    """Whether it says that a group is gone: after the first partitions it is because they were all that it had."""
    return refusal is Refusal.GROUP_NOT_FOUND


def _deletions(topics: TopicNames, request: Message) -> Iterator[tuple[int, Any]]:
    """At least one, which says whether there is such a group."""
    places = ((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    some = list(islice(places, OFFSETS_PER_TURN))
    while True:
        yield ELEMENT_WORK_BYTES * (1 + len(some)), partial(_delete, topics, request.group_id, some)
        some = list(islice(places, OFFSETS_PER_TURN))
        if not some:
            return


def _delete(
    topics: TopicNames, group_id: str, places: Sequence[tuple[str, int]], machine: GroupMachine, now: Now
) -> tuple[Effects, _Answered]:
    partitions = [(name, topics.id_of(name) is not None, partition) for name, partition in places]
    effects, refusal, refusals = delete_offsets(machine, DeleteOffsets(group_id=group_id, partitions=partitions))
    if refusal is not None:
        refusals = [None if exists else Refusal.UNKNOWN_TOPIC for _, exists, _ in partitions]
    return effects, (
        refusal,
        [
            {"partition_index": place[1], "error_code": code_of(one)}
            for place, one in zip(places, refusals, strict=True)
        ],
    )


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "topics": []}
