"""The group machine: every group of one partition of `__consumer_offsets`, as a pure function of what it is told.

    operation(now, request, ticket) -> Effects(records, replies)

No async, no I/O, no clock, no logging. Records take effect here at once (`emit` replays them); whoever runs the machine
appends them, and sends replies only once they and all before them are durable. If that fails, the machine is thrown
away and a new one loads the log.

A record is encoded before it takes effect. A step that raises half-way, for that reason or any other, is taken back
(`taking_back`): its records are undone, and the groups that it touched are made anew from the log's state, as if only
they had moved here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bmq.fairness.address_buckets import AddressBuckets
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.group import Group
from bmq_broker.coordinators.groups.records import GroupValue, Key, Value, encode
from bmq_broker.coordinators.groups.requests import Now, Refusal, Reply, Ticket
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.tally import Tally
from bmq_broker.coordinators.groups.timers import TimerKey, Timers


@dataclass(slots=True)
class Memory:
    """What all coordinators of a broker take together: what members say, and what is stored; and how fast the latter
    grows, and is written anew, by whom.
    """

    members: Tally = field(default_factory=Tally)
    stored: Tally = field(default_factory=Tally)
    growth: AddressBuckets = field(default_factory=AddressBuckets)
    rewritten: AddressBuckets = field(default_factory=AddressBuckets)
    """Generations that are written anew, which makes nothing more."""


class Room(NamedTuple):
    """Bytes that a client's address may have more: of all on the broker, and at present."""

    here_bytes: int
    own_bytes: int

    def refusal(self, size_bytes: int) -> Refusal | None:
        """Why so much more cannot be stored. What is not more always can: whoever is in goes on."""
        if size_bytes <= 0:
            return None
        if size_bytes > self.here_bytes:
            return Refusal.STORED_TOO_MUCH
        return Refusal.STORED_TOO_FAST if size_bytes > self.own_bytes else None


class NewRecord(NamedTuple):
    """A record with its bytes. `value` None is a tombstone."""

    key: Key
    value: Value | None
    raw: tuple[bytes, bytes | None]


@dataclass(slots=True)
class Effects:
    """What an operation leads to: records to append, in order, and replies, among them to requests held since
    earlier.
    """

    records: list[NewRecord] = field(default_factory=list)
    replies: list[tuple[Ticket, Reply | None]] = field(default_factory=list)

    def reply(self, ticket: Ticket, reply: Reply | None) -> None:
        self.replies.append((ticket, reply))


@dataclass(slots=True)
class Step:
    """What an operation has changed so far: what stood in the log's state before each of its records, whose soft state
    it may have changed, and what it took of addresses' shares.
    """

    before: list[tuple[Key, Value | None]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    shares: list[tuple[AddressBuckets, str, int]] = field(default_factory=list)


class GroupMachine:
    """State that the operations in this folder work on. `groups` is soft, `durable` is the log's."""

    def __init__(
        self, settings: GroupSettings, durable: DurableState | None = None, *, memory: Memory | None = None
    ) -> None:
        """`memory`: what all coordinators of this broker take together."""
        memory = Memory() if memory is None else memory
        self.settings = settings
        self.durable = DurableState() if durable is None else durable
        self.groups: dict[str, Group] = {}
        """Changed by `put` and `drop` alone."""
        self._without_offsets = 0
        """How many of them have no offsets."""
        self._founders: dict[str, str] = {}
        """The addresses of those who made the groups that there are, where that is known."""
        self._founded: Counter[str] = Counter()
        self.timers = Timers()
        self.tally = Tally(whole=memory.members)
        self.durable.tally.join(memory.stored)
        self._growth = memory.growth
        self._rewritten = memory.rewritten
        self.step = Step()

    def begin(self) -> None:
        """A new step: what came before it is not taken back any more."""
        self.step = Step()

    def emit(self, effects: Effects, key: Key, value: Value | None, *, address: str = "") -> None:
        """Adds a record, of a client at that address ("": of who made the group), and takes it in. Raises
        InvalidRequest, before anything changes, where it cannot be stored.
        """
        record = NewRecord(key, value, encode(key, value))
        before = self.durable.value_of(key)
        if isinstance(before, GroupValue) and isinstance(value, GroupValue):
            assert before.generation <= value.generation, (
                f"{key.group_id}: generation {value.generation} is to follow {before.generation}"
            )
        self.step.touched.add(key.group_id)
        self.step.before.append((key, before))
        effects.records.append(record)
        self.replay(key, value, address=address or self._founders.get(key.group_id, ""))

    def replay(self, key: Key, value: Value | None, *, address: str = "") -> None:
        """Takes into the log's state what one record of a client there says."""
        group_id = key.group_id
        had = group_id in self.durable.offsets
        is_new = not self._is_there(group_id)
        self.durable.replay(key, value, address=address)
        if group_id in self.groups:
            self._without_offsets += had - (group_id in self.durable.offsets)
        if is_new and value is not None:
            self._found(group_id, address)
        else:
            self._forget_founder(group_id)

    def _is_there(self, group_id: str) -> bool:
        return group_id in self.groups or self.durable.knows(group_id)

    def _found(self, group_id: str, address: str) -> None:
        if address:
            self._founders[group_id] = address
            self._founded[address] += 1

    def _forget_founder(self, group_id: str) -> None:
        """... unless the group is still there."""
        if group_id in self._founders and not self._is_there(group_id):
            address = self._founders.pop(group_id)
            self._founded[address] -= 1
            if not self._founded[address]:
                del self._founded[address]

    def put(self, group: Group) -> Group:
        """It is known from now on."""
        assert group.group_id not in self.groups, f"{group.group_id} is there already"
        self.groups[group.group_id] = group
        self._without_offsets += group.group_id not in self.durable.offsets
        return group

    def find(self, group_id: str) -> Group | None:
        """The group; one that has nothing but offsets appears as an empty one without a protocol type."""
        self.step.touched.add(group_id)
        group = self.groups.get(group_id)
        if group is None and group_id in self.durable.offsets:
            group = self.put(Group(group_id, tally=self.tally, founder=self._founders.get(group_id, "")))
        return group

    def is_empty(self, group_id: str) -> bool:
        """Whether there is such a group, and nobody in it."""
        group = self.groups.get(group_id)
        return group_id in self.durable.offsets if group is None else group.state is GroupState.EMPTY

    def has_room(self, size_bytes: int, *, address: str) -> bool:
        """Whether groups may take so much more memory for a client there: an address has no more than it leaves. What
        is not more they always may: whoever is in goes on.
        """
        return size_bytes <= 0 or self.tally.everywhere_for(address) + size_bytes <= self.room_bytes

    @property
    def room_bytes(self) -> int:
        """How much more groups may take; below 0 after the limit was lowered, or where more was loaded."""
        return self.settings.members_bytes_max - self.tally.everywhere_bytes

    def room(self, client_host: str, now: Now) -> "Room":
        """How much more may be stored for a client: an address has no more than it leaves."""
        settings, tally = self.settings, self.durable.tally
        here = (settings.stored_bytes_max - tally.everywhere_bytes - tally.everywhere_for(client_host)) // 2
        own = self._growth.left(
            client_host,
            now.loop_ms,
            burst=settings.stored_burst_bytes,
            per_time=settings.stored_per_minute_bytes / 60_000,
        )
        return Room(here, int(own))

    def grow(self, client_host: str, now: Now, room: "Room", size_bytes: int) -> None:
        """A client had so much more stored."""
        if size_bytes > 0:
            self._take(self._growth, client_host, now, left=room.own_bytes, size_bytes=size_bytes)

    def rewrite(self, client_host: str, now: Now, size_bytes: int) -> bool:
        """Whether so much more of what is there may be written anew for a client now; if so, it is counted."""
        burst, per_minute = self.settings.rewritten_burst_bytes, self.settings.rewritten_per_minute_bytes
        left = self._rewritten.left(client_host, now.loop_ms, burst=burst, per_time=per_minute / 60_000)
        if size_bytes > left:
            return False
        self._take(self._rewritten, client_host, now, left=left, size_bytes=size_bytes)
        return True

    def _take(self, shares: AddressBuckets, client_host: str, now: Now, *, left: float, size_bytes: int) -> None:
        shares.take(client_host, now.loop_ms, left=left, taken=size_bytes)
        self.step.shares.append((shares, client_host, size_bytes))

    def end(self) -> None:
        """What it has counts towards nothing any more."""
        self.tally.join(None)
        self.durable.tally.join(None)

    def create(self, group_id: str, *, founder: str) -> Group | None:
        """A new, empty group for a client at that address; None where there are too many already."""
        if not self.may_found(founder):
            return None
        self.step.touched.add(group_id)
        self._found(group_id, founder)
        return self.put(Group(group_id, tally=self.tally, founder=founder))

    def can_be_called(self, group_id: str) -> bool:
        """Whether a new group may have this name."""
        size_bytes_max = self.settings.group_name_bytes_max
        return 4 * len(group_id) <= size_bytes_max or len(group_id.encode()) <= size_bytes_max

    def may_found(self, address: str) -> bool:
        """Whether there is room for one more group of a client there: an address has made no more of those that there
        are than it leaves. One that only has offsets counts like any other.
        """
        return self._founded[address] < self.settings.group_count_max - self.group_count

    @property
    def group_count(self) -> int:
        """All groups, those included that have nothing but offsets; known without looking through them."""
        return len(self.durable.offsets) + self._without_offsets

    def drop(self, group_id: str) -> Group | None:
        """The group is nobody's any more; its timers are the caller's business."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.end()
            self._without_offsets -= group_id not in self.durable.offsets
            self._forget_founder(group_id)
        return group

    def forget_if_void(self, group: Group) -> None:
        """Drops a group that is nothing but a name: nobody in it, nothing in the log."""
        if (
            group.state is GroupState.EMPTY
            and not group.members
            and not group.pending
            and not self.durable.knows(group.group_id)
        ):
            self.drop(group.group_id)

    def touch(self, group: Group, member_id: str, now: Now, *, timeout_ms: int | None = None) -> None:
        """The member was heard: its session starts anew."""
        if timeout_ms is None:
            timeout_ms = group.members[member_id].session_timeout_ms
        self.timers.set(TimerKey("session", group.group_id, member_id), now.loop_ms + timeout_ms)

    def drop_session(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        self.timers.cancel(TimerKey("session", group_id, member_id))

    def held(self) -> Sequence[Ticket]:
        """Requests that wait for an answer."""
        return [
            ticket for group in self.groups.values() for held in (group.joins, group.syncs) for ticket in held.values()
        ]


class Turn(NamedTuple):
    """An operation on one group while it runs."""

    machine: GroupMachine
    effects: Effects
    group: Group
    now: Now
