"""Committed offsets: commit, fetch, delete, expire, and the end of a topic. Kafka's rules, in particular about what
keeps an offset alive.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from bmq.values import TopicId
from bmq_broker.coordinators.groups.group import Group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.records import GroupKey, OffsetKey, OffsetValue
from bmq_broker.coordinators.groups.requests import Commit, CommitReply, DeleteOffsets, NewOffset, Now, Refusal, Ticket
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE

EXPIRE_MS_MAX: Final = 2**63 - 1
"""The last moment that a record can name: an offset that is to be kept for longer is kept until then."""

Place = tuple[str, int]
"""A topic's name and a partition."""


class GroupPart(NamedTuple):
    """A group with some of the places of its offsets: `places` None is all of them."""

    group_id: str
    places: Sequence[Place] | None = None


def commit(
    machine: GroupMachine,
    now: Now,
    request: Commit,
    ticket: Ticket,
    *,
    refusal_of: Callable[[NewOffset], Refusal | None] = lambda _: None,
) -> Effects:
    """Stores offsets. Members must be of the current generation; a consumer without membership may commit to an empty
    group alone. `refusal_of`: why one cannot be taken for what its topic is.
    """
    effects = Effects()
    group = machine.find(request.group_id)
    refusal = _check_commit(machine, group, request)
    if refusal is not None:
        effects.reply(ticket, CommitReply(refusal=refusal))
        return effects
    if (
        group is not None
        and request.member_id in group.members
        and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
    ):
        machine.touch(group, request.member_id, now)
    refusals = [_check_offset(machine, new) or refusal_of(new) for new in request.offsets]
    taken = [new for new, refusal in zip(request.offsets, refusals, strict=True) if refusal is None]
    # Of a partition that is named again and again one record is enough: the last that is not refused.
    last = {(new.topic, new.partition): new for new in taken}
    room, grown_bytes = machine.room(request.client_host, now), 0
    most_chars = machine.settings.metadata_bytes_max
    left_out: dict[tuple[str, int], Refusal] = {}
    for place, new in last.items():
        key, value = OffsetKey(request.group_id, *place), _value(new, now, request.retention_ms)
        growth_bytes = machine.durable.growth_bytes(key, value)
        refusal = room.refusal(grown_bytes + growth_bytes) if growth_bytes > 0 else None
        more_chars = machine.durable.metadata_growth(key, value)
        if more_chars > 0 and machine.durable.metadata_chars(request.group_id) + more_chars > most_chars:
            refusal = Refusal.METADATA_TOO_LARGE
        if refusal is None:
            grown_bytes += max(growth_bytes, 0)
            machine.emit(effects, key, value, address=request.client_host)
        else:
            left_out[place] = refusal
    machine.grow(request.client_host, now, room, grown_bytes)
    if left_out:
        refusals = [
            refusal or left_out.get((new.topic, new.partition))
            for new, refusal in zip(request.offsets, refusals, strict=True)
        ]
    effects.reply(ticket, CommitReply(refusals=tuple(refusals)))
    return effects


def fetch(
    machine: GroupMachine, group_id: str, topic: str, partition: int, topic_id: TopicId | None
) -> OffsetValue | None:
    """The committed offset; None where there is none, or where it was committed to an earlier topic of this name."""
    value = machine.durable.offsets.get(group_id, {}).get((topic, partition))
    if value is None or (value.topic_id is not None and topic_id is not None and value.topic_id != topic_id):
        return None
    return value


def delete_offsets(
    machine: GroupMachine, request: DeleteOffsets
) -> tuple[Effects, Refusal | None, list[Refusal | None]]:
    """(effects, refusal of all, refusal of each partition). Topics that the group consumes are left alone."""
    effects = Effects()
    group = machine.find(request.group_id)
    if group is None:
        return effects, Refusal.GROUP_NOT_FOUND, []
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return effects, Refusal.GROUP_NOT_EMPTY, []
    refusals: list[Refusal | None] = []
    for topic, exists, partition in request.partitions:
        if not exists:
            refusals.append(Refusal.UNKNOWN_TOPIC)
        elif group.state is not GroupState.EMPTY and group.subscribes(topic):
            refusals.append(Refusal.SUBSCRIBED_TO_TOPIC)
        else:
            refusals.append(None)
            if (topic, partition) in machine.durable.offsets.get(request.group_id, {}):
                machine.emit(effects, OffsetKey(request.group_id, topic, partition), None)
    machine.forget_if_void(group)
    return effects, None, refusals


def expire(machine: GroupMachine, now: Now, group_id: str, places: Sequence[Place] | None = None) -> Effects:
    """Drops the group's offsets whose time is over, of all or of these places, then the group itself if it is empty and
    has none left.
    """
    effects = Effects()
    group = machine.find(group_id)
    if group is None:
        return effects
    base = _retention_base(group)
    for (topic, partition), value in _those_at(machine, group_id, places):
        if (
            base is not None
            and not (group.state is not GroupState.EMPTY and group.subscribes(topic))
            and _is_over(machine, now, value, base)
        ):
            machine.emit(effects, OffsetKey(group_id, topic, partition), None)
    _delete_if_idle(machine, effects, group)
    return effects


def drop_some(machine: GroupMachine, group_id: str, count_max: int) -> Effects:
    """Drops so many of the group's offsets, of whatever topics."""
    effects = Effects()
    for topic, partition in list(islice(machine.durable.offsets.get(group_id, {}), count_max)):
        machine.emit(effects, OffsetKey(group_id, topic, partition), None)
    return effects


def drop_topics(
    machine: GroupMachine, is_gone: Callable[[str, TopicId | None], bool], parts: Iterable[GroupPart]
) -> Effects:
    """Drops the offsets of topics that were deleted. `is_gone(name, id)`; the id is None where the record had none."""
    effects = Effects()
    for group_id, places in parts:
        for (topic, partition), value in _those_at(machine, group_id, places):
            if is_gone(topic, value.topic_id):
                machine.emit(effects, OffsetKey(group_id, topic, partition), None)
        machine.step.touched.add(group_id)
        group = machine.groups.get(group_id)
        if group is not None:
            machine.forget_if_void(group)
    return effects


def _those_at(machine: GroupMachine, group_id: str, places: Sequence[Place] | None) -> list[tuple[Place, OffsetValue]]:
    """The group's offsets, all or those of these places that there are."""
    offsets = machine.durable.offsets.get(group_id, {})
    return (
        list(offsets.items()) if places is None else [(place, offsets[place]) for place in places if place in offsets]
    )


def _check_commit(machine: GroupMachine, group: Group | None, request: Commit) -> Refusal | None:
    if group is None:
        if request.generation >= 0:
            return Refusal.GROUP_NOT_FOUND
        if not machine.can_be_called(request.group_id):
            return Refusal.INVALID_GROUP_ID
        return None if machine.may_found(request.client_host) else Refusal.TOO_MANY_GROUPS
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return None
    if request.generation < 0 and not request.member_id and request.instance_id is None:
        return Refusal.UNKNOWN_MEMBER
    refusal = group.check_member(request.member_id, request.instance_id)
    if refusal is not None:
        return refusal
    if request.generation != group.generation:
        return Refusal.ILLEGAL_GENERATION
    return Refusal.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING_REBALANCE else None


def _check_offset(machine: GroupMachine, new: NewOffset) -> Refusal | None:
    if new.topic_id is None:
        return Refusal.UNKNOWN_TOPIC
    if new.metadata is not None and len(new.metadata) > machine.settings.offset_metadata_max:
        return Refusal.METADATA_TOO_LARGE
    return None


def _value(new: NewOffset, now: Now, retention_ms: int) -> OffsetValue:
    metadata = new.metadata or ""
    if retention_ms >= 0:
        expire_ms = min(now.wall_ms + retention_ms, EXPIRE_MS_MAX)
        return OffsetValue(
            new.offset, metadata=metadata, commit_ms=now.wall_ms, expire_ms=expire_ms, topic_id=new.topic_id
        )
    return OffsetValue(new.offset, new.leader_epoch, metadata, now.wall_ms, topic_id=new.topic_id)


def _retention_base(group: Group) -> Callable[[OffsetValue], int] | None:
    """From when an offset's retention counts; None: nothing of the group expires now.

    An offset that a tool commits to a group that has long been empty counts from its commit (Kafka drops it at the next
    look).
    """
    if not group.protocol_type:
        return lambda value: value.commit_ms
    if group.state is GroupState.EMPTY:
        return lambda value: max(group.state_ms, value.commit_ms)
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.topics is not None:
        return lambda value: value.commit_ms
    return None


def _is_over(machine: GroupMachine, now: Now, value: OffsetValue, base: Callable[[OffsetValue], int]) -> bool:
    if value.expire_ms >= 0:
        return now.wall_ms >= value.expire_ms
    return now.wall_ms - base(value) >= machine.settings.offsets_retention_ms


def _delete_if_idle(machine: GroupMachine, effects: Effects, group: Group) -> None:
    if group.state is not GroupState.EMPTY or group.pending or group.group_id in machine.durable.offsets:
        return
    if group.group_id in machine.durable.groups:
        machine.emit(effects, GroupKey(group.group_id), None)
    machine.forget_if_void(group)
