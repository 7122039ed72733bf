"""Scenarios of consumer groups as transcripts: `group_transcripts/*.txt` hold commands (`> ...`) and what came of them.

Run with BMQ_REWRITE=1 to write the files anew; a person reviews the diff.

    > join NAME [member=ID] [instance=I] [topics=a,b] [protocols=p,q] [type=T] [session=MS] [rebalance=MS] [version=N]
    > sync NAME member=ID gen=N [instance=I] [assign=ID:text,...] [protocol=P]
    > beat member=ID gen=N [instance=I]            > leave [ID|@instance]...
    > commit [member=ID] [gen=N] [retention=MS] topic/partition=offset...
    > fetch [topic/partition]...                    > delete-offsets topic/partition...
    > wait MS      > state      > restart      > expire      > delete      > drop TOPIC

NAME stands for the request: its reply may come much later. Fresh member ids are `<name>-<n>`. The group is `g`
throughout.
"""

import struct
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest
from tests.transcripts import holds

from bmq.values import TopicId
from bmq_broker.coordinators.groups import admin, membership, offsets, timeouts
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from bmq_broker.coordinators.groups.requests import (
    Commit,
    CommitReply,
    DeleteOffsets,
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    Leaver,
    NewOffset,
    Now,
    Refusal,
    Sync,
    SyncReply,
    Ticket,
)
from bmq_broker.coordinators.groups.settings import GroupSettings

TRANSCRIPTS = sorted((Path(__file__).parent / "group_transcripts").glob("*.txt"))
WALL_START_MS = 1_000_000


def subscription(topics: str) -> bytes:
    names = [name.encode() for name in topics.split(",")] if topics else []
    return (
        struct.pack(">hi", 1, len(names))
        + b"".join(struct.pack(">h", len(name)) + name for name in names)
        + b"\xff\xff\xff\xff"
    )


class Script:
    """Runs commands on one machine and says what happened."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.machine = GroupMachine(self.settings)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ms = 0
        self.names: dict[Ticket, str] = {}
        self.ids = 0
        self.said: list[str] = []

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_START_MS + self.ms)

    def run(self, line: str) -> list[str]:
        self.said = []
        command, *words = line.split()
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        getattr(self, "do_" + command.replace("-", "_"))(plain, pairs)
        durable = DurableState()
        for key, value in self.log:
            found = decode_key(key)
            assert found is not None
            durable.replay(found, None if value is None else decode_value(found, value))
        assert durable == self.machine.durable, "what was appended is not what is in memory"
        return self.said

    def ticket(self, name: str) -> Ticket:
        ticket = Ticket(len(self.names))
        self.names[ticket] = name
        return ticket

    def carry_out(self, effects: Effects) -> None:
        for key, value, _ in effects.records:
            self.log.append((encode_key(key), None if value is None else encode_value(value)))
            self.said.append(f"log: {describe_record(key, value)}")
        for ticket, reply in effects.replies:
            assert reply is not None
            self.said.append(f"{self.names[ticket]}: {describe_reply(reply)}")

    def do_join(self, plain: list[str], pairs: dict[str, str]) -> None:
        (name,) = plain
        self.ids += 1
        metadata = subscription(pairs.get("topics", "t"))
        version = int(pairs.get("version", 9))
        request = Join(
            group_id="g",
            member_id=pairs.get("member", ""),
            fresh_id=f"{name}-{self.ids}",
            instance_id=pairs.get("instance"),
            client_id=name,
            client_host="host",
            session_timeout_ms=int(pairs.get("session", 10_000)),
            rebalance_timeout_ms=int(pairs.get("rebalance", 60_000)),
            protocol_type=pairs.get("type", "consumer"),
            protocols=tuple((protocol, metadata) for protocol in pairs.get("protocols", "range").split(",")),
            requires_known_member=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.carry_out(membership.join(self.machine, self.now, request, self.ticket(name)))

    def do_sync(self, plain: list[str], pairs: dict[str, str]) -> None:
        assigned = [one.split(":") for one in pairs.get("assign", "").split(",") if one]
        request = Sync(
            group_id="g",
            generation=int(pairs["gen"]),
            member_id=pairs["member"],
            instance_id=pairs.get("instance"),
            protocol_type=pairs.get("type"),
            protocol_name=pairs.get("protocol"),
            assignments={member: text.encode() for member, text in assigned},
        )
        self.carry_out(membership.sync(self.machine, self.now, request, self.ticket(plain[0])))

    def do_beat(self, plain: list[str], pairs: dict[str, str]) -> None:
        request = Heartbeat(
            group_id="g", generation=int(pairs["gen"]), member_id=pairs["member"], instance_id=pairs.get("instance")
        )
        self.carry_out(membership.heartbeat(self.machine, self.now, request, self.ticket("beat")))

    def do_leave(self, plain: list[str], pairs: dict[str, str]) -> None:
        leavers = tuple(Leaver("", word[1:]) if word.startswith("@") else Leaver(word, None) for word in plain)
        effects, refusals = membership.leave(self.machine, self.now, Leave(group_id="g", leavers=leavers))
        self.carry_out(Effects(records=effects.records))
        self.said.append(
            "leave: " + " ".join(f"{word}={name_of(refusal)}" for word, refusal in zip(plain, refusals, strict=True))
        )
        self.carry_out(Effects(replies=effects.replies))

    def do_commit(self, plain: list[str], pairs: dict[str, str]) -> None:
        places = [(place.split("/"), offset) for place, offset in pairs.items() if "/" in place]
        request = Commit(
            group_id="g",
            generation=int(pairs.get("gen", -1)),
            member_id=pairs.get("member", ""),
            instance_id=pairs.get("instance"),
            retention_ms=int(pairs.get("retention", -1)),
            offsets=[
                NewOffset(topic, topic_id(topic), int(index), int(offset), 0, pairs.get("note"))
                for (topic, index), offset in places
            ],
        )
        self.carry_out(offsets.commit(self.machine, self.now, request, self.ticket("commit")))

    def do_fetch(self, plain: list[str], pairs: dict[str, str]) -> None:
        if not plain:
            found = " ".join(
                f"{topic}/{index}={value.offset}"
                for (topic, index), value in sorted(self.machine.durable.offsets.get("g", {}).items())
            )
            self.said.append(f"fetch: {found or 'nothing'}")
        for place in plain:
            topic, index = place.split("/")
            value = offsets.fetch(self.machine, "g", topic, int(index), topic_id(topic))
            self.said.append(f"fetch: {place}={-1 if value is None else value.offset}")

    def do_delete_offsets(self, plain: list[str], pairs: dict[str, str]) -> None:
        places = [(place.split("/")[0], True, int(place.split("/")[1])) for place in plain]
        effects, refusal, refusals = offsets.delete_offsets(
            self.machine, DeleteOffsets(group_id="g", partitions=places)
        )
        self.carry_out(effects)
        self.said.append(f"delete-offsets: {name_of(refusal)} {[name_of(one) for one in refusals]}")

    def do_wait(self, plain: list[str], pairs: dict[str, str]) -> None:
        end_ms = self.ms + int(plain[0])
        while (next_ms := self.machine.timers.next_ms()) is not None and next_ms <= end_ms:
            self.ms = max(self.ms, next_ms)
            effects = timeouts.fire_next(self.machine, self.now)
            if effects is not None:
                if effects.records or effects.replies:
                    self.said.append(f"at {self.ms} ms")
                self.carry_out(effects)
        self.ms = end_ms

    def do_state(self, plain: list[str], pairs: dict[str, str]) -> None:
        found = admin.describe(self.machine, "g")
        if found is None:
            self.said.append("no group")
            return
        members = " ".join(
            member.member_id + (f"={member.assignment.decode()}" if member.assignment else "")
            for member in found.members
        )
        self.said.append(f"{found.state.value} {found.protocol_type or '-'} {found.protocol or '-'} [{members}]")

    def do_restart(self, plain: list[str], pairs: dict[str, str]) -> None:
        durable = DurableState()
        for key, value in self.log:
            found = decode_key(key)
            assert found is not None
            durable.replay(found, None if value is None else decode_value(found, value))
        self.machine = GroupMachine(self.settings, durable)
        self.carry_out(timeouts.start(self.machine, self.now))

    def do_expire(self, plain: list[str], pairs: dict[str, str]) -> None:
        self.carry_out(offsets.expire(self.machine, self.now, "g"))

    def do_delete(self, plain: list[str], pairs: dict[str, str]) -> None:
        effects, refusal = admin.delete_group(self.machine, self.now, "g")
        self.carry_out(effects)
        self.said.append(f"delete: {name_of(refusal)}")

    def do_drop(self, plain: list[str], pairs: dict[str, str]) -> None:
        self.carry_out(offsets.drop_topics(self.machine, lambda name, _: name == plain[0], [offsets.GroupPart("g")]))


def topic_id(name: str) -> TopicId | None:
    return None if name == "missing" else TopicId(uuid5(NAMESPACE_OID, name))


def name_of(refusal: Refusal | None) -> str:
    return "ok" if refusal is None else refusal.name


def describe_reply(reply: object) -> str:
    match reply:
        case JoinReply(refusal=None):
            members = " ".join(member.member_id for member in reply.members)
            skip = " skip-assignment" if reply.skip_assignment else ""
            return (
                f"joined as {reply.member_id} gen={reply.generation} {reply.protocol_name} "
                f"leader={reply.leader} [{members}]{skip}"
            )
        case JoinReply():
            return f"{name_of(reply.refusal)} member={reply.member_id!r}"
        case SyncReply(refusal=None):
            return f"assigned {reply.assignment.decode()!r} by {reply.protocol_name}"
        case SyncReply() | HeartbeatReply():
            return name_of(reply.refusal)
        case CommitReply():
            return name_of(reply.refusal) if reply.refusal else " ".join(name_of(one) for one in reply.refusals)
        case _:
            raise AssertionError(reply)


def describe_record(key: object, value: object) -> str:
    match key, value:
        case OffsetKey(), None:
            return f"{key.topic}/{key.partition} gone"
        case OffsetKey(), OffsetValue():
            expiry = f" until {value.expire_ms - WALL_START_MS}" if value.expire_ms >= 0 else ""
            return f"{key.topic}/{key.partition}={value.offset}{expiry}"
        case GroupKey(), None:
            return "group gone"
        case GroupKey(), GroupValue():
            members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in value.members)
            return f"group gen={value.generation} {value.protocol or '-'} leader={value.leader or '-'} [{members}]"
        case _:
            raise AssertionError(key, value)


def replayed(text: str) -> str:
    """The transcript with what really happens."""
    script: Script | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> settings "):
            script = Script(**{name: int(value) for name, value in (word.split("=") for word in line.split()[2:])})
            lines.append(line)
        elif line.startswith("> "):
            script = script or Script(initial_rebalance_delay_ms=0)
            lines.append(line)
            lines += [f"    {said}" for said in script.run(line[2:])]
        elif not line.startswith("    "):
            lines.append(line)
            script = None if line.startswith("# ") else script
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_group_behaves_as_its_transcript_says(path: Path) -> None:
    holds(path, replayed(path.read_text()))
