"""Who belongs elsewhere, speaks another version or another protocol is refused, and disturbs nobody."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from internal_calls import NUMBER, Appends, ask, control, every_loop, frames_until_the_end, raw
from internal_under_test import CLIENT, CLUSTER, SERVER, Runner, calling, serving
from tests.waiting import until_async

from bmq.internal import Identity, NotSent, Purpose
from bmq.internal.framing.apis import PROTOCOL_VERSION, Api
from bmq.internal.framing.failures import decode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import HELLO, WELCOME, Hello, hello
from bmq.values import NodeId


@every_loop
@pytest.mark.parametrize(
    ("me", "peer", "said"),
    [
        (
            Identity(cluster_id="another", node_id=NodeId(1)),
            SERVER.node_id,
            f"node 1 belongs to cluster 'another' and this is node 7 of cluster '{CLUSTER}'",
        ),
        (
            replace(CLIENT, copy="c0"),
            SERVER.node_id,
            "node 1 runs over copy c0 of this cluster's store and node 7 over the store that this cluster began",
        ),
        (CLIENT, NodeId(8), "node 1 looks for node 8 at this address, which is node 7's now"),
    ],
)
def test_who_belongs_elsewhere_is_refused_in_one_clear_line(run: Runner, me: Identity, peer: NodeId, said: str) -> None:
    async def main() -> None:
        async with (
            serving({}) as (server, host, port),
            calling(host, port, Purpose.CONTROL, me=me, peer=peer) as client,
        ):
            with pytest.raises(NotSent, match=said) as refused:
                await ask(client, 1)
            assert "\n" not in str(refused.value)
            await until_async(lambda: not server.connections, "all connections to end")

    run(main())


@every_loop
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (Hello(PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 2, CLUSTER, 1, 7, 0), "upgrade the older one"),
        (Hello(1, 1, CLUSTER, 1, 7, 9), "purpose 9"),
    ],
)
def test_a_version_or_a_purpose_that_is_not_known_is_refused(run: Runner, said: Hello, answer: str) -> None:
    async def main() -> None:
        async with serving({}) as (_, host, port):
            reader, writer = await raw(host, port)
            writer.write(encode_frame(Kind.HELLO, header=HELLO.encode(said))[0])
            [frame] = await frames_until_the_end(reader)
            assert frame.kind == Kind.ERROR
            assert answer in decode_failure(frame.header).text
            writer.close()

    run(main())


@every_loop
def test_a_client_that_speaks_a_newer_version_too_is_answered_in_the_one_both_speak(run: Runner) -> None:
    async def main() -> None:
        async with serving({}) as (_, host, port):
            reader, writer = await raw(host, port)
            writer.write(encode_frame(Kind.HELLO, header=HELLO.encode(Hello(1, 5, CLUSTER, 1, 7, 0)))[0])
            frames: list[Frame] = []
            splitter = FrameReader()
            while not frames:
                frames = splitter.feed(await reader.read(1000))
            assert WELCOME.decode(frames[0].header).version == PROTOCOL_VERSION
            writer.close()

    run(main())


HELLO_FRAME = encode_frame(Kind.HELLO, header=HELLO.encode(hello(CLIENT, SERVER.node_id, Purpose.CONTROL)))[0]
REQUEST_FRAME = encode_frame(Kind.REQUEST, api_key=Api.GROUP_CALL, correlation_id=1, header=NUMBER.encode(1))[0]


@every_loop
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("a request before the hello", [REQUEST_FRAME]),
        ("a second hello", [HELLO_FRAME, HELLO_FRAME]),
        ("a correlation id twice", [HELLO_FRAME, REQUEST_FRAME, REQUEST_FRAME]),
        ("a reply from a client", [HELLO_FRAME, encode_frame(Kind.REPLY, correlation_id=1)[0]]),
        (
            "an append on a control connection",
            [HELLO_FRAME, encode_frame(Kind.REQUEST, api_key=Api.APPEND, correlation_id=1)[0]],
        ),
        (
            "attachments on a control connection",
            [HELLO_FRAME, *encode_frame(Kind.REQUEST, api_key=Api.GROUP_CALL, correlation_id=1, attachments=[b"x"])],
        ),
        ("a web browser", [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"]),
        ("garbage behind the hello", [HELLO_FRAME, bytes(range(256))]),
    ],
)
def test_what_is_not_the_protocol_ends_its_connection_and_no_other(run: Runner, name: str, sent: list[Any]) -> None:
    async def main() -> None:
        async def never(value: int) -> int:
            return await asyncio.get_running_loop().create_future() if value == 1 else value

        appends = Appends()
        async with (
            serving({**control(never), **appends.handlers}) as (server, host, port),
            calling(host, port, Purpose.CONTROL) as client,
        ):
            assert await ask(client, 2) == 2
            reader, writer = await raw(host, port)
            writer.writelines(sent)
            frames = await frames_until_the_end(reader)
            assert frames[-1].kind == Kind.ERROR, name
            assert frames[-1].correlation_id == 0
            writer.close()
            await until_async(lambda: server.connections == 1, "one connection to be left")
            assert await ask(client, 3) == 3

    run(main())
