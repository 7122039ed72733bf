"""Random interleavings of joins, syncs, heartbeats, leaves, commits, time and restarts: what must hold of a group
whatever happens.
"""

from collections import Counter
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_group_transcripts import subscription, topic_id

from bmq_broker.coordinators.groups import membership, offsets, timeouts
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.group import Group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.records import Key, Value, decode_key, decode_value, encode_key, encode_value
from bmq_broker.coordinators.groups.requests import (
    Commit,
    CommitReply,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Leaver,
    NewOffset,
    Now,
    Reply,
    Sync,
    SyncReply,
    Ticket,
)
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.snapshot import decode_state, encode_state
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.timers import TimerKey, Timers

INSTANCES = ["I", "J"]
PROTOCOLS = [("range",), ("sticky", "range"), ("range", "sticky"), ("sticky",)]


class GroupWorld(RuleBasedStateMachine):
    """One group under a crowd of clients. `ids` are member ids that somebody was ever given."""

    @initialize(delay_ms=st.sampled_from([0, 3000]), size_max=st.sampled_from([2, 5]))
    def start(self, delay_ms: int, size_max: int) -> None:
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=delay_ms, group_size_max=size_max, offsets_retention_ms=120_000
        )
        self.machine = GroupMachine(self.settings)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ms = 0
        self.tickets = count()
        self.fresh = count()
        self.open: set[Ticket] = set()
        self.ids: list[str] = ["nobody"]
        self.generations: dict[tuple[int, int], str | None] = {}
        """Protocol by (life of the machine, generation)."""
        self.life = 0
        self.committed: dict[int, int] = {}
        self.commits: dict[Ticket, list[NewOffset]] = {}

    @property
    def now(self) -> Now:
        return Now(self.ms, 1_000_000 + self.ms)

    def ticket(self) -> Ticket:
        ticket = Ticket(next(self.tickets))
        self.open.add(ticket)
        return ticket

    def carry_out(self, effects: Effects) -> None:
        self.log += (
            (encode_key(key), None if value is None else encode_value(value)) for key, value, _ in effects.records
        )
        for ticket, reply in effects.replies:
            assert ticket in self.open, "a request was answered twice"
            self.open.discard(ticket)
            assert reply is not None
            self.check_reply(ticket, reply)

    def check_reply(self, ticket: Ticket, reply: Reply) -> None:
        match reply:
            case JoinReply(refusal=None):
                group = self.machine.groups["g"]
                assert reply.member_id in group.members
                known = self.generations.setdefault((self.life, reply.generation), reply.protocol_name)
                assert reply.protocol_name == known, "two members of a generation got different protocols"
                if reply.members:
                    assert reply.leader == reply.member_id == group.leader
                self.remember(reply.member_id)
            case JoinReply():
                self.remember(reply.member_id)
            case CommitReply(refusal=None):
                self.committed |= {new.partition: new.offset for new in self.commits[ticket]}
            case _:
                pass

    def remember(self, member_id: str) -> None:
        if member_id and member_id not in self.ids:
            self.ids.append(member_id)

    @rule(
        data=st.data(),
        instance=st.sampled_from([None, None, *INSTANCES]),
        protocols=st.sampled_from(PROTOCOLS),
        topics=st.sampled_from(["t", "t", "t,u"]),
        version=st.sampled_from([3, 5, 9]),
    )
    def join(
        self, data: st.DataObject, instance: str | None, protocols: tuple[str, ...], topics: str, version: int
    ) -> None:
        request = Join(
            group_id="g",
            member_id="" if data.draw(st.booleans()) else data.draw(st.sampled_from(self.ids)),
            fresh_id=f"m{next(self.fresh)}",
            instance_id=instance,
            client_id="c",
            client_host=data.draw(st.sampled_from(["h", "i"])),
            session_timeout_ms=data.draw(st.sampled_from([6_000, 20_000])),
            rebalance_timeout_ms=data.draw(st.sampled_from([0, 1, 5_000, 30_000])),
            protocol_type="consumer",
            protocols=tuple((name, subscription(topics)) for name in protocols),
            requires_known_member=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.carry_out(membership.join(self.machine, self.now, request, self.ticket()))
        self.ids += [
            member_id
            for group in self.machine.groups.values()
            for member_id in group.members
            if member_id not in self.ids
        ]

    def some_member(self, data: st.DataObject) -> tuple[str, str | None, int]:
        """(member id, instance id, generation), mostly true ones."""
        group = self.machine.groups.get("g")
        if group is None or not group.members or data.draw(st.integers(0, 9)) == 0:
            return (
                data.draw(st.sampled_from(self.ids)),
                data.draw(st.sampled_from([None, *INSTANCES])),
                data.draw(st.integers(-1, 5)),
            )
        member = group.members[data.draw(st.sampled_from(sorted(group.members)))]
        return member.member_id, member.instance_id, group.generation

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member_id, instance, generation = self.some_member(data)
        group = self.machine.groups.get("g")
        assignments = {} if group is None else {other: f"{other} at {generation}".encode() for other in group.members}
        request = Sync(
            group_id="g",
            generation=generation,
            member_id=member_id,
            instance_id=instance,
            protocol_type=None,
            protocol_name=None,
            assignments=assignments,
        )
        self.carry_out(membership.sync(self.machine, self.now, request, self.ticket()))

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        member_id, instance, generation = self.some_member(data)
        request = Heartbeat(group_id="g", generation=generation, member_id=member_id, instance_id=instance)
        self.carry_out(membership.heartbeat(self.machine, self.now, request, self.ticket()))

    @rule(data=st.data(), by_instance=st.booleans())
    def leave(self, data: st.DataObject, by_instance: bool) -> None:
        member_id, instance, _ = self.some_member(data)
        leaver = Leaver("", instance) if by_instance else Leaver(member_id, instance)
        self.carry_out(membership.leave(self.machine, self.now, Leave(group_id="g", leavers=(leaver,)))[0])

    @rule(data=st.data(), partition=st.integers(0, 2))
    def commit(self, data: st.DataObject, partition: int) -> None:
        member_id, instance, generation = self.some_member(data)
        news = [NewOffset("t", topic_id("t"), partition, self.committed.get(partition, 0) + 1, 0, None)]
        request = Commit(
            group_id="g",
            generation=generation,
            member_id=member_id,
            instance_id=instance,
            retention_ms=-1,
            offsets=news,
            client_host=data.draw(st.sampled_from(["h", "i"])),
        )
        ticket = self.ticket()
        self.commits[ticket] = news
        self.carry_out(offsets.commit(self.machine, self.now, request, ticket))

    @rule(wait_ms=st.sampled_from([1, 500, 3_000, 5_500, 40_000]))
    def wait(self, wait_ms: int) -> None:
        end_ms = self.ms + wait_ms
        for _ in range(1000):
            next_ms = self.machine.timers.next_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.ms = max(self.ms, next_ms)
            effects = timeouts.fire_next(self.machine, self.now)
            if effects is not None:
                self.carry_out(effects)
        else:
            raise AssertionError("deadlines never end")
        self.ms = end_ms

    @rule(by_snapshot=st.booleans())
    def restart(self, by_snapshot: bool) -> None:
        durable = decode_state(encode_state(self.machine.durable)) if by_snapshot else replayed(self.log)
        assert durable == self.machine.durable, "loading and running live are not the same"
        self.machine = GroupMachine(self.settings, durable)
        self.life += 1
        self.open.clear()
        self.carry_out(timeouts.start(self.machine, self.now))

    @precondition(lambda self: self.ms > 0)
    @rule()
    def silence(self) -> None:
        """Nobody says anything for an hour: whoever waits is answered, and the group is empty."""
        for _ in range(60):
            self.wait(60_000)
        assert not self.open
        group = self.machine.groups.get("g")
        assert group is None or (group.state is GroupState.EMPTY and not group.members and not group.pending)
        assert len(self.machine.timers) == 0

    @rule()
    def expire(self) -> None:
        before = {key: value for (_, key), value in self.machine.durable.offsets.get("g", {}).items()}
        self.carry_out(offsets.expire(self.machine, self.now, "g"))
        after = {key for _, key in self.machine.durable.offsets.get("g", {})}
        for partition, value in before.items():
            if partition not in after:
                assert self.now.wall_ms - value.commit_ms >= self.settings.offsets_retention_ms
                del self.committed[partition]

    @invariant()
    def replay_equals_live(self) -> None:
        if hasattr(self, "machine"):
            assert replayed(self.log) == self.machine.durable

    @invariant()
    def groups_are_counted_once_and_what_they_take_is_theirs(self) -> None:
        if hasattr(self, "machine"):
            machine = self.machine
            assert machine.group_count == len(machine.groups.keys() | machine.durable.offsets.keys())
            assert machine.tally.size_bytes == sum(group.size_bytes for group in machine.groups.values())
            stored = machine.durable.tally
            assert all(size_bytes > 0 for size_bytes in (machine.tally.by_address | stored.by_address).values())
            assert stored.by_address.total() <= stored.size_bytes
            assert stored.by_address == sum(machine.durable._writers.values(), Counter())
            assert machine._founders.keys() <= machine.groups.keys() | machine.durable.offsets.keys()
            assert machine._founded == Counter(machine._founders.values())

    @invariant()
    def committed_offsets_stay(self) -> None:
        if hasattr(self, "machine"):
            assert {
                partition: value.offset for _, _, partition, value in self.machine.durable.all_offsets()
            } == self.committed

    @invariant()
    def group_holds_together(self) -> None:
        group = self.machine.groups.get("g") if hasattr(self, "machine") else None
        if group is None:
            if hasattr(self, "machine"):
                self.life += 1  # A group of that name would begin with generation 1 again.
            return
        members = set(group.members)
        assert len(members) <= self.settings.group_size_max
        assert not members & group.pending.keys(), "an id is a member and pending"
        assert group.static == {
            member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None
        }
        assert set(group.joins) <= members
        assert set(group.syncs) <= members
        assert group.unsynced <= members
        assert len(self.open) == len(group.joins) + len(group.syncs), "a request is neither answered nor held"
        assert (group.leader in members) if members else group.leader is None
        assert group.joins == {} or group.state is GroupState.PREPARING_REBALANCE
        assert group.joins == {} or TimerKey("join", "g") in self.machine.timers, "a rebalance has no end"
        assert group.syncs == {} or group.state is GroupState.COMPLETING_REBALANCE
        assert bool(members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        if group.state is GroupState.STABLE:
            stored = self.machine.durable.groups["g"]
            assert stored == group.to_value(), "a stable group is not as it is stored"
            assert Group.restore("g", stored).to_value() == stored


def replayed(log: list[tuple[bytes, bytes | None]]) -> DurableState:
    state = DurableState()
    for raw_key, raw_value in log:
        key: Key | None = decode_key(raw_key)
        assert key is not None
        value: Value | None = None if raw_value is None else decode_value(key, raw_value)
        state.replay(key, value)
    return state


GroupWorld.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestGroupWorld = GroupWorld.TestCase


def test_sync_replies_of_a_generation_come_from_one_assignment() -> None:
    """The dumbest full run: three members, one leader, each gets what the leader wrote for it."""
    machine = GroupMachine(GroupSettings(initial_rebalance_delay_ms=1))
    replies: dict[Ticket, Reply | None] = {}
    for index in range(3):
        request = Join(
            group_id="g",
            member_id="",
            fresh_id=f"m{index}",
            instance_id=None,
            client_id="c",
            client_host="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="anything",
            protocols=(("p", b"x"),),
            requires_known_member=False,
            can_skip_assignment=True,
        )
        replies |= dict(membership.join(machine, Now(0, 0), request, Ticket(index)).replies)
    assert replies == {}
    fired = [timeouts.fire_next(machine, Now(at_ms, at_ms)) for at_ms in (1, 2)]
    replies |= dict(reply for effects in fired if effects is not None for reply in effects.replies)
    joined = [reply for reply in replies.values() if isinstance(reply, JoinReply)]
    assert [len(reply.members) for reply in joined] == [3, 0, 0]
    synced: dict[Ticket, Reply | None] = {}
    for index in (2, 1, 0):
        sync = Sync(
            group_id="g",
            generation=1,
            member_id=f"m{index}",
            instance_id=None,
            protocol_type="anything",
            protocol_name="p",
            assignments={f"m{other}": b"%d" % other for other in range(3)} if index == 0 else {},
        )
        synced |= dict(membership.sync(machine, Now(3, 3), sync, Ticket(10 + index)).replies)
    assert {ticket: reply.assignment for ticket, reply in synced.items() if isinstance(reply, SyncReply)} == {
        10: b"0",
        11: b"1",
        12: b"2",
    }


timer_keys = st.sampled_from([TimerKey("session", "g", member_id) for member_id in "abc"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(timer_keys, st.none() | st.integers(0, 50)) | st.integers(0, 60), max_size=40))
def test_timers_agree_with_a_dictionary(steps: list[tuple[TimerKey, int | None] | int]) -> None:
    timers, dumb = Timers(), {}
    for step in steps:
        if isinstance(step, int):
            due = set()
            while (key := timers.pop_due(step)) is not None:
                due.add(key)
            assert due == {key for key, at_ms in dumb.items() if at_ms <= step}
            dumb = {key: at_ms for key, at_ms in dumb.items() if at_ms > step}
        elif step[1] is None:
            timers.cancel(step[0])
            dumb.pop(step[0], None)
        else:
            timers.set(step[0], step[1])
            dumb[step[0]] = step[1]
        assert len(timers) == len(dumb)
        next_ms = timers.next_ms()
        assert not dumb or (next_ms is not None and next_ms <= min(dumb.values()))
