"""What calls may hold in memory on either side."""

import asyncio

import pytest
from internal_calls import Appends, append, ask, control, every_loop, outcomes, raw
from internal_under_test import CLIENT, RUNNER_IDS, RUNNERS, SERVER, Runner, calling, serving
from tests.waiting import until_async

from bmq.internal import NotSent, Purpose, limits
from bmq.internal.framing.apis import Api
from bmq.internal.framing.frames import FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import BYTES, HELLO, hello
from bmq.internal.framing.routes import answered_by, header_of
from bmq.internal.limits import CALLS_MAX, PRODUCE_CONNECTION_BYTES_MAX, QUEUED_BYTES_MAX, RECEIVE_BUFFER_BYTES
from bmq_sim.loop import run as run_in_virtual_time


@every_loop
def test_back_pressure_stops_produce_alone(run: Runner) -> None:
    async def main() -> None:
        async def double(value: int) -> int:
            return 2 * value

        appends = Appends()
        room_bytes = 1 << 20
        async with (
            serving({**appends.handlers, **control(double)}, produce_bytes_max=room_bytes) as (server, host, port),
            calling(host, port, Purpose.PRODUCE) as one,
            calling(host, port, Purpose.PRODUCE) as two,
            calling(host, port, Purpose.CONTROL) as other,
        ):
            futures = [
                append(client, 2 * value + which, 100_000)
                for value in range(100)
                for which, client in enumerate((one, two))
            ]
            await until_async(lambda: server.room.is_full, "the room to be full")
            for value in range(20):
                assert await ask(other, value) == 2 * value
            # What had been read when it was full is taken; nothing is read after that.
            assert server.room.held_bytes <= room_bytes + 2 * (RECEIVE_BUFFER_BYTES + 100_000)
            assert len(appends.taken) < 40
            appends.release()
            assert await asyncio.gather(*futures) == list(range(200))
            assert server.room.held_bytes == 0

    run(main())


@every_loop
def test_one_connection_leaves_room_for_others(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        async with (
            serving(appends.handlers) as (server, host, port),
            calling(host, port, Purpose.PRODUCE) as greedy,
            calling(host, port, Purpose.PRODUCE) as modest,
        ):
            futures = [append(greedy, value, 1 << 20) for value in range(24)]
            await until_async(
                lambda: server.room.held_bytes >= PRODUCE_CONNECTION_BYTES_MAX,
                "all that a connection may hold to be held",
            )
            small = append(modest, 1000)
            await until_async(lambda: 1000 in appends.held, "the small append to arrive")
            appends.held[1000].set_result(1000)
            assert await small == 1000
            assert len(appends.taken) < 24
            appends.release()
            await asyncio.gather(*futures)

    run(main())


@every_loop
def test_what_a_client_holds_is_bounded_and_what_is_too_much_was_certainly_not_sent(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        async with (
            serving(appends.handlers, produce_bytes_max=1) as (_, host, port),
            calling(host, port, Purpose.PRODUCE) as client,
        ):
            size_bytes = 1 << 20
            futures = [append(client, value, size_bytes) for value in range(2 * QUEUED_BYTES_MAX // size_bytes)]
            refused = [future for future in futures if future.done()]
            assert len(refused) >= QUEUED_BYTES_MAX // size_bytes
            assert all(isinstance(future.exception(), NotSent) for future in refused)
            appends.release()
            await outcomes(futures)
            appends.held.clear()
            appends.at_once = False
            many = [append(client, value) for value in range(CALLS_MAX + 1)]
            assert isinstance(many[-1].exception(), NotSent)
            appends.release()
            await outcomes(many)
            assert client.unanswered == 0

    run(main())


@every_loop
def test_strangers_keep_no_node_out_and_break_nothing_that_stands(run: Runner) -> None:
    async def main() -> None:
        async def double(value: int) -> int:
            return 2 * value

        async with (
            serving(control(double), strangers_max=20) as (server, host, port),
            calling(host, port, Purpose.CONTROL) as node,
        ):
            assert await ask(node, 1) == 2
            strangers = [await asyncio.open_connection(host, port) for _ in range(100)]
            await until_async(lambda: server.connections == 21, "all connections to be taken")
            assert await ask(node, 2) == 4
            async with calling(host, port, Purpose.CONTROL) as another:
                assert await ask(another, 3) == 6
                assert server.connections <= 22
            for _, writer in strangers:
                writer.close()

    run(main())


MIB = 1 << 20
CALLS = [
    encode_frame(Kind.REQUEST, api_key=Api.GROUP_CALL, correlation_id=1 + n, header=BYTES.encode(bytes(MIB)))
    for n in range(40)
]
PINGS = [encode_frame(Kind.PING)] * 100_000
"""Only the simulator's sockets are full so soon."""


@pytest.mark.parametrize(
    ("run", "asked", "answers"),
    [*((one, CALLS, Kind.REPLY) for one in RUNNERS), (run_in_virtual_time, PINGS, Kind.ALIVE)],
    ids=[*(f"calls-{name}" for name in RUNNER_IDS), "pings-simulated"],
)
def test_who_does_not_read_its_answers_is_not_read_until_it_does(
    run: Runner, asked: list[list[bytes]], answers: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNTAKEN_BYTES_MAX", MIB)

    async def echo(said: bytes) -> bytes:
        return said

    async def main() -> None:
        async with (
            serving({Api.GROUP_CALL: answered_by(BYTES, echo, header_of(BYTES))}) as (server, host, port),
            calling(host, port, Purpose.CONTROL) as another,
        ):
            reader, writer = await raw(host, port)
            writer.writelines(
                encode_frame(Kind.HELLO, header=HELLO.encode(hello(CLIENT, SERVER.node_id, Purpose.CONTROL)))
            )
            frames, came = FrameReader(), list[int]()
            frames.trust()
            while not came:
                came += [frame.kind for frame in frames.feed(await reader.read(MIB))]
            [stuck] = server._connections
            writer.write(b"".join(part for frame in asked for part in frame))
            await until_async(lambda: not stuck.is_read, "the connection to be read no longer")
            # A call that had begun to arrive, and answers to those that had begun together.
            assert stuck.untaken_bytes < 5 * MIB
            assert (
                await another.call(Api.GROUP_CALL, BYTES.encode(b"others"), lambda frame: BYTES.decode(frame.header))
                == b"others"
            )
            while len(came) < 1 + len(asked):
                came += [
                    frame.kind for frame in frames.feed(await reader.read(MIB)) if frame.kind in (Kind.HELLO, answers)
                ]
            assert came == [Kind.HELLO] + [answers] * len(asked)
            assert stuck.is_read
            writer.close()

    run(main())
