"""The relay does what its troubles say, to open connections and to new ones."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from chaos_cluster import node_of_hello
from chaos_relay import NO_TROUBLE, Kind, Relay, Trouble

from bmq.internal.framing.apis import Purpose
from bmq.internal.framing.frames import Kind as FrameKind
from bmq.internal.framing.frames import encode_frame
from bmq.internal.framing.hello import HELLO, Identity, hello
from bmq.values import NodeId

STEP_S = 10
SOON_S = 0.2

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that sends back what comes, and remembers it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                self.got += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            self.lost += 1
            writer.close()


def through_a_relay(
    test: Callable[[Relay, Echo], Awaitable[None]], *, who: Callable[[bytes], int | None] = lambda _: None
) -> None:
    async def main() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        relay = Relay("test", 0, server.sockets[0].getsockname()[:2], who=who)
        await relay.start()
        try:
            async with asyncio.timeout(STEP_S):
                await test(relay, echo)
        finally:
            await relay.stop()
            server.close()

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):  # runs of chaos use the faster one
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())


async def connect(relay: Relay) -> Ends:
    return await asyncio.open_connection("127.0.0.1", relay.port)


async def say(ends: Ends, data: bytes) -> bytes:
    """What comes back."""
    ends[1].write(data)
    return await ends[0].readexactly(len(data))


async def is_reset(ends: Ends) -> bool:
    try:
        return await ends[0].read(1) == b""
    except ConnectionError:
        return True


async def says_nothing(ends: Ends) -> bool:
    try:
        async with asyncio.timeout(SOON_S):
            await ends[0].read(1)
    except TimeoutError:
        return True
    return False


def test_everything_passes_without_trouble() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        data = bytes(range(256)) * 40_000  # ten MiB are more than any buffer
        assert await say(ends, data) == data
        assert bytes(echo.got) == data

    through_a_relay(test)


def test_the_end_of_one_side_is_the_end_of_the_other_behind_everything_that_was_sent() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        data = bytes(1 << 20)
        ends[1].write(data)
        ends[1].write_eof()
        assert await ends[0].read() == data
        assert bytes(echo.got) == data
        assert echo.lost == 1

    through_a_relay(test)


def test_a_delay_is_kept_in_both_directions_and_order_stays() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        assert await say(ends, b"soon") == b"soon"
        relay.set(Trouble(kind=Kind.DELAY, delay_s=0.1))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        ends[1].write(b"first ")
        await asyncio.sleep(0.02)
        relay.set(NO_TROUBLE)
        ends[1].write(b"second")
        assert await ends[0].readexactly(12) == b"first second"
        assert loop.time() - began_s > 0.09

    through_a_relay(test)


def test_a_cut_resets_what_is_open_and_what_comes() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        assert await say(ends, b"open") == b"open"
        relay.set(Trouble(kind=Kind.CUT))
        assert await is_reset(ends)
        assert await is_reset(await connect(relay))
        relay.set(NO_TROUBLE)
        assert await say(await connect(relay), b"again") == b"again"

    through_a_relay(test)


def test_a_half_open_connection_takes_everything_and_is_reset_at_the_end() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        assert await say(ends, b"open") == b"open"
        relay.set(Trouble(kind=Kind.HALF_OPEN))
        new = await connect(relay)
        for one in (ends, new):
            one[1].write(b"into the void")
            assert await says_nothing(one)
        assert bytes(echo.got) == b"open"
        assert echo.lost == 1, "the server's side is gone"
        relay.set(NO_TROUBLE)
        assert await is_reset(ends)
        assert await is_reset(new)

    through_a_relay(test)


def test_a_deaf_client_is_heard_and_hears_nothing() -> None:
    async def test(relay: Relay, echo: Echo) -> None:
        ends = await connect(relay)
        relay.set(Trouble(kind=Kind.DEAF))
        ends[1].write(b"applied")
        assert await says_nothing(ends)
        assert bytes(echo.got) == b"applied"
        relay.set(NO_TROUBLE)
        assert await is_reset(ends)

    through_a_relay(test)


@pytest.mark.parametrize("kind", [Kind.CUT, Kind.HALF_OPEN, Kind.DEAF])
def test_trouble_may_be_for_one_client_alone(kind: Kind) -> None:
    def first_byte(data: bytes) -> int | None:
        return data[0] if data else None

    async def test(relay: Relay, echo: Echo) -> None:
        hit, other, late = await connect(relay), await connect(relay), await connect(relay)
        assert await say(hit, b"\x01") == b"\x01"
        assert await say(other, b"\x02") == b"\x02"
        relay.set(Trouble(kind=kind, only=frozenset((1,))))
        assert await say(other, b"goes on") == b"goes on"
        late[1].write(b"\x01")
        for one in (hit, late):
            assert await (is_reset(one) if kind is Kind.CUT else says_nothing(one))
        relay.set(NO_TROUBLE)
        assert await say(other, b"still") == b"still"
        if kind is not Kind.CUT:
            assert await is_reset(hit)
            assert await is_reset(late)

    through_a_relay(test, who=first_byte)


def test_a_node_is_known_by_its_hello() -> None:
    said = hello(Identity(cluster_id="cluster", node_id=NodeId(102)), NodeId(201), Purpose.TAIL)
    first = b"".join(bytes(part) for part in encode_frame(FrameKind.HELLO, header=HELLO.encode(said)))
    assert node_of_hello(first) == 102
    assert node_of_hello(first[:-1]) is None
    assert node_of_hello(b"") is None
