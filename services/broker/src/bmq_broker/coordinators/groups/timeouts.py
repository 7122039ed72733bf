"""What happens when a deadline passes, and what starts the clocks after a load."""

from collections.abc import Iterable

from bmq_broker.coordinators.groups.group import Group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine, Turn
from bmq_broker.coordinators.groups.rebalance import (
    complete_if_joined,
    join_time_is_up,
    prepare,
    rebalance_or_complete,
    remove_member,
)
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.states import GroupState


def start(machine: GroupMachine, now: Now, group_ids: Iterable[str] | None = None) -> Effects:
    """After loading: brings stored groups (all, or these) to life. Their members get a full session before anybody
    doubts them.
    """
    effects = Effects()
    for group_id in list(machine.durable.groups if group_ids is None else group_ids):
        value = machine.durable.groups[group_id]
        machine.drop(group_id)
        group = machine.put(Group.restore(group_id, value, tally=machine.tally, room_bytes=machine.room_bytes))
        for member_id in group.members:
            machine.touch(group, member_id, now)
        if len(group.members) > machine.settings.group_size_max:
            prepare(Turn(machine, effects, group, now))
    return effects


def fire_next(machine: GroupMachine, now: Now) -> Effects | None:
    """Does what the earliest deadline that has passed asks for; None where none has. One at a time, so that each is a
    small step.
    """
    key = machine.timers.pop_due(now.loop_ms)
    if key is None:
        return None
    effects = Effects()
    machine.step.touched.add(key.group_id)
    group = machine.groups.get(key.group_id)
    if group is None:
        return effects
    turn = Turn(machine, effects, group, now)
    match key.kind:
        case "session":
            _session_ended(turn, key.member_id)
        case "join":
            if group.state is GroupState.PREPARING_REBALANCE:
                join_time_is_up(turn)
        case "sync":
            _sync_time_is_up(turn)
        case kind:
            raise AssertionError(f"a timer of kind {kind!r}")
    machine.forget_if_void(group)
    return effects


def _session_ended(turn: Turn, member_id: str) -> None:
    machine, effects, group, _now = turn
    if member_id in group.pending:
        group.expect_no_more(member_id)
        complete_if_joined(turn)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member_id in group.joins or member_id in group.syncs
    if waits and not member.is_new:
        # A held request stands for its heartbeat; the answer starts a new session.
        return
    remove_member(machine, effects, group, member_id)
    rebalance_or_complete(turn)


def _sync_time_is_up(turn: Turn) -> None:
    machine, effects, group, _now = turn
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in [member_id for member_id in group.members if member_id in group.unsynced]:
        remove_member(machine, effects, group, member_id)
    prepare(turn)
