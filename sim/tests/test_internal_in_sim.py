"""Calls between nodes on a network that is slow, cuts, loses connections, goes silent, and between processes that are
killed and stopped.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from tests.waiting import until_async

from bmq.errors import NotOwner, NotReady, UnknownOutcome
from bmq.internal import ConnectionLost, Identity, InternalClient, InternalServer, NotSent, Purpose
from bmq.internal.framing.apis import Api
from bmq.internal.framing.failures import encode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import HELLO, WELCOME, Welcome, hello
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Handlers, Incoming, Route, answered_by, header_of
from bmq.internal.limits import ALIVE_EVERY_S, HELLO_WITHIN_TICKS, IDLE_TICKS_MAX, SILENT_TICKS_MAX, STALLED_TICKS_MAX
from bmq.values import NodeId
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.network import Network, NetworkFaults
from bmq_sim.process import SimProcess

ROUGH = NetworkFaults(latency_s_min=0.001, latency_s_max=0.02, jitter_s=0.01, split_probability=0.5)
LOSSY = NetworkFaults(
    latency_s_min=0.001, latency_s_max=0.02, jitter_s=0.01, split_probability=0.3, loss_probability=0.02
)
SILENCE_S = (SILENT_TICKS_MAX + 1) * ALIVE_EVERY_S

CLIENT = Identity(cluster_id="c", node_id=NodeId(1))
SERVER = Identity(cluster_id="c", node_id=NodeId(7))
PORT = 9094
NUMBER = Packed[int](int)
PAIR = Packed[tuple[int, int]](tuple[int, int])


def simulated(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]], *, faults: NetworkFaults = ROUGH, seed: int = 0
) -> Any:
    loop = VirtualLoop(network=Network(rng=Random(seed), faults=faults))
    return run(main(loop), loop=loop)


def number(frame: Frame) -> int:
    return NUMBER.decode(frame.header)


def waits(started: list[int], ended: list[int]) -> Handlers:
    """A poll that waits for as many seconds as it is asked."""

    async def poll(seconds: int) -> int:
        started.append(seconds)
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(seconds)
        return seconds

    return {api: answered_by(NUMBER, poll, header_of(NUMBER)) for api in (Api.READ_TAIL, Api.GROUP_CALL)}


async def listen(handlers: Handlers) -> tuple[SimProcess, InternalServer]:
    """A server in a process of its own, on host "there"."""
    process = SimProcess("broker", host="there")
    found: asyncio.Future[InternalServer] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        server = InternalServer(handlers, SERVER)
        await server.start("there", PORT)
        found.set_result(server)

    process.start(serve())
    return process, await found


def client_for(purpose: Purpose = Purpose.TAIL) -> InternalClient:
    return InternalClient("there", PORT, peer=SERVER.node_id, purpose=purpose, me=CLIENT)


def poll(client: InternalClient, seconds: int, api: Api = Api.READ_TAIL) -> "asyncio.Task[int]":
    return asyncio.get_running_loop().create_task(client.call(api, NUMBER.encode(seconds), number))


def test_a_call_may_take_as_long_as_it_likes_while_the_other_side_is_there() -> None:
    async def main(loop: VirtualLoop) -> None:
        _, server = await listen(waits([], []))
        client = client_for()
        assert await asyncio.gather(*(poll(client, seconds) for seconds in (3, 60, 1800, 7200))) == [3, 60, 1800, 7200]
        assert server.connections == 1
        await client.close()
        await server.stop()

    simulated(main)


@pytest.mark.parametrize("direction", ["there", "back", "both"])
def test_a_peer_that_went_silent_is_given_up_and_the_outcome_is_unknown(direction: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        started: list[int] = []
        _, server = await listen(waits(started, []))
        client = client_for()
        await poll(client, 1)
        if direction != "back":
            loop.network.block("localhost", "there")
        if direction != "there":
            loop.network.block("there", "localhost")
        asked_s = loop.time()
        with pytest.raises(ConnectionLost, match="nothing was heard"):
            await poll(client, 3600)
        assert SILENT_TICKS_MAX * ALIVE_EVERY_S <= loop.time() - asked_s <= SILENCE_S + 1
        with pytest.raises(NotSent):
            await poll(client, 1)
        loop.network.heal()
        assert await until_async(lambda: poll(client, 2), "the way to be open", 600, not_yet=NotSent, every_s=0.5) == 2
        await client.close()
        await server.stop()

    simulated(main)


def test_a_client_that_was_stopped_for_a_while_does_not_blame_the_server() -> None:
    async def main(loop: VirtualLoop) -> None:
        _, server = await listen(waits([], []))
        process = SimProcess("proxy", host="here")
        answered: list[int] = []

        async def ask() -> None:
            client = client_for()
            answered.append(await poll(client, 120))
            await client.close()

        process.start(ask())
        await asyncio.sleep(10)
        loop.pause(process)
        await asyncio.sleep(60)
        loop.resume(process)
        await asyncio.sleep(100)
        assert answered == [120]
        await server.stop()

    simulated(main)


def test_a_server_that_is_stopped_for_long_is_given_up_and_one_that_wakes_soon_is_not() -> None:
    async def main(loop: VirtualLoop) -> None:
        process, _ = await listen(waits([], []))
        client = client_for()
        call = poll(client, 20)
        await asyncio.sleep(5)
        loop.pause(process)
        await asyncio.sleep(3)
        loop.resume(process)
        assert await call == 20
        call = poll(client, 20)
        await asyncio.sleep(5)
        loop.pause(process)
        with pytest.raises(ConnectionLost):
            await call
        await client.close()
        loop.resume(process)

    simulated(main)


def test_a_killed_server_is_noticed_at_once_and_found_again_when_it_is_back() -> None:
    async def main(loop: VirtualLoop) -> None:
        process, _ = await listen(waits([], []))
        client = client_for()
        await poll(client, 1)
        call = poll(client, 3600)
        await asyncio.sleep(1)
        killed_s = loop.time()
        loop.kill(process)
        with pytest.raises(ConnectionLost):
            await call
        assert loop.time() - killed_s < 0.1
        with pytest.raises(NotSent):
            await poll(client, 1)
        await asyncio.sleep(30)
        _, server = await listen(waits([], []))
        assert await poll(client, 2) == 2
        await client.close()
        await server.stop()

    simulated(main)


def test_a_lost_connection_stops_polls_and_carries_changes_through() -> None:
    async def main(loop: VirtualLoop) -> None:
        tail_ended: list[int] = []
        _, server = await listen(waits([], tail_ended))
        tail, control = client_for(), client_for(Purpose.CONTROL)
        calls = [poll(tail, 50), poll(control, 60, Api.GROUP_CALL)]
        await asyncio.sleep(1)
        loop.network.lose_connections("there")
        assert all(isinstance(error, ConnectionLost) for error in await asyncio.gather(*calls, return_exceptions=True))
        await asyncio.sleep(1)
        assert tail_ended == [50]
        await asyncio.sleep(60)
        assert tail_ended == [50, 60]
        await tail.close()
        await control.close()
        await server.stop()

    simulated(main)


def test_a_connection_that_nobody_uses_is_closed_without_harm() -> None:
    async def main(loop: VirtualLoop) -> None:
        _, server = await listen(waits([], []))
        client = client_for()
        await poll(client, 1)
        await asyncio.sleep(IDLE_TICKS_MAX * ALIVE_EVERY_S - 10)
        assert (server.connections, client.is_connected) == (1, True)
        await asyncio.sleep(30)
        assert (server.connections, client.is_connected) == (0, False)
        assert await poll(client, 1) == 1
        await client.close()
        await server.stop()

    simulated(main)


def test_who_says_nothing_or_reads_nothing_is_cut_off() -> None:
    async def main(loop: VirtualLoop) -> None:
        _, server = await listen(waits([], []))
        reader, writer = await asyncio.open_connection("there", PORT)
        await asyncio.sleep(1)
        assert server.connections == 1
        await asyncio.sleep((HELLO_WITHIN_TICKS + 2) * ALIVE_EVERY_S)
        assert server.connections == 0
        writer.close()
        with pytest.raises(ConnectionError):
            await reader.read()
        client = client_for()
        calls = [poll(client, 1), poll(client, 3600)]
        await calls[0]
        loop.network.block_both_ways("there", "localhost")
        await asyncio.sleep(1)
        await server.stop(grace_s=STALLED_TICKS_MAX * ALIVE_EVERY_S)
        assert server.connections == 0
        await asyncio.gather(*calls, return_exceptions=True)
        await client.close()

    simulated(main)


def test_calls_side_by_side_while_connections_are_lost_are_answered_right_or_not_at_all() -> None:
    async def main(loop: VirtualLoop) -> int:
        carried_out: list[int] = []

        async def double(value: int) -> int:
            await asyncio.sleep(value % 5 / 100)
            carried_out.append(value)
            return 2 * value

        _, server = await listen({Api.GROUP_CALL: answered_by(NUMBER, double, header_of(NUMBER))})
        client = client_for(Purpose.CONTROL)
        unknown = 0

        async def ask(value: int) -> None:
            nonlocal unknown
            for _ in range(1000):
                try:
                    assert await client.call(Api.GROUP_CALL, NUMBER.encode(value), number, timeout_s=30) == 2 * value
                    return
                except NotReady:
                    assert value not in carried_out
                    await asyncio.sleep(0.05)
                except UnknownOutcome:
                    unknown += 1
                    return
            raise AssertionError("never answered")

        for start in range(0, 400, 40):
            await asyncio.gather(*(ask(value) for value in range(start, start + 40)))
        assert len(carried_out) == len(set(carried_out))
        await client.close()
        await server.stop()
        return unknown

    assert sum(simulated(main, faults=LOSSY, seed=seed) for seed in range(5)) > 0


def spoiled(frames: list[bytes], rng: Random) -> bytes:
    """A stream of frames with something wrong in it, mostly."""
    match rng.randrange(4):
        case 0:
            data = bytearray(b"".join(frames))
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            return bytes(data)
        case 1:
            whole = b"".join(frames)
            return whole[: rng.randrange(len(whole))]
        case 2:
            return b"".join(rng.sample(frames, len(frames)))
        case _:
            at = rng.randrange(len(frames))
            return b"".join([*frames[:at], rng.randbytes(rng.randrange(1, 100)), *frames[at:]])


def encoded(kind: Kind, api: int = 0, correlation_id: int = 0, header: bytes = b"", attachment: bytes = b"") -> bytes:
    return b"".join(
        encode_frame(kind, api_key=api, correlation_id=correlation_id, header=header, attachments=[attachment])
    )


def test_whatever_a_client_sends_its_connection_ends_or_is_served_and_the_others_are() -> None:
    async def main(loop: VirtualLoop) -> None:
        log = FlakyLog(Random(0))
        _, server = await listen({**waits([], []), **log.handlers})
        client = client_for()
        for seed in range(150):
            rng = Random(seed)
            purpose = rng.choice(list(Purpose))
            said = HELLO.encode(hello(CLIENT, SERVER.node_id, purpose))
            frames = [encoded(Kind.HELLO, header=said)]
            for correlation_id in range(1, 6):
                api = {
                    Purpose.PRODUCE: Api.APPEND,
                    Purpose.TAIL: Api.READ_TAIL,
                    Purpose.CONTROL: Api.GROUP_CALL,
                    Purpose.FOLLOW: Api.FOLLOW_POLL,
                }[purpose]
                header = PAIR.encode((1 << 32 | 7, 0)) if api is Api.APPEND else NUMBER.encode(3)
                frames.append(
                    encoded(Kind.REQUEST, api, correlation_id, header, b"batch" if api is Api.APPEND else b"")
                )
            frames.append(encoded(Kind.CANCEL, correlation_id=3))
            _, writer = await asyncio.open_connection("there", PORT)
            writer.write(spoiled(frames, rng))
            await asyncio.sleep(rng.random())
            assert await poll(client, 1) == 1
            writer.close()
        await asyncio.sleep(HELLO_WITHIN_TICKS * ALIVE_EVERY_S + 5)
        assert server.connections == 1
        await client.close()
        await server.stop()

    simulated(main)


def test_whatever_a_server_answers_a_call_ends() -> None:
    """With the right answer, or with an error; never with another one."""

    async def main(loop: VirtualLoop) -> None:
        rng = Random(7)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frames = FrameReader()
            frames.trust()
            writer.write(encoded(Kind.HELLO, header=WELCOME.encode(Welcome(1, CLIENT.cluster_id, SERVER.node_id))))
            while data := await reader.read(1000):
                for frame in frames.feed(data):
                    if frame.kind == Kind.REQUEST:
                        right = encoded(Kind.REPLY, frame.api_key, frame.correlation_id, bytes(frame.header))
                        other = encoded(Kind.REPLY, frame.api_key, frame.correlation_id + 1, NUMBER.encode(-1))
                        failed = encoded(Kind.ERROR, 0, frame.correlation_id, encode_failure(NotReady("no")))
                        writer.write(spoiled([rng.choice([right, other, failed]), encoded(Kind.ALIVE)], rng))

        tasks: set[asyncio.Task[None]] = set()

        def accept() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(loop=loop)
            return asyncio.StreamReaderProtocol(reader, lambda r, w: tasks.add(loop.create_task(answer(r, w))))

        server = await loop.create_server(accept, "there", PORT)
        client = client_for()
        right = 0
        for value in range(150):
            try:
                assert await asyncio.wait_for(poll(client, value), SILENCE_S + 5) == value
                right += 1
            except (NotReady, ConnectionLost):
                await asyncio.sleep(1)
        assert right > 5
        await client.close()
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    simulated(main)


class FlakyLog:
    """Takes batches of partitions, refuses some, and answers those that it took when it likes."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.taken: dict[int, list[int]] = {}

    @property
    def handlers(self) -> Handlers:
        return {Api.APPEND: Route(begin=self._begin, encode=header_of(NUMBER))}

    def _begin(self, incoming: Incoming) -> "asyncio.Future[int]":
        loop = asyncio.get_running_loop()
        packed, heard = PAIR.decode(incoming.header)
        partition, batch = packed >> 32, packed & 0xFFFFFFFF
        if not incoming.refusals.admits(partition, incoming.correlation_id, heard):
            raise NotReady("behind a refused one")
        if self._rng.random() < 0.1:
            incoming.refusals.refused(partition, incoming.correlation_id)
            raise NotOwner("for the moment") if self._rng.random() < 0.5 else NotReady("full")
        self.taken.setdefault(partition, []).append(batch)
        future: asyncio.Future[int] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(batch)

        loop.call_later(self._rng.random() / 20, settle)
        return future


@pytest.mark.parametrize("seed", range(10))
def test_a_producer_that_sends_ahead_and_sends_again_what_was_refused_keeps_its_order(seed: int) -> None:
    """The proxy's way of sending: what was refused goes again, in order, before anything later. Connections are stopped
    now and then.
    """

    async def main(loop: VirtualLoop) -> None:
        rng = Random(seed)
        flaky = FlakyLog(rng)
        client = client_for(Purpose.PRODUCE)
        waiting: dict[int, list[int]] = {partition: [] for partition in range(3)}
        in_flight: set[asyncio.Future[int]] = set()
        servers: list[InternalServer] = [(await listen(flaky.handlers))[1]]

        def send(partition: int, batch: int) -> None:
            header = PAIR.encode((partition << 32 | batch, client.refusal_heard))
            future = client.submit(Api.APPEND, header, number, key=partition)
            in_flight.add(future)

            def settled(done: "asyncio.Future[int]") -> None:
                in_flight.discard(done)
                error = done.exception()
                if error is not None:
                    assert isinstance(error, NotReady | NotOwner), error
                    waiting[partition] = sorted([*waiting[partition], batch])

            if future.done():
                settled(future)
            else:
                future.add_done_callback(settled)

        def send_all(partition: int) -> None:
            while waiting[partition]:
                batch = waiting[partition].pop(0)
                send(partition, batch)
                if batch in waiting[partition]:
                    break  # refused at once

        for batch in range(150):
            for partition, queue in waiting.items():
                queue.append(batch)
                send_all(partition)
            if batch in {50, 100}:
                await servers[-1].stop(grace_s=10)
                servers.append((await listen(flaky.handlers))[1])
            await asyncio.sleep(rng.random() / 50)
        while in_flight or any(waiting.values()):
            await asyncio.sleep(0.05)
            for partition in waiting:
                send_all(partition)
        assert flaky.taken == {partition: list(range(150)) for partition in range(3)}
        await client.close()
        await servers[-1].stop()

    simulated(main, seed=seed)
