"""Which groups with members consume a topic, in the base and in lanes, for who shows where messages go: asked by nodes
alone, never by clients.
"""

from typing import Any, Final

from bmq.naming.lanes import BASE, lane_group, overlay_name
from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES

PARTY: Final = "routes"
"""In place of an address."""


class _Lane:
    """What is found of one of the lanes."""

    def __init__(self, *, topic: str, number: int, named_max: int) -> None:
        """`topic`: as the cluster calls it."""
        self.topic = topic
        self.number = number
        self.named_max = named_max
        self.group_ids: list[str] = []
        self.count = 0

    def add(self, group_id: str) -> None:
        self.count += 1
        if len(self.group_ids) < self.named_max:
            self.group_ids.append(group_id)


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """For each of the `lanes` (a name and a number, the base's "" and 0): how many groups with members consume the
    `topic`, by its name in the lane, and up to `named_max` of them, as the lane's clients call them.
    """
    asked = [lane if isinstance(lane, dict) else vars(lane) for lane in request.lanes]
    lanes = {
        one["name"]: _Lane(
            topic=overlay_name(one["name"], request.topic), number=one["number"], named_max=request.named_max
        )
        for one in asked
    }

    def look(machine: GroupMachine, group_id: str) -> None:
        found = lane_group(group_id)
        lane = lanes.get(BASE if found is None else found.lane)
        if lane is None or (found is not None and found.number != lane.number):
            return
        if _consumes(machine, group_id, lane.topic):
            lane.add(group_id if found is None else found.group_id)

    await shard.look_each(shard.group_ids(), look, party=PARTY, work_bytes=_work_bytes)
    said = [{"lane": name, "groups": lane.group_ids, "count": lane.count} for name, lane in lanes.items()]
    return {"error_code": ErrorCode.none, "lanes": said}


def failed(_: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"error_code": error, "lanes": []}


def _work_bytes(machine: GroupMachine, group_id: str) -> int:
    group = machine.groups.get(group_id)
    if group is None or group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ELEMENT_WORK_BYTES
    return ELEMENT_WORK_BYTES * (1 + len(machine.durable.offsets.get(group_id, {})))


def _consumes(machine: GroupMachine, group_id: str, topic: str) -> bool:
    """As for whose turn it is."""

    def has_committed() -> bool:
        return any(name == topic for name, _ in machine.durable.offsets.get(group_id, {}))

    group = machine.groups.get(group_id)
    return group is not None and group.consumes(topic, has_committed=has_committed)
