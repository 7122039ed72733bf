"""What groups of a lane have committed, for who gives the lane's turn to the base: asked by nodes alone, never by
clients.
"""

from typing import Any, Final, NamedTuple

from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.offsets import fetch
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES

PARTY: Final = "lanes"
"""In place of an address."""


class _Found:
    """What is found of one topic."""

    def __init__(self, name: str, topic_id: TopicId, partitions: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = range(partitions)
        self.committed: dict[int, int] = {}
        self.has_members = False


class _Part(NamedTuple):
    group_id: str
    found: _Found


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """For each of the topics: whether members of a group whose id begins so consume it, and the largest offset that
    any of these groups committed of each partition. Topics that are not known here any more have none.
    """
    asked = [topic if isinstance(topic, dict) else vars(topic) for topic in request.topics]
    found = [_Found(topic["name"], topic["topic_id"], shard.topics.partitions_of(topic["topic_id"])) for topic in asked]
    group_ids = [group_id for group_id in shard.group_ids() if group_id.startswith(request.prefix)]
    parts = (_Part(group_id, topic) for group_id in group_ids for topic in found)
    await shard.look_each(parts, _look, party=PARTY, work_bytes=_work_bytes, fence_check=True)
    topics = [
        {"name": one.name, "has_members": one.has_members, "committed": list(one.committed.items())} for one in found
    ]
    return {"error_code": ErrorCode.none, "topics": topics}


def failed(_: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"error_code": error, "topics": []}


def _work_bytes(_machine: GroupMachine, part: _Part) -> int:
    return ELEMENT_WORK_BYTES * (1 + len(part.found.partitions))


def _look(machine: GroupMachine, part: _Part) -> None:
    found = part.found
    for index in found.partitions:
        value = fetch(machine, part.group_id, found.name, index, found.topic_id)
        if value is not None:
            found.committed[index] = max(value.offset, found.committed.get(index, -1))
    group = machine.find(part.group_id)
    if group is not None:
        found.has_members |= group.consumes(found.name, has_committed=lambda: bool(found.committed))
