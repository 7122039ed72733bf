"""Answers and calls that are longer than a frame may be, or that would keep a connection busy: nobody else notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from internal_calls import control, every_loop, number, raw
from internal_under_test import CLIENT, SERVER, MemoryOwner, Runner, calling, serving
from tests.waiting import until_async

from bmq.errors import InvalidRequest
from bmq.internal import InternalServer, Purpose, RemoteOwner, limits, owner_handlers
from bmq.internal.calls.owner_calls import GROUP_CALL, GroupCall
from bmq.internal.framing.apis import Api
from bmq.internal.framing.failures import decode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import BYTES, HELLO, WELCOME, hello
from bmq.internal.framing.packing import pack_message, unpack_message
from bmq.internal.framing.routes import Handlers, Incoming, Outgoing, Route, answered_by, header_of
from bmq.internal.serving import group_reads
from bmq.internal.serving.group_reads import GroupReads
from bmq.roles.owner import Caller
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message

MIB = 1 << 20
CALLER = Caller(client_id="c", client_host="10.0.0.1")
ALL_OFFSETS = Message(groups=[Message(group_id="big", topics=None)], require_stable=False)
ONE_OFFSET = Message(
    groups=[Message(group_id="small", topics=[Message(name="t", partition_indexes=[0])])], require_stable=False
)


def offsets(count: int, metadata: str = "m" * 4096) -> dict[str, Any]:
    """What a coordinator answers that has so many of a group."""
    partitions = [{"partition_index": index, "committed_offset": 5, "metadata": metadata} for index in range(count)]
    return {"groups": [{"group_id": "big", "topics": [{"name": "wide", "partitions": partitions}], "error_code": 0}]}


@asynccontextmanager
async def remote(owner: MemoryOwner) -> AsyncIterator[tuple[InternalServer, RemoteOwner]]:
    async with serving(owner_handlers(owner)) as (server, host, port):
        there = RemoteOwner(host, port, peer=SERVER.node_id, me=CLIENT)
        try:
            yield server, there
        finally:
            await there.close()


class Peer:
    """A client of an older or newer version that reads when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._frames.trust()
        self._came: list[Frame] = []

    @classmethod
    async def open(cls, host: str, port: int, *, version: int) -> "Peer":
        peer = cls(*await raw(host, port))
        said = msgspec.structs.replace(hello(CLIENT, SERVER.node_id, Purpose.CONTROL), version_max=version)
        peer.writer.writelines(encode_frame(Kind.HELLO, header=HELLO.encode(said)))
        assert WELCOME.decode((await peer.next()).header).version == version
        return peer

    def ask(self, correlation_id: int, request: Message, *, address: str = "10.0.0.1") -> None:
        call = GroupCall(0, ApiKey.OFFSET_FETCH, "c", address, 8, pack_message(request))
        self.writer.writelines(
            encode_frame(
                Kind.REQUEST, api_key=Api.GROUP_CALL, correlation_id=correlation_id, header=GROUP_CALL.encode(call)
            )
        )

    async def next(self) -> Frame:
        while not self._came:
            data = await self._reader.read(MIB)
            assert data, "the connection ended"
            self._came += [frame for frame in self._frames.feed(data) if frame.kind != Kind.ALIVE]
        return self._came.pop(0)


@every_loop
def test_an_answer_longer_than_a_frame_arrives_and_what_is_asked_beside_it_is_answered(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.reply = offsets(6_000)
        async with remote(owner) as (server, there):
            answers = await asyncio.gather(
                *(there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER) for _ in range(3)),
                there.unread([]),
            )
            assert answers == [owner.reply] * 3 + [[]]
            assert server.connections == 1

    run(main())


@every_loop
def test_a_long_answer_lets_short_ones_by(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.reply = offsets(3_000)
        async with serving(owner_handlers(owner)) as (_, host, port):
            peer = await Peer.open(host, port, version=3)
            peer.ask(1, ALL_OFFSETS)
            kinds = [(await peer.next()).kind]
            owner.reply = {"groups": []}
            peer.ask(2, ONE_OFFSET)
            while (frame := await peer.next()).kind != Kind.REPLY or frame.correlation_id != 2:
                kinds.append(frame.kind)
                assert frame.kind == Kind.PART
                assert len(frame.header) <= limits.PART_BYTES
            header = b""
            while (frame := await peer.next()).kind == Kind.PART:
                header += frame.header
            assert (frame.kind, frame.correlation_id) == (Kind.REPLY, 1)
            assert len(header) > 0
            peer.writer.close()

    run(main())


@every_loop
def test_a_client_of_an_older_version_is_told_that_an_answer_is_too_long_and_keeps_its_connection(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        async with serving(owner_handlers(owner)) as (_, host, port):
            peer = await Peer.open(host, port, version=2)
            owner.reply = offsets(6_000)
            peer.ask(1, ALL_OFFSETS)
            frame = await peer.next()
            assert (frame.kind, frame.correlation_id) == (Kind.ERROR, 1)
            failure = decode_failure(frame.header)
            assert "InvalidRequest" in failure.kinds
            assert "at most 16777216 travel between nodes" in failure.text
            owner.reply = offsets(1_000)
            for correlation_id in (2, 3):
                peer.ask(correlation_id, ALL_OFFSETS)
                frame = await peer.next()
                assert (frame.kind, frame.correlation_id) == (Kind.REPLY, correlation_id)
                assert unpack_message(frame.header) == owner.reply
            peer.writer.close()

    run(main())


@every_loop
def test_a_call_or_an_answer_that_the_other_side_would_refuse_fails_alone(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", MIB)

    async def main() -> None:
        waiting = asyncio.Event()

        async def wait(value: int) -> int:
            await waiting.wait()
            return value

        async def answer(header: bytes) -> bytes:
            return bytes(2 * MIB)

        def attach(_: Incoming) -> "asyncio.Future[None]":
            return asyncio.ensure_future(asyncio.sleep(0))

        handlers: Handlers = {
            **control(wait),
            Api.STATUS: answered_by(BYTES, answer, header_of(BYTES)),
            Api.UNREAD: Route(begin=attach, encode=lambda _: Outgoing(b"", [b"records"])),
        }
        async with serving(handlers) as (server, host, port), calling(host, port, Purpose.CONTROL) as client:
            innocent = asyncio.ensure_future(client.call(Api.GROUP_CALL, BYTES.encode(b"")[:0] + b"\x07", number))
            await until_async(lambda: client.is_connected, "a connection")
            for api, header, said in (
                (Api.GROUP_CALL, bytes(limits.HEADER_BYTES_MAX + 1), "group call has 16777217 bytes"),
                (Api.STATUS, BYTES.encode(b"long"), "the answer to status has 2097157 bytes"),
                (Api.UNREAD, b"", "the answer to unread has 7 bytes of records"),
            ):
                with pytest.raises(InvalidRequest, match=said):
                    await client.call(api, header, number)
            with pytest.raises(InvalidRequest, match="append has 7 bytes of records"):
                await client.submit(Api.APPEND, b"", number, attachments=[b"records"])
            waiting.set()
            assert await innocent == 7
            assert server.connections == 1

    run(main())


@every_loop
def test_an_answer_that_turns_out_too_long_or_cannot_be_packed_half_way_fails_alone(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", MIB)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: bugs.append(context["message"]))
        bugs: list[str] = []
        owner = MemoryOwner()
        async with remote(owner) as (server, there):
            owner.reply = offsets(1_000)
            with pytest.raises(InvalidRequest, match="more than the 1048576 bytes"):
                await there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER)
            owner.reply = {"groups": [*offsets(100)["groups"], object()]}
            with pytest.raises(Exception, match="an internal error"):
                await there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER)
            assert len(bugs) == 1
            owner.reply = offsets(100)
            assert await there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER) == owner.reply
            assert server.connections == 1

    run(main())


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@every_loop
def test_answers_that_a_node_does_not_take_are_few_and_leave_room_to_others(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUP_READS_CONNECTION_BYTES_MAX", 2 * group_reads.WHOLE_BYTES)
    monkeypatch.setattr(limits, "GROUP_READS_BYTES_MAX", 3 * group_reads.WHOLE_BYTES)
    rooms: list[group_reads.AnswerRoom] = []
    made = GroupReads.__init__

    def noted(reads: GroupReads) -> None:
        made(reads)
        rooms.append(reads._wide)

    monkeypatch.setattr(GroupReads, "__init__", noted)

    async def main() -> None:
        owner = MemoryOwner()
        owner.reply = offsets(6_000)
        async with remote(owner) as (server, there):
            host, port = there.address
            stuck = await Peer.open(host, port, version=3)
            for correlation_id in range(1, 31):
                stuck.ask(correlation_id, ALL_OFFSETS, address=f"10.0.1.{correlation_id}")
            await until_async(lambda: len(owner.asked) == 2, "two calls at the owner")
            await turns()
            [connection] = server._connections
            assert connection.untaken_bytes < 5 * MIB
            for _ in range(3):
                assert await there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER) == owner.reply
            assert len(owner.asked) == 2 + 3
            assert rooms[0].held_bytes == 2 * group_reads.WHOLE_BYTES
            # One is not wanted any more half-way: the next has its room.
            stuck.writer.writelines(encode_frame(Kind.CANCEL, correlation_id=1))
            answered = 0
            while answered < 5:
                answered += (await stuck.next()).kind == Kind.REPLY
            # And all have it back when the node is gone.
            stuck.writer.transport.abort()
            await until_async(lambda: server.connections == 1, "the connection that is left")
            await until_async(lambda: rooms[0].held_bytes == 0, "room given back")
            assert not rooms[0]._waiting

    run(main())


@every_loop
def test_who_asks_for_much_from_one_address_waits_and_others_do_not(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.reply = {"groups": []}
        owner.hold_calls = asyncio.Event()
        async with remote(owner) as (_, there):
            greedy = [
                asyncio.ensure_future(there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, CALLER)) for _ in range(30)
            ]
            at_once = limits.GROUP_READS_ADDRESS_BYTES_MAX // group_reads.WHOLE_BYTES
            await until_async(lambda: len(owner.asked) == at_once, "as many calls as there is room for")
            narrow = asyncio.ensure_future(there.group_call(0, ApiKey.OFFSET_FETCH, ONE_OFFSET, CALLER))
            other = Caller(client_id="c", client_host="10.0.0.2")
            wide = asyncio.ensure_future(there.group_call(0, ApiKey.OFFSET_FETCH, ALL_OFFSETS, other))
            await until_async(lambda: len(owner.asked) == at_once + 2, "two more calls")
            greedy.pop().cancel()  # one that waits
            greedy.pop(0).cancel()  # one that is being worked out
            await until_async(lambda: len(owner.asked) == at_once + 3, "a third call")
            owner.hold_calls.set()
            assert await asyncio.gather(*greedy, narrow, wide) == [owner.reply] * 30

    run(main())


def test_what_is_counted_is_what_was_asked_for() -> None:
    counted = group_reads.assumed_bytes
    assert counted(ApiKey.OFFSET_FETCH, ALL_OFFSETS) == group_reads.WHOLE_BYTES
    assert counted(ApiKey.OFFSET_FETCH, ONE_OFFSET) == 2 * group_reads.OFFSET_BYTES
    assert counted(ApiKey.OFFSET_FETCH, Message(group_id="g", topics=None)) == group_reads.WHOLE_BYTES
    assert counted(ApiKey.DESCRIBE_GROUPS, Message(groups=["a", "b"])) == 2 * group_reads.GROUP_BYTES
    assert counted(ApiKey.LIST_GROUPS, Message(after="")) == group_reads.PAGE_BYTES
    assert counted(ApiKey.LIST_GROUPS, Message(states_filter=[])) == group_reads.WHOLE_BYTES
