"""The rebalance of a group: who is waited for, when it ends, and what is said to those who wait."""

from bmq_broker.coordinators.groups.group import Group, Member
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine, Turn
from bmq_broker.coordinators.groups.records import GroupKey, GroupValue, group_size_bytes
from bmq_broker.coordinators.groups.requests import JoinedMember, JoinReply, Refusal, SyncReply
from bmq_broker.coordinators.groups.states import GroupEvent, GroupState
from bmq_broker.coordinators.groups.timers import TimerKey

_CAN_REBALANCE = (GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def rebalance_or_complete(turn: Turn) -> None:
    """Something changed: starts a rebalance, or ends the one that runs if nobody is missing any more."""
    group = turn.group
    if group.state in _CAN_REBALANCE:
        prepare(turn)
        return
    complete_if_joined(turn)
    if group.state is GroupState.PREPARING_REBALANCE and group.joins:
        _wait_for_the_others(turn)


def prepare(turn: Turn) -> None:
    """Every member has to join again. Out of Empty the group waits a while for more members before its first
    generation, though no longer than its members do.
    """
    machine, _effects, group, now = turn
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(turn, Refusal.REBALANCE_IN_PROGRESS)
    group.unsynced.clear()
    machine.timers.cancel(TimerKey("sync", group.group_id))

    from_empty = group.state is GroupState.EMPTY
    group.move(GroupEvent.REBALANCE, now.wall_ms)
    if from_empty:
        delay_ms = min(machine.settings.initial_rebalance_delay_ms, group.rebalance_timeout_ms())
        group.first_rebalance_left_ms = group.rebalance_timeout_ms() - delay_ms
        group.member_came = False
        if delay_ms > 0:
            machine.timers.set(TimerKey("join", group.group_id), now.loop_ms + delay_ms)
            return
        group.first_rebalance_left_ms = None
    if group.all_joined():
        complete(turn)
    else:
        machine.timers.set(TimerKey("join", group.group_id), now.loop_ms + group.rebalance_timeout_ms())


def complete_if_joined(turn: Turn) -> None:
    """Ends the rebalance once all have joined; the first one of a group runs for its time in any case."""
    group = turn.group
    if group.state is GroupState.PREPARING_REBALANCE and group.first_rebalance_left_ms is None and group.all_joined():
        complete(turn)


def join_time_is_up(turn: Turn) -> None:
    """The first rebalance is drawn out as long as members keep coming and its time allows; any other ends here."""
    machine, _effects, group, now = turn
    assert group.state is GroupState.PREPARING_REBALANCE, f"{group.group_id} is {group.state.name}"
    left_ms = group.first_rebalance_left_ms
    if left_ms is not None and group.member_came and left_ms > 0:
        delay_ms = min(machine.settings.initial_rebalance_delay_ms, left_ms)
        group.member_came = False
        group.first_rebalance_left_ms = left_ms - delay_ms
        machine.timers.set(TimerKey("join", group.group_id), now.loop_ms + delay_ms)
    else:
        complete(turn)


def complete(turn: Turn) -> None:
    """Leaves behind the dynamic members that did not join (static ones stay until their session ends) and starts the
    next generation.
    """
    machine, effects, group, now = turn
    machine.timers.cancel(TimerKey("join", group.group_id))
    for member in [
        member
        for member in group.members.values()
        if member.instance_id is None and member.member_id not in group.joins
    ]:
        machine.drop_session(group.group_id, member.member_id)
        group.remove(member.member_id)
    group.first_rebalance_left_ms = None

    if group.members and not _elect_joined_leader(group):
        # Only static members are left, and none of them came: their sessions decide, and the first one that comes has
        # the others waited for. Rounds by the clock would be without end, with a rebalance timeout of 0 one on the
        # other.
        return
    group.generation += 1
    group.unsynced.clear()
    if group.members:
        _start_generation(turn)
    else:
        group.protocol = None
        group.leader = None
        group.learn_topics(machine.room_bytes)
        group.move(GroupEvent.EMPTIED, now.wall_ms)
        machine.emit(effects, GroupKey(group.group_id), group.to_value())


def answer_join(
    effects: Effects, group: Group, member: Member, *, leader: str | None = None, skip_assignment: bool = False
) -> None:
    """Tells a member its generation. With `leader` it is told that this one leads, and no member list."""
    ticket = group.joins.pop(member.member_id, None)
    if ticket is None:
        return
    leads = leader is None and group.leader == member.member_id
    effects.reply(
        ticket,
        JoinReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=leader or group.leader or "",
            skip_assignment=skip_assignment,
            members=joined_members(group) if leads else (),
        ),
    )


def refuse_join(effects: Effects, group: Group, member_id: str, refusal: Refusal) -> None:
    """Answers the member's held JoinGroup, if there is one."""
    ticket = group.joins.pop(member_id, None)
    if ticket is not None:
        effects.reply(
            ticket, JoinReply(refusal=refusal, member_id="" if refusal is Refusal.UNKNOWN_MEMBER else member_id)
        )


def refuse_sync(effects: Effects, group: Group, member_id: str, refusal: Refusal) -> None:
    """Answers the member's held SyncGroup, if there is one."""
    ticket = group.syncs.pop(member_id, None)
    if ticket is not None:
        effects.reply(ticket, SyncReply(refusal=refusal))


def fail_syncs(turn: Turn, refusal: Refusal) -> None:
    """The generation will not get its assignment: says so to all who wait for it."""
    machine, effects, group, now = turn
    for member in group.members.values():
        member.assignment = b""
        if member.member_id in group.syncs:
            refuse_sync(effects, group, member.member_id, refusal)
            machine.touch(group, member.member_id, now)


def assign(turn: Turn, value: GroupValue, *, address: str) -> None:
    """The generation with its assignments, which a client there gave, goes into the log, and to all who wait for it."""
    machine, effects, group, now = turn
    assert value.generation == group.generation and len(value.members) == len(group.members), (
        f"{group.group_id}: an assignment of generation {value.generation} for {len(value.members)} members, it is at "
        f"{group.generation} with {len(group.members)}"
    )
    for stored in value.members:
        group.members[stored.member_id].assignment = stored.assignment
    group.record_bytes = group_size_bytes(value)
    group.move(GroupEvent.ASSIGNED, now.wall_ms)
    machine.emit(effects, GroupKey(group.group_id), value._replace(state_ms=group.state_ms), address=address)
    for member in group.members.values():
        ticket = group.syncs.pop(member.member_id, None)
        if ticket is not None:
            effects.reply(ticket, sync_reply(group, member))
            machine.touch(group, member.member_id, now)


def sync_reply(group: Group, member: Member) -> SyncReply:
    """The member's assignment."""
    return SyncReply(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment)


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    """What the leader computes the assignment from."""
    return tuple(
        JoinedMember(
            member_id=member.member_id, instance_id=member.instance_id, metadata=member.metadata(group.protocol)
        )
        for member in group.members.values()
    )


def remove_member(machine: GroupMachine, effects: Effects, group: Group, member_id: str) -> None:
    """Takes a member out and answers what it had waiting. The caller rebalances."""
    refuse_join(effects, group, member_id, Refusal.UNKNOWN_MEMBER)
    refuse_sync(effects, group, member_id, Refusal.UNKNOWN_MEMBER)
    machine.drop_session(group.group_id, member_id)
    group.remove(member_id)


def _start_generation(turn: Turn) -> None:
    machine, effects, group, now = turn
    group.protocol = group.choose_protocol()
    group.learn_topics(machine.room_bytes)
    group.move(GroupEvent.JOINED, now.wall_ms)
    for member in group.members.values():
        answer_join(effects, group, member)
        machine.touch(group, member.member_id, now)
        member.is_new = False
        group.unsynced.add(member.member_id)
    assert not group.joins and len(group.unsynced) == len(group.members), (
        f"{group.group_id}: generation {group.generation} of {len(group.members)} members begins, {len(group.joins)} "
        f"wait for it and {len(group.unsynced)} are to sync"
    )
    machine.timers.set(TimerKey("sync", group.group_id), now.loop_ms + group.rebalance_timeout_ms())


def _wait_for_the_others(turn: Turn) -> None:
    """Somebody waits for the rebalance: it has an end, also where nobody had come when its time was up."""
    machine, _effects, group, now = turn
    key = TimerKey("join", group.group_id)
    if key not in machine.timers:
        machine.timers.set(key, now.loop_ms + group.rebalance_timeout_ms())


def _elect_joined_leader(group: Group) -> bool:
    """Keeps the leader if it joined, else takes the oldest member that did. False where none did."""
    if group.leader in group.joins:
        return True
    for member_id in group.members:
        if member_id in group.joins:
            group.leader = member_id
            return True
    return False
