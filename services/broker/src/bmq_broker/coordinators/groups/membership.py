"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-345 static members, KIP-394 known member ids, KIP-800 reasons are
the handlers').
"""

from typing import Final

from bmq_broker.coordinators.groups.fields import nullable_size_bytes
from bmq_broker.coordinators.groups.group import MEMBER_BYTES, Group, Member, said_bytes, size_of
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine, Turn
from bmq_broker.coordinators.groups.rebalance import (
    answer_join,
    assign,
    complete_if_joined,
    fail_syncs,
    prepare,
    rebalance_or_complete,
    refuse_join,
    refuse_sync,
    remove_member,
    sync_reply,
)
from bmq_broker.coordinators.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    group_size_bytes,
    member_size_bytes,
)
from bmq_broker.coordinators.groups.requests import (
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    Leaver,
    Now,
    Refusal,
    Sync,
    SyncReply,
    Ticket,
)
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, same_topics
from bmq_broker.coordinators.groups.tally import text_bytes
from bmq_broker.coordinators.groups.timers import TimerKey

OFFERS_TIMES_RECORD: Final = 8
"""What members offer together, in records of the largest size: each offers several protocols, of which a record has
one."""


def join(machine: GroupMachine, now: Now, request: Join, ticket: Ticket) -> Effects:
    """Answered at once with a refusal or the current generation, or held until the rebalance ends."""
    effects = Effects()
    settings = machine.settings
    group = machine.find(request.group_id)
    if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
        _refuse(effects, ticket, request.member_id, Refusal.INVALID_SESSION_TIMEOUT)
    elif group is None and request.member_id:
        _refuse(effects, ticket, request.member_id, Refusal.UNKNOWN_MEMBER)
    elif group is None and not machine.can_be_called(request.group_id):
        _refuse(effects, ticket, "", Refusal.INVALID_GROUP_ID)
    else:
        group = group or machine.create(request.group_id, founder=request.client_host)
        if group is None:
            _refuse(effects, ticket, "", Refusal.TOO_MANY_GROUPS)
            return effects
        turn = Turn(machine, effects, group, now)
        if (
            len(request.protocols) > settings.protocols_max
            or said_bytes(request.protocols) > settings.record_size_bytes_max
        ):
            _refuse(effects, ticket, request.member_id, Refusal.INVALID_REQUEST)
        elif not _may_say(group, request, settings.record_size_bytes_max):
            _refuse(effects, ticket, "", Refusal.GROUP_FULL)
        elif not machine.has_room(_growth(group, request), address=request.client_host):
            _refuse(effects, ticket, request.member_id, Refusal.OVERLOADED)
        elif not _has_room(machine, group, request.member_id):
            _turn_away(turn, request.member_id, ticket)
        elif not group.supports(request.protocol_type, request.protocols):
            _refuse(effects, ticket, request.member_id, Refusal.INCONSISTENT_PROTOCOL)
        elif request.member_id:
            _join_known(turn, request, ticket)
        else:
            _join_new(turn, request, ticket)
        machine.forget_if_void(group)
    return effects


def sync(machine: GroupMachine, now: Now, request: Sync, ticket: Ticket) -> Effects:
    """Answered at once where the generation has its assignment, else held until the leader brings it."""
    effects = Effects()
    group = machine.find(request.group_id)
    refusal = Refusal.UNKNOWN_MEMBER if group is None else _check_sync(group, request)
    if group is None or refusal is not None:
        effects.reply(ticket, SyncReply(refusal=refusal))
        return effects
    group.unsynced.discard(request.member_id)
    if group.state is GroupState.STABLE:
        effects.reply(ticket, sync_reply(group, group.members[request.member_id]))
        return effects
    refuse_sync(effects, group, request.member_id, Refusal.REBALANCE_IN_PROGRESS)
    group.syncs[request.member_id] = ticket
    if group.leader == request.member_id:
        _take_assignment(Turn(machine, effects, group, now), request)
    return effects


def heartbeat(machine: GroupMachine, now: Now, request: Heartbeat, ticket: Ticket) -> Effects:
    """Keeps the member's session, and tells it where a rebalance runs."""
    effects = Effects()
    group = machine.find(request.group_id)
    refusal = Refusal.UNKNOWN_MEMBER if group is None else group.check_member(request.member_id, request.instance_id)
    if group is not None and refusal is None:
        if request.generation != group.generation:
            refusal = Refusal.ILLEGAL_GENERATION
        else:
            machine.touch(group, request.member_id, now)
            if group.state is GroupState.PREPARING_REBALANCE:
                refusal = Refusal.REBALANCE_IN_PROGRESS
    effects.reply(ticket, HeartbeatReply(refusal=refusal))
    return effects


def leave(machine: GroupMachine, now: Now, request: Leave) -> tuple[Effects, list[Refusal | None]]:
    """Takes members out, by their own wish or an administrator's; one rebalance for all of them. (effects, what became
    of each)
    """
    effects = Effects()
    group = machine.find(request.group_id)
    if group is None:
        return effects, [Refusal.UNKNOWN_MEMBER] * len(request.leavers)
    refusals = [_take_out(machine, effects, group, leaver) for leaver in request.leavers]
    if None in refusals:
        turn = Turn(machine, effects, group, now)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare(turn)
        else:
            complete_if_joined(turn)
    machine.forget_if_void(group)
    return effects, refusals


def give_up_join(machine: GroupMachine, now: Now, request: Join, ticket: Ticket) -> Effects:
    """Whoever sent the request is gone before its answer. A member that was never told of a generation goes with its
    metadata; an id that it was given stays its own for a session.
    """
    effects = Effects()
    group = machine.find(request.group_id)
    member = (
        None
        if group is None
        else next((group.members[name] for name, held in group.joins.items() if held == ticket), None)
    )
    if group is None or member is None or not member.is_new:
        return effects
    remove_member(machine, effects, group, member.member_id)
    if request.member_id:
        group.expect(member.member_id, member.client_host)
        machine.touch(group, member.member_id, now, timeout_ms=member.session_timeout_ms)
    if group.members or group.pending or machine.durable.knows(group.group_id):
        complete_if_joined(Turn(machine, effects, group, now))
    else:
        machine.timers.cancel(TimerKey("join", group.group_id))
        machine.drop(group.group_id)
    return effects


def give_up_sync(machine: GroupMachine, now: Now, request: Sync, ticket: Ticket) -> Effects:
    """Whoever sent the request is gone before its answer: the member has a session to come back in."""
    group = machine.find(request.group_id)
    if group is not None and group.syncs.get(request.member_id) == ticket:
        del group.syncs[request.member_id]
        machine.touch(group, request.member_id, now)
    return Effects()


def _known(group: Group, request: Join) -> Member | None:
    return group.members.get(request.member_id or group.static.get(request.instance_id or "", ""))


def _may_say(group: Group, request: Join, record_size_bytes_max: int) -> bool:
    """Whether all that members offer stays within what an answer may have. A group for which it does not has no record
    that would be taken.
    """
    member = _known(group, request)
    before_bytes = 0 if member is None else member.said_bytes
    grown_bytes = said_bytes(request.protocols) + _named_bytes(request) - before_bytes
    return grown_bytes <= 0 or group.said_bytes + grown_bytes <= OFFERS_TIMES_RECORD * record_size_bytes_max


def _growth(group: Group, request: Join) -> int:
    """How many bytes the group takes more once the member is in it."""
    member = _known(group, request)
    wanted = MEMBER_BYTES + _named_bytes(request) + size_of(request.protocols)
    return wanted if member is None else wanted - member.weighed_bytes


def _named_bytes(request: Join) -> int:
    return sum(
        map(
            text_bytes,
            (request.member_id or request.fresh_id, request.instance_id, request.client_id, request.client_host),
        )
    )


def _refuse(effects: Effects, ticket: Ticket, member_id: str, refusal: Refusal) -> None:
    effects.reply(ticket, JoinReply(refusal=refusal, member_id=member_id))


def _has_room(machine: GroupMachine, group: Group, member_id: str) -> bool:
    """A group that is too large after its limit was lowered loses the members that come back last; ids given out have
    their place.
    """
    size_max = machine.settings.group_size_max
    if member_id in group.members:
        return (
            group.state is not GroupState.PREPARING_REBALANCE or member_id in group.joins or len(group.joins) < size_max
        )
    return member_id in group.pending or len(group.members) + len(group.pending) < size_max


def _turn_away(turn: Turn, member_id: str, ticket: Ticket) -> None:
    machine, effects, group, _ = turn
    _refuse(effects, ticket, "", Refusal.GROUP_FULL)
    if member_id in group.pending:
        group.expect_no_more(member_id)
        machine.drop_session(group.group_id, member_id)
    elif member_id in group.members:
        remove_member(machine, effects, group, member_id)
    complete_if_joined(turn)


def _join_new(turn: Turn, request: Join, ticket: Ticket) -> None:
    machine, effects, group, now = turn
    if request.instance_id is not None:
        if request.instance_id in group.static:
            _replace_static(turn, request, ticket)
        else:
            _add(turn, request, request.fresh_id, ticket)
    elif request.requires_known_member:
        if len(group.pending) >= machine.settings.group_size_max:
            _refuse(effects, ticket, "", Refusal.GROUP_FULL)
            return
        group.expect(request.fresh_id, request.client_host)
        machine.touch(group, request.fresh_id, now, timeout_ms=request.session_timeout_ms)
        _refuse(effects, ticket, request.fresh_id, Refusal.MEMBER_ID_REQUIRED)
    else:
        _add(turn, request, request.fresh_id, ticket)


def _join_known(turn: Turn, request: Join, ticket: Ticket) -> None:
    effects = turn.effects
    group = turn.group
    if request.member_id in group.pending:
        if request.instance_id is not None:
            _refuse(effects, ticket, request.member_id, Refusal.INVALID_REQUEST)
        else:
            _add(turn, request, request.member_id, ticket)
        return
    refusal = group.check_member(request.member_id, request.instance_id)
    if refusal is not None:
        _refuse(effects, ticket, request.member_id, refusal)
        return
    member = group.members[request.member_id]
    unchanged = member.protocols == request.protocols
    leads = group.leader == member.member_id
    if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
        group.state is GroupState.STABLE and unchanged and not leads
    ):
        # It did not get the reply, or asks for nothing new. A leader of a stable group that joins again asks for a
        # rebalance.
        group.joins[member.member_id] = ticket
        answer_join(effects, group, member)
        return
    _update(effects, group, member, request, ticket)
    rebalance_or_complete(turn)


def _add(turn: Turn, request: Join, member_id: str, ticket: Ticket) -> None:
    machine, _effects, group, now = turn
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(
        Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )
    )
    group.joins[member_id] = ticket
    group.member_came = True
    machine.touch(group, member_id, now, timeout_ms=machine.settings.new_member_join_timeout_ms)
    rebalance_or_complete(turn)


def _update(effects: Effects, group: Group, member: Member, request: Join, ticket: Ticket) -> None:
    refuse_join(effects, group, member.member_id, Refusal.REBALANCE_IN_PROGRESS)
    group.set_protocols(member, request.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    group.joins[member.member_id] = ticket


def _replace_static(turn: Turn, request: Join, ticket: Ticket) -> None:
    """A static member restarted. In a stable group that changes nothing but its id, unless it now wants something
    else.
    """
    machine, effects, group, now = turn
    assert request.instance_id is not None
    old_id = group.static[request.instance_id]
    stored = _as_it_will_be(machine, group, old_id, request) if group.state is GroupState.STABLE else None
    if stored is not None and stored[1] > machine.settings.record_size_bytes_max:
        _refuse(effects, ticket, request.member_id, Refusal.INVALID_REQUEST)
        return
    if stored is not None and not machine.rewrite(request.client_host, now, group.rewriting_bytes):
        _refuse(effects, ticket, request.member_id, Refusal.OVERLOADED)
        return
    old_leader = group.leader
    refuse_join(effects, group, old_id, Refusal.FENCED_INSTANCE)
    refuse_sync(effects, group, old_id, Refusal.FENCED_INSTANCE)
    machine.drop_session(group.group_id, old_id)
    was_unsynced = old_id in group.unsynced
    member = group.replace_static(request.instance_id, request.fresh_id)
    if was_unsynced:
        group.unsynced.add(member.member_id)
    wanted = member.metadata(group.protocol)
    _update(effects, group, member, request, ticket)
    machine.touch(group, member.member_id, now)
    member.client_id = request.client_id
    member.client_host = request.client_host
    group.weigh(member)
    if stored is not None and group.choose_protocol() == group.protocol and _wants_the_same(group, member, wanted):
        machine.emit(effects, GroupKey(group.group_id), stored[0], address=request.client_host)
        group.record_bytes = stored[1]
        if request.can_skip_assignment:
            answer_join(effects, group, member, skip_assignment=group.leader == member.member_id)
        else:
            # An older client that is told it leads would compute an assignment: it is shown the leader's id of before.
            answer_join(effects, group, member, leader=old_leader)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        prepare(turn)
    else:
        rebalance_or_complete(turn)


def _as_it_will_be(machine: GroupMachine, group: Group, old_id: str, request: Join) -> tuple[GroupValue, int]:
    """The stored generation with a static member that comes back, and how many bytes its record has: of all others
    nothing is looked at.
    """
    stored = machine.durable.groups[group.group_id]
    was = next(member for member in stored.members if member.member_id == old_id)
    metadata = next((metadata for name, metadata in request.protocols if name == group.protocol), b"")
    member = MemberValue(
        member_id=request.fresh_id,
        instance_id=was.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        subscription=metadata,
        assignment=was.assignment,
    )
    others = tuple(other for other in stored.members if other is not was)
    value = stored._replace(
        members=(*others, member), leader=request.fresh_id if stored.leader == old_id else stored.leader
    )
    grown_bytes = (
        member_size_bytes(member)
        - member_size_bytes(was)
        + nullable_size_bytes(value.leader)
        - nullable_size_bytes(stored.leader)
    )
    return value, group.record_bytes + grown_bytes


def _wants_the_same(group: Group, member: Member, before: bytes) -> bool:
    """Whether what an assignment depends on is as it was, as far as it can be read: a consumer's topics. Then so are
    all topics of the group.
    """
    return group.protocol_type != CONSUMER_PROTOCOL_TYPE or same_topics(before, member.metadata(group.protocol))


def _check_sync(group: Group, request: Sync) -> Refusal | None:
    refusal = group.check_member(request.member_id, request.instance_id)
    if refusal is not None:
        return refusal
    if request.generation != group.generation:
        return Refusal.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return Refusal.INCONSISTENT_PROTOCOL
    return Refusal.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else None


def _take_assignment(turn: Turn, request: Sync) -> None:
    machine = turn.machine
    group = turn.group
    stored = group.to_value()
    members = tuple(
        member._replace(assignment=request.assignments.get(member.member_id, b"")) for member in stored.members
    )
    value: GroupValue = stored._replace(members=members)
    client_host = group.members[request.member_id].client_host
    growth_bytes = machine.durable.growth_bytes(GroupKey(group.group_id), value)
    room = machine.room(client_host, turn.now)
    size_bytes = group_size_bytes(value)
    if size_bytes > machine.settings.record_size_bytes_max:
        fail_syncs(turn, Refusal.ASSIGNMENT_TOO_LARGE)
        prepare(turn)
    elif room.refusal(growth_bytes) is not None or not machine.rewrite(client_host, turn.now, size_bytes):
        fail_syncs(turn, Refusal.OVERLOADED)
        prepare(turn)
    else:
        machine.grow(client_host, turn.now, room, growth_bytes)
        assign(turn, value, address=client_host)


def _take_out(machine: GroupMachine, effects: Effects, group: Group, leaver: Leaver) -> Refusal | None:
    member_id = leaver.member_id
    if not member_id:
        if leaver.instance_id is None or leaver.instance_id not in group.static:
            return Refusal.UNKNOWN_MEMBER
        member_id = group.static[leaver.instance_id]
    elif member_id in group.pending:
        group.expect_no_more(member_id)
        machine.drop_session(group.group_id, member_id)
        return None
    else:
        refusal = group.check_member(member_id, leaver.instance_id)
        if refusal is not None:
            return refusal
    remove_member(machine, effects, group, member_id)
    return None
