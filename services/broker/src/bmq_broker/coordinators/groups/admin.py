"""What tools ask: describe, list and delete groups."""

from bmq_broker.coordinators.groups.group import MEMBER_WRITTEN_BYTES, Group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.membership import leave
from bmq_broker.coordinators.groups.records import GroupKey, OffsetKey
from bmq_broker.coordinators.groups.requests import (
    GroupDescription,
    GroupListing,
    Leave,
    Leaver,
    MemberDescription,
    Now,
    Refusal,
)
from bmq_broker.coordinators.groups.states import GroupEvent, GroupState
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES


def describe(machine: GroupMachine, group_id: str) -> GroupDescription | None:
    """None where there is no such group. Metadata and assignments are shown of a stable group alone."""
    group = machine.groups.get(group_id)
    if group is None and group_id in machine.durable.offsets:
        group = Group(group_id)  # for this look alone
    if group is None:
        return None
    is_stable = group.state is GroupState.STABLE
    return GroupDescription(
        group_id=group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=(group.protocol or "") if is_stable else "",
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def described_bytes(machine: GroupMachine, group_id: str) -> int:
    """What a description has, but for a few numbers of each member. Known without a look at them."""
    group = machine.groups.get(group_id)
    if group is None:
        return 0
    return group.record_bytes if group.state is GroupState.STABLE else group.name_bytes


def describing_bytes(machine: GroupMachine, group_id: str) -> int:
    """How much of a turn a description is."""
    group = machine.groups.get(group_id)
    return ELEMENT_WORK_BYTES + (
        0 if group is None else described_bytes(machine, group_id) + MEMBER_WRITTEN_BYTES * len(group.members)
    )


def listing(machine: GroupMachine, group_id: str) -> GroupListing | None:
    """One group's line; None where it is gone."""
    group = machine.groups.get(group_id)
    if group is not None:
        return GroupListing(group_id, group.protocol_type, group.state)
    return GroupListing(group_id, "", GroupState.EMPTY) if group_id in machine.durable.offsets else None


def delete_group(machine: GroupMachine, now: Now, group_id: str) -> tuple[Effects, Refusal | None]:
    """Deletes an empty group with its offsets."""
    effects = Effects()
    group = machine.find(group_id)
    if group is None:
        return effects, Refusal.GROUP_NOT_FOUND
    if group.state is not GroupState.EMPTY:
        return effects, Refusal.GROUP_NOT_EMPTY
    for topic, partition in list(machine.durable.offsets.get(group_id, {})):
        machine.emit(effects, OffsetKey(group_id, topic, partition), None)
    if group_id in machine.durable.groups:
        machine.emit(effects, GroupKey(group_id), None)
    _bury(machine, group, now)
    return effects, None


def abandon_group(machine: GroupMachine, now: Now, group_id: str) -> Effects:
    """Deletes a group of a lane that is gone, whoever is in it: nobody can reach it any more."""
    group = machine.find(group_id)
    if group is None:
        return Effects()
    leavers = tuple(Leaver(member_id, None) for member_id in (*group.members, *group.pending))
    effects, _ = leave(machine, now, Leave(group_id=group_id, leavers=leavers))
    deleted, _ = delete_group(machine, now, group_id)
    return Effects(records=[*effects.records, *deleted.records], replies=[*effects.replies, *deleted.replies])


def _bury(machine: GroupMachine, group: Group, now: Now) -> None:
    for member_id in group.pending:
        machine.drop_session(group.group_id, member_id)
    group.move(GroupEvent.DELETED, now.wall_ms)
    machine.drop(group.group_id)
