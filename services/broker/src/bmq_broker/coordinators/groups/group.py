"""One classic group as it lives in memory: its members, who waits for what, and what can be concluded from them.

All of this is soft: after a restart it is made anew from the stored generation (`Group.restore`). Nothing here decides
a transition; that is `rebalance` and the operations.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bmq.naming.lanes import lane_group, name_in_lane
from bmq_broker.coordinators.groups.records import GroupValue, MemberValue, group_size_bytes
from bmq_broker.coordinators.groups.requests import Refusal, Ticket
from bmq_broker.coordinators.groups.states import GroupEvent, GroupState, next_state
from bmq_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, topics_of
from bmq_broker.coordinators.groups.tally import Tally, text_bytes

Protocols = tuple[tuple[str, bytes], ...]


GROUP_BYTES: Final = 1_000
MEMBER_BYTES: Final = 1_000
"""About what a group and a member take beside their texts and metadata."""
PROTOCOL_BYTES: Final = 200
"""The same of a protocol in a member's offer: a pair, a name, a run of bytes, and the name among those that the group
supports."""
MEMBER_WRITTEN_BYTES: Final = 400
"""As much work as a member is in a record beside what it has in it."""
TOPIC_BYTES: Final = 150
"""The same of a topic that a generation subscribes to: a text, and its place in the set."""


def size_of(protocols: Protocols) -> int:
    """About the bytes that an offer takes in memory."""
    return sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols)


def said_bytes(protocols: Protocols) -> int:
    """The bytes that an offer has: what a record would hold of it."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. `is_new`: it has never been told of a generation, so it cannot heartbeat. `protocols` in its order of
    preference.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    weighed_bytes: int = 0
    weighed_for: str = ""
    said_bytes: int = 0
    counted_name_bytes: int = 0
    """What the group counts for it."""

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory, but for its assignment, which is the log's."""
        return MEMBER_BYTES + self.name_bytes + size_of(self.protocols)

    @property
    def name_bytes(self) -> int:
        """What it is called."""
        return sum(map(text_bytes, (self.member_id, self.instance_id, self.client_id, self.client_host)))

    def metadata(self, protocol: str | None) -> bytes:
        """What it said for this protocol; empty where it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


@dataclass(slots=True)
class Group:
    """`static` maps instance ids to member ids; `pending` are ids given out under KIP-394 that have not joined yet, and
    to which addresses. `founder`: the address of who joined first, "" where nobody knows.

    `joins` and `syncs` are the held requests, by member. `unsynced` are members of the generation whose SyncGroup has
    not come.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_ms: int = -1
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    joins: dict[str, Ticket] = field(default_factory=dict)
    syncs: dict[str, Ticket] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    topics: frozenset[str] | None = frozenset()
    """What the generation subscribes to; None: cannot be known (another protocol type, metadata that does not parse, or
    too much of it)."""
    topics_bytes: int = 0
    """What those count."""
    first_rebalance_left_ms: int | None = None
    """In the rebalance that leads out of Empty: how much longer it may be drawn out. None in any other."""
    member_came: bool = False
    """A member joined since the first rebalance was last drawn out."""
    tally: Tally = field(default_factory=Tally)
    size_bytes: int = 0
    """Its part of the tally."""
    said_bytes: int = 0
    """What all its members offer and are called: a part of it is the answer to who leads."""
    name_bytes: int = 0
    """What they are called."""
    record_bytes: int = 0
    """What its stored generation has, while it is Stable."""
    founder: str = ""
    _supporters: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._weigh(GROUP_BYTES + text_bytes(self.group_id), address=self.founder)

    @classmethod
    def restore(
        cls, group_id: str, value: GroupValue, *, tally: Tally | None = None, room_bytes: int | None = None
    ) -> "Group":
        """The group as the log knows it: Stable with the members of its generation, or Empty. `room_bytes` as of
        `learn_topics`.
        """
        group = cls(
            group_id,
            tally=tally if tally is not None else Tally(),
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            state_ms=value.state_ms,
            generation=value.generation,
            protocol_type=value.protocol_type,
            protocol=value.protocol,
        )
        for stored in value.members:
            group.add(
                Member(
                    member_id=stored.member_id,
                    instance_id=stored.instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    session_timeout_ms=stored.session_timeout_ms,
                    rebalance_timeout_ms=stored.rebalance_timeout_ms,
                    protocols=((value.protocol or "", stored.subscription),),
                    assignment=stored.assignment,
                )
            )
        group.leader = value.leader
        group.record_bytes = group_size_bytes(value)
        group.learn_topics(room_bytes)
        return group

    def to_value(self) -> GroupValue:
        """The generation as it is stored."""
        return GroupValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(
                MemberValue(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    @property
    def rewriting_bytes(self) -> int:
        """How much work it is to write its generation anew."""
        return self.record_bytes + MEMBER_WRITTEN_BYTES * len(self.members)

    @property
    def completing_bytes(self) -> int:
        """How much work it is to begin its next generation: its members are told of it, and who leads, of all of
        them.
        """
        return self.said_bytes + MEMBER_WRITTEN_BYTES * len(self.members)

    def move(self, event: GroupEvent, wall_ms: int) -> None:
        """To the state where the event leads."""
        self.state = next_state(self.state, event)
        self.state_ms = wall_ms

    def _weigh(self, size_bytes: int, *, address: str = "") -> None:
        assert self.size_bytes + size_bytes >= 0, (
            f"group {self.group_id} takes {self.size_bytes} bytes, and {-size_bytes} fewer"
        )
        self.size_bytes += size_bytes
        self.tally.add(size_bytes, address=address)

    def end(self) -> None:
        """It is nobody's any more: what it has counts no more, and nothing is done with it."""
        for member in self.members.values():
            self._weigh(-member.weighed_bytes, address=member.weighed_for)
        for member_id, address in self.pending.items():
            self._weigh(-MEMBER_BYTES - text_bytes(member_id), address=address)
        self._weigh(-self.topics_bytes)
        self._weigh(-self.size_bytes, address=self.founder)

    def expect(self, member_id: str, address: str) -> None:
        """The id is given out to a client there; whoever has it may join."""
        if member_id not in self.pending:
            self.pending[member_id] = address
            self._weigh(MEMBER_BYTES + text_bytes(member_id), address=address)

    def expect_no_more(self, member_id: str) -> None:
        """The id is used, or its time is over."""
        if member_id in self.pending:
            address = self.pending.pop(member_id)
            self._weigh(-MEMBER_BYTES - text_bytes(member_id), address=address)

    def add(self, member: Member) -> None:
        """The first member chooses the leader: itself. The caller has set the protocol type."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        assert member.instance_id is None or member.instance_id not in self.static, (
            f"{member.instance_id} is the member {self.static.get(member.instance_id or '')} already"
        )
        self.weigh(member)
        self.members[member.member_id] = member
        self._supporters.update({name for name, _ in member.protocols})
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.expect_no_more(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forgets the member; a leader's place goes to the oldest one left. Its held requests must have been answered
        before.
        """
        assert member_id in self.members, f"{member_id} is no member of {self.group_id}"
        assert member_id not in self.joins, f"{member_id} goes, and its JoinGroup waits"
        assert member_id not in self.syncs, f"{member_id} goes, and its SyncGroup waits"
        member = self.members.pop(member_id)
        self._weigh(-member.weighed_bytes, address=member.weighed_for)
        self.said_bytes -= member.said_bytes
        self.name_bytes -= member.counted_name_bytes
        member.weighed_bytes = member.said_bytes = member.counted_name_bytes = 0
        self._support_no_more(member.protocols)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.unsynced.discard(member_id)

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """A static member came back without its id: it gets a new one and keeps its assignment and, if it leads, its
        place.
        """
        old_id = self.static[instance_id]
        assert old_id not in self.joins, f"{old_id} is replaced, and its JoinGroup waits"
        assert old_id not in self.syncs, f"{old_id} is replaced, and its SyncGroup waits"
        leads = self.leader == old_id
        member = self.members[old_id]
        self.remove(old_id)
        member.member_id = new_id
        self.add(member)
        if leads:
            self.leader = new_id
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """The member's offer changed."""
        self._support_no_more(member.protocols)
        member.protocols = protocols
        self._supporters.update({name for name, _ in protocols})
        self.weigh(member)

    def weigh(self, member: Member) -> None:
        """What the member says or is called changed."""
        size_bytes = member.size_bytes
        self._weigh(-member.weighed_bytes, address=member.weighed_for)
        self._weigh(size_bytes, address=member.client_host)
        member.weighed_bytes, member.weighed_for = size_bytes, member.client_host
        named = member.name_bytes
        said = said_bytes(member.protocols) + named
        self.said_bytes += said - member.said_bytes
        self.name_bytes += named - member.counted_name_bytes
        member.said_bytes, member.counted_name_bytes = said, named

    def _support_no_more(self, protocols: Protocols) -> None:
        """A name that nobody offers is forgotten: a member may offer others each time that it joins."""
        supporters = self._supporters
        for name in {name for name, _ in protocols}:
            supporters[name] -= 1
            if not supporters[name]:
                del supporters[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with this offer can be a member: of the same type, with a protocol that all members have."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == len(self.members) for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """The one with most votes: each member votes for the first of its protocols that all have. Ties go to the
        earliest vote.
        """
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        assert candidates, "a member was let in that shares no protocol with the others"
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in candidates)] += 1
        return votes.most_common(1)[0][0]

    def subscription(self) -> frozenset[str] | None:
        """The topics of all members by their metadata for the chosen protocol; None where it cannot be told."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        return topics_of(member.metadata(self.protocol) for member in self.members.values())

    def learn_topics(self, room_bytes: int | None) -> None:
        """What the generation subscribes to, of what its members say now. Where that takes more than there is room for
        (None: there is), it cannot be told.
        """
        topics = self.subscription()
        size_bytes = sum(TOPIC_BYTES + text_bytes(topic) for topic in topics or ())
        if room_bytes is not None and size_bytes > room_bytes + self.topics_bytes:
            topics, size_bytes = None, 0
        self._weigh(size_bytes - self.topics_bytes)
        self.topics, self.topics_bytes = topics, size_bytes

    def subscribes(self, topic: str) -> bool:
        """Whether the group consumes the topic, by its name in the cluster, as far as anybody can tell; when in doubt,
        yes.

        A lane's members know its topics by other names, which may be those of the base's, too.
        """
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return (
            self.topics is None
            or topic in self.topics
            or (lane_group(self.group_id) is not None and name_in_lane(topic) in self.topics)
        )

    def consumes(self, topic: str, *, has_committed: Callable[[], bool]) -> bool:
        """Whether it has members that consume the topic. Of such that are no consumers nobody knows but what was
        committed.
        """
        if self.state is GroupState.EMPTY:
            return False
        return self.subscribes(topic) if self.protocol_type == CONSUMER_PROTOCOL_TYPE else has_committed()

    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def waits_for_none_but(self, member_id: str) -> bool:
        """Whether its rebalance ends when this one joins, "" a new member. It has to be one that ends as soon as nobody
        is missing.
        """
        others = len(self.members) - (member_id in self.members) - len(self.joins) + (member_id in self.joins)
        return self.first_rebalance_left_ms is None and others <= 0 and not self.pending.keys() - {member_id}

    def all_joined(self) -> bool:
        """Whether nobody has to be waited for."""
        return len(self.joins) == len(self.members) and not self.pending

    def check_member(self, member_id: str, instance_id: str | None) -> Refusal | None:
        """Whether this is a member, and its instance id not somebody else's by now."""
        if instance_id is not None:
            owner = self.static.get(instance_id)
            if owner is None:
                return Refusal.UNKNOWN_MEMBER
            if owner != member_id:
                return Refusal.FENCED_INSTANCE
        return None if member_id in self.members else Refusal.UNKNOWN_MEMBER
