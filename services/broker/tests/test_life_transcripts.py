"""Moves, take-overs and stops of real brokers as transcripts: `life_transcripts/*.txt` hold commands (`> ...`) and what
came of them, in order.

Run with BMQ_REWRITE=1 to write the files anew; a person reviews the diff.

    > start NODE...       > topic NAME owner=NODE            > append NAME VALUE [node=NODE]
    > fill NAME MIB       > roll NAME                        > read NAME
    > move NAME to=NODE   > fence NODE                       > kill NODE
    > hand-over NODE      > hand-over-begins NODE            > unreachable          > reachable
    > hold WHAT           > let-go WHAT                      > lose WHAT            > restore
    > delete NAME         > wait MS

The controller is what is unreachable. WHAT is a part of a key as the transcript writes it, `NODE:` before it for what
that node sends alone. `log` is the metadata log; `1/2` is the stream of node 1 in its second incarnation; `[0,3)` are
numbers in a stream. What a partition goes through at a broker has the words of bmq_broker.partitions.states.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from held_store import HeldStore
from moving_brokers import Brokers
from msgspec.structs import astuple
from tests.transcripts import holds

from bmq.errors import BmqError
from bmq.metadata.records import (
    AnyRecord,
    FencingBegun,
    NodeRegistered,
    NodeUnregistered,
    PartitionChange,
    PartitionMoveBegun,
    Range,
    RangesCovered,
    StreamDropped,
    StreamSealed,
    TopicCreated,
    TopicDeleted,
)
from bmq.roles.owner import Appended
from bmq.values import StreamId, TopicPartition
from bmq_broker.ownership.life import Life, Lives
from bmq_broker.partitions.states import PartitionState
from bmq_broker.settings import MIB
from bmq_sim.loop import run
from bmq_sim.store import SimStore

TRANSCRIPTS = sorted((Path(__file__).parent / "life_transcripts").glob("*.txt"))
SETTLES_MS = 20
"""After each command, in virtual time."""
FILLING = bytes(MIB // 2)
CHANGING = ("want", "read", "stop", "look_again", "open", "leave", "leave_unopened", "take_away", "forget", "close")


class Script:
    """Some brokers, and what was said since the last command."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.names: dict[UUID, str] = {}
        self.lost: dict[str, bytes] = {}
        self.handing_over: list[asyncio.Task[None]] = []
        self.store = _ToldStore(self)
        self.brokers = Brokers(self.store)
        self.tps: dict[str, TopicPartition] = {}
        commit = self.brokers.controller.commit

        def told_commit(*records: AnyRecord) -> None:
            for record in records:
                if (line := self._record(record)) is not None:
                    self.say(f"log: {line}")
            commit(*records)

        self.brokers.controller.commit = told_commit  # type: ignore[method-assign]

    def say(self, line: str) -> None:
        self.said.append(line)

    async def run(self, line: str) -> list[str]:
        self.said = []
        command, *words = line.split()
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        await getattr(self, "do_" + command.replace("-", "_"))(*plain, **pairs)
        await asyncio.sleep(SETTLES_MS / 1000)
        return self.said

    async def do_start(self, *nodes: str) -> None:
        await self.brokers.start(*map(int, nodes))

    async def do_topic(self, name: str, owner: str) -> None:
        (self.tps[name],) = self.brokers.controller.create_topic(name, partitions=1, owner=int(owner))

    async def do_append(self, name: str, value: str, node: str = "") -> None:
        def done(future: "asyncio.Future[Appended]") -> None:
            error = future.exception()
            self.say(f"{value}: {self._named(error)}" if error else f"{value}: offset {future.result().base_offset}")

        tp = self.tps[name]
        try:
            future = self.brokers.append(tp, value.encode(), node=int(node) if node else None)
        except KeyError:
            self.say(f"{value}: nobody owns {name}")
        else:
            asyncio.ensure_future(future).add_done_callback(done)

    async def do_fill(self, name: str, mib: str) -> None:
        for _ in range(int(mib) * MIB // len(FILLING)):
            await self.brokers.append(self.tps[name], FILLING)

    async def do_roll(self, name: str) -> None:
        await self.brokers.roll(self.tps[name])

    async def do_read(self, name: str) -> None:
        found = await self.brokers.read_all(self.tps[name])
        self.say(" ".join(f"{offset}={value.decode()}" for offset, value in found) or "nothing")

    async def do_move(self, name: str, to: str) -> None:
        self.brokers.controller.move(self.tps[name], to=int(to))

    async def do_fence(self, node: str) -> None:
        await self.brokers.controller.fence(int(node))

    async def do_hand_over(self, node: str) -> None:
        await self.brokers.roles.pop(int(node)).stop()

    async def do_hand_over_begins(self, node: str) -> None:
        self.handing_over.append(asyncio.create_task(self.brokers.roles[int(node)].hand_over()))

    async def do_unreachable(self) -> None:
        self.brokers.controller.reachable = False

    async def do_reachable(self) -> None:
        self.brokers.controller.reachable = True

    async def do_kill(self, node: str) -> None:
        await self.brokers.roles.pop(int(node)).kill()

    async def do_hold(self, what: str) -> None:
        self.store.held.add(what)

    async def do_let_go(self, what: str) -> None:
        self.store.let_go(what)

    async def do_lose(self, what: str) -> None:
        for key in [key for key in self.store.objects if what in self.key(key)]:
            self.lost[key] = self.store.objects[key].data
            SimStore.apply_delete(self.store, "somebody", key)
            self.say(f"lost {self.key(key)}")

    async def do_restore(self) -> None:
        for key, data in self.lost.items():
            SimStore.apply_create(self.store, "somebody", key, data)
        self.lost.clear()

    async def do_delete(self, name: str) -> None:
        self.brokers.controller.delete_topic(self.tps[name].topic_id)

    async def do_wait(self, ms: str) -> None:
        await asyncio.sleep(int(ms) / 1000)

    def key(self, key: str) -> str:
        """Without zeros in front, and what is made up anew each time."""
        for topic_id, name in self.names.items():
            key = key.replace(f"topics/{topic_id}/0000000000", name)
        key = re.sub(r"-[0-9a-f]{8,}$", "", key)
        return re.sub(r"(?<![0-9a-f])0+(?=\d)", "", key)

    def _named(self, error: BaseException) -> str:
        text = str(error)
        for tp, name in [(tp, name) for name, tp in self.tps.items()]:
            text = text.replace(str(tp), name)
        return f"{type(error).__name__}: {text}"

    def _record(self, record: AnyRecord) -> str | None:
        match record:
            case NodeRegistered():
                return f"node {record.node_id} registers, epoch {record.broker_epoch}"
            case FencingBegun():
                return f"node {record.node_id} is being fenced"
            case NodeUnregistered():
                return f"node {record.node_id} is gone"
            case StreamSealed():
                return f"{record.node_id}/{record.broker_epoch} ends at {record.end}"
            case StreamDropped():
                return f"nothing needs {record.node_id}/{record.broker_epoch}"
            case TopicCreated():
                self.names[record.topic_id] = record.name
                return f"{record.name} is created"
            case TopicDeleted():
                return f"{record.name} is deleted"
            case PartitionMoveBegun():
                return f"{self.names[record.topic_id]} is to move to {record.to_node_id}"
            case PartitionChange():
                whose = f"{record.node_id}/{record.broker_epoch}" if record.node_id >= 0 else "nobody"
                reads = f", to read {ranges_of(record.ranges)}" if record.ranges else ""
                return f"{self.names[record.topic_id]} is {whose}'s under {record.leader_epoch}{reads}"
            case RangesCovered():
                return f"{self.names[record.topic_id]} covers {ranges_of(sorted(record.ranges, key=astuple))}"
            case _:
                return None


class _ToldStore(HeldStore):
    """Says which WAL objects, segments and manifest versions come and go."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    async def pass_gate(self, node: str, key: str) -> None:
        await super().pass_gate(node, self._script.key(key))

    def apply_create(self, node: str, key: str, data: bytes) -> bool:
        is_new = super().apply_create(node, key, data)
        if is_new:
            self._say(node, "writes", key)
        return is_new

    def apply_delete(self, node: str, key: str) -> None:
        if key in self.objects:
            self._say(node, "deletes", key)
        super().apply_delete(node, key)

    def _say(self, node: str, does: str, key: str) -> None:
        if key.startswith("wal/") or "/segment/" in key or "/manifest/" in key:
            self._script.say(f"{node.removeprefix('node-')} {does} {self._script.key(key)}")


def told_lives(script: Script) -> type[Lives]:
    """Lives that say what they change."""

    class ToldLives(Lives):
        def __init__(self, stream: StreamId) -> None:
            super().__init__(stream)
            self._told: dict[Life, PartitionState] = {}

        def tell(self) -> None:
            lives = [*self._current.values(), *(life for left in self._left.values() for life in left.values())]
            for life in [*lives, *(life for life in self._told if life not in lives)]:
                is_closed = life.partition is not None and life.state is PartitionState.CLOSED  # `close` says where
                if self._told.get(life) is not life.state and not is_closed:
                    self._told[life] = life.state
                    script.say(f"{self._stream.node_id}: {script.names[life.tp.topic_id]} {life.state.name}{of(life)}")
            for life in [life for life in self._told if life not in lives]:
                del self._told[life]

    def told(change: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(change)
        def changes(self: ToldLives, *args: Any, **kwargs: Any) -> Any:
            outcome = change(self, *args, **kwargs)
            self.tell()
            return outcome

        return changes

    for name in (*CHANGING, "image_changed"):
        setattr(ToldLives, name, told(getattr(Lives, name)))
    return ToldLives


def of(life: Life) -> str:
    """What says more than the state."""
    match life.state:
        case PartitionState.APPENDING if life.partition is not None:
            partition = life.partition
            return f" under {life.leader_epoch}, from {partition.next_offset} on"
        case PartitionState.CLOSING:
            return f" under {life.leader_epoch}"
        case PartitionState.CLOSED:
            return f" under {life.leader_epoch}, [{life.start},{life.end})"
        case _:
            return ""


def ranges_of(ranges: Iterable[Range]) -> str:
    return ", ".join(f"{one.node_id}/{one.broker_epoch} [{one.start},{one.end})" for one in ranges)


async def replayed(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The transcript with what really happens."""
    script: Script | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            if script is None:
                script = Script()
                monkeypatch.setattr("bmq_broker.main.Lives", told_lives(script))
            lines.append(line)
            try:
                said = await script.run(line[2:])
            except BmqError as error:
                said = [*script.said, script._named(error)]
            lines += [f"    {one}" for one in said]
        elif not line.startswith("    "):
            lines.append(line)
            if line.startswith("# ") and script is not None:
                await script.brokers.stop()
                script = None
    if script is not None:
        await script.brokers.stop()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_partitions_live_as_their_transcript_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()

    async def scenario() -> None:
        holds(path, await replayed(text, monkeypatch))

    run(scenario())
