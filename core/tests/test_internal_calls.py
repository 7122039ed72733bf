"""Calls between two nodes: what reaches the other side, in which order, and what is known of a call that was not answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from internal_under_test import CLIENT, CLUSTER, RUNNER_IDS, RUNNERS, SERVER, Runner, calling, serving, until

from bmq.errors import BmqError, NotOwner, NotReady, OffsetOutOfRange
from bmq.internal import ConnectionLost, Identity, InternalClient, NotSent, Purpose
from bmq.internal.apis import APIS, Api
from bmq.internal.failures import decode_failure
from bmq.internal.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.hello import HELLO, WELCOME, Hello, hello
from bmq.internal.limits import CALLS_MAX, PRODUCE_CONNECTION_BYTES_MAX, QUEUED_BYTES_MAX, RECEIVE_BUFFER_BYTES
from bmq.internal.packing import Packed
from bmq.internal.routes import Handlers, Incoming, Outgoing, Route, answered_by, header_of
from bmq.values import NodeId

every_loop = pytest.mark.parametrize("run", RUNNERS, ids=RUNNER_IDS)

NUMBER = Packed[int](int)


def number(frame: Frame) -> int:
    return NUMBER.decode(frame.header)


def control(work: Callable[[int], Awaitable[int]], api: Api = Api.GROUP_CALL) -> Handlers:
    return {api: answered_by(NUMBER, work, header_of(NUMBER))}


class Appends:
    """Takes appends and answers them when it is told to: with their number, in any order."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.held: dict[int, asyncio.Future[int]] = {}
        self.at_once = False
        self.route = Route(begin=self._begin, encode=header_of(NUMBER))

    @property
    def handlers(self) -> Handlers:
        return {Api.APPEND: self.route}

    def _begin(self, incoming: Incoming) -> "asyncio.Future[int]":
        value = NUMBER.decode(incoming.header)
        self.taken.append(value)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.at_once:
            future.set_result(value)
        else:
            self.held[value] = future
        return future

    def release(self) -> None:
        self.at_once = True
        held, self.held = self.held, {}
        for value, future in held.items():
            if not future.done():
                future.set_result(value)


def append(client: InternalClient, value: int, size_bytes: int = 0) -> "asyncio.Future[int]":
    return client.submit(Api.APPEND, NUMBER.encode(value), number, attachments=[bytes(size_bytes)])


def ask(client: InternalClient, value: int, api: Api = Api.GROUP_CALL, timeout_s: float | None = None) -> Awaitable[int]:
    return client.call(api, NUMBER.encode(value), number, timeout_s=timeout_s)


async def outcomes(calls: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


@every_loop
def test_answers_come_in_whatever_order_they_are_ready(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        answered: list[int] = []
        async with serving(appends.handlers) as (_, host, port), calling(host, port, Purpose.PRODUCE) as client:
            futures = [append(client, value) for value in range(5)]
            for future in futures:
                future.add_done_callback(lambda done: answered.append(done.result()))
            await until(lambda: len(appends.held) == 5)
            for value in (3, 0, 4, 1, 2):
                appends.held[value].set_result(value)
                await futures[value]
            await until(lambda: len(answered) == 5)
            assert answered == [3, 0, 4, 1, 2]
            assert client.unanswered == 0

    run(main())


@every_loop
def test_calls_arrive_in_the_order_of_their_calling_also_those_before_the_connection_stands(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        appends.at_once = True
        async with serving(appends.handlers) as (_, host, port), calling(host, port, Purpose.PRODUCE) as client:
            futures = []
            for value in range(600):
                futures.append(append(client, value, size_bytes=(value % 7) * 10_000))
                if value % 50 == 0:
                    await asyncio.sleep(0)
            assert await asyncio.gather(*futures) == list(range(600))
            assert appends.taken == list(range(600))

    run(main())


@every_loop
def test_where_nobody_listens_nothing_was_sent_and_the_next_call_fails_at_once(run: Runner) -> None:
    async def main() -> None:
        async with serving({}) as (_, host, port):
            pass
        async with calling(host, port, Purpose.CONTROL) as client:
            with pytest.raises(NotSent, match="cannot be reached"):
                await ask(client, 1)
            refused = client.submit(Api.GROUP_CALL, b"", number)
            assert isinstance(refused.exception(), NotSent)

    run(main())


@every_loop
def test_a_client_finds_a_server_that_comes_back(run: Runner) -> None:
    async def double(value: int) -> int:
        return 2 * value

    async def main() -> None:
        async with serving(control(double)) as (_, host, port), calling(host, port, Purpose.CONTROL) as client:
            assert await ask(client, 4) == 8
            found = [client]
        client = InternalClient(host, port, peer=SERVER.node_id, purpose=Purpose.CONTROL, me=CLIENT)
        with pytest.raises(NotSent):
            await ask(client, 5)
        async with serving(control(double), port=port):

            async def again() -> int:
                for _ in range(200):
                    try:
                        return await ask(client, 6)
                    except NotSent:
                        await asyncio.sleep(0.01)
                raise AssertionError("it never came back")

            assert await again() == 12
            await client.close()
        assert not found[0].is_connected

    run(main())


@every_loop
def test_a_connection_lost_after_a_call_was_written_leaves_its_outcome_unknown(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        async with serving(appends.handlers, grace_s=0) as (_, host, port), calling(host, port, Purpose.PRODUCE) as client:
            written = [append(client, value) for value in range(3)]
            await until(lambda: len(appends.taken) == 3)
            not_written = append(client, 3)
            await client.close()
            assert [type(error) for error in await outcomes([*written, not_written])] == [ConnectionLost] * 3 + [NotSent]
            assert "whether append was carried out is not known" in str(written[0].exception())
            assert "append was not sent" in str(not_written.exception())
            assert isinstance(append(client, 4).exception(), NotSent)
            appends.release()

    run(main())


@every_loop
def test_after_a_loss_nothing_is_sent_before_those_who_failed_have_learned_of_it(run: Runner) -> None:
    """Otherwise batch 2, called in the same turn of the loop in which the connection with batch 1 breaks, overtakes batch 1's retry."""

    async def main() -> None:
        appends = Appends()
        async with serving(appends.handlers, grace_s=0) as (server, host, port), calling(host, port, Purpose.PRODUCE) as client:
            learned: list[str] = []
            first = append(client, 1)
            await until(lambda: bool(appends.taken))

            def broke(_: object) -> None:
                learned.append("first failed")
                assert isinstance(append(client, 2).exception(), NotSent)

            first.add_done_callback(broke)
            await server.stop(grace_s=0)
            await until(lambda: bool(learned))
            assert isinstance(first.exception(), ConnectionLost)

    run(main())


@every_loop
def test_a_call_that_is_out_of_time_or_not_wanted_any_more_is_stopped_on_the_other_side(run: Runner) -> None:
    async def main() -> None:
        began, stopped = asyncio.Event(), asyncio.Event()

        async def wait(value: int) -> int:
            began.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped.set()
                raise
            return value

        async with serving(control(wait, Api.READ_TAIL)) as (_, host, port), calling(host, port, Purpose.TAIL) as client:
            with pytest.raises(ConnectionLost, match=r"did not answer within 0\.05 s"):
                await ask(client, 1, Api.READ_TAIL, timeout_s=0.05)
            await asyncio.wait_for(stopped.wait(), 5)
            began.clear()
            stopped.clear()
            task = asyncio.ensure_future(ask(client, 2, Api.READ_TAIL))
            await asyncio.wait_for(began.wait(), 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(stopped.wait(), 5)
            assert client.unanswered == 0
            assert client.is_connected

    run(main())


@every_loop
def test_a_change_is_carried_through_when_its_caller_is_gone(run: Runner) -> None:
    async def main() -> None:
        began, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def commit(value: int) -> int:
            began.set()
            await go_on.wait()
            done.set()
            return value

        async with serving(control(commit)) as (server, host, port):
            async with calling(host, port, Purpose.CONTROL) as client:
                with pytest.raises(ConnectionLost):
                    await ask(client, 1, timeout_s=0.05)
                began.clear()
                other = asyncio.ensure_future(ask(client, 2))
                await asyncio.wait_for(began.wait(), 5)
            with pytest.raises(ConnectionLost):
                await other
            await until(lambda: not server.connections)
            go_on.set()
            await asyncio.wait_for(done.wait(), 5)

    run(main())


@every_loop
def test_what_the_other_side_raises_is_raised_here(run: Runner) -> None:
    async def main() -> None:
        async def refuse(value: int) -> int:
            raise OffsetOutOfRange(f"offset {value} is not within 3 to 9")

        async with serving(control(refuse)) as (_, host, port), calling(host, port, Purpose.CONTROL) as client:
            with pytest.raises(OffsetOutOfRange, match="offset 12 is not within 3 to 9"):
                await ask(client, 12)
            with pytest.raises(NotOwner, match="node 7 does not serve status"):
                await ask(client, 1, Api.STATUS)

    run(main())


def test_a_bug_in_a_handler_is_told_to_the_loop_and_to_the_caller_and_the_connection_lives_on() -> None:
    async def main() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        async def fail(value: int) -> int:
            if value:
                raise KeyError(value)
            return value

        async with serving(control(fail)) as (_, host, port), calling(host, port, Purpose.CONTROL) as client:
            with pytest.raises(BmqError, match="an internal error: KeyError: 7"):
                await ask(client, 7)
            assert await ask(client, 0) == 0
        assert [type(context["exception"]) for context in told] == [KeyError]

    asyncio.run(main())


@every_loop
@pytest.mark.parametrize(
    ("me", "peer", "said"),
    [
        (
            Identity(cluster_id="another", node_id=NodeId(1)),
            SERVER.node_id,
            f"node 1 belongs to cluster 'another' and this is node 7 of cluster '{CLUSTER}'",
        ),
        (CLIENT, NodeId(8), "node 1 looks for node 8 at this address, which is node 7's now"),
    ],
)
def test_who_belongs_elsewhere_is_refused_in_one_clear_line(run: Runner, me: Identity, peer: NodeId, said: str) -> None:
    async def main() -> None:
        async with serving({}) as (server, host, port), calling(host, port, Purpose.CONTROL, me=me, peer=peer) as client:
            with pytest.raises(NotSent, match=said) as refused:
                await ask(client, 1)
            assert "\n" not in str(refused.value)
            await until(lambda: not server.connections)

    run(main())


async def raw(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host, port)


async def frames_until_the_end(reader: asyncio.StreamReader) -> list[Frame]:
    frames = FrameReader()
    frames.trust()
    try:
        return frames.feed(await asyncio.wait_for(reader.read(), 5))
    except ConnectionError:
        return []


@every_loop
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (Hello(2, 3, CLUSTER, 1, 7, 0), "upgrade the older one"),
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
            assert WELCOME.decode(frames[0].header).version == 1
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
        ("an append on a control connection", [HELLO_FRAME, encode_frame(Kind.REQUEST, api_key=Api.APPEND, correlation_id=1)[0]]),
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
        async with serving({**control(never), **appends.handlers}) as (server, host, port), calling(host, port, Purpose.CONTROL) as client:
            assert await ask(client, 2) == 2
            reader, writer = await raw(host, port)
            writer.writelines(sent)
            frames = await frames_until_the_end(reader)
            assert frames[-1].kind == Kind.ERROR, name
            assert frames[-1].correlation_id == 0
            writer.close()
            await until(lambda: server.connections == 1)
            assert await ask(client, 3) == 3

    run(main())


@every_loop
def test_an_answer_that_cannot_be_read_ends_the_connection_and_the_outcome_is_unknown(run: Runner) -> None:
    async def main() -> None:
        async def same(value: int) -> int:
            return value

        route = Route(begin=answered_by(NUMBER, same, header_of(NUMBER)).begin, encode=lambda _: Outgoing(b"no number"))
        async with serving({Api.GROUP_CALL: route}) as (_, host, port), calling(host, port, Purpose.CONTROL) as client:
            with pytest.raises(ConnectionLost, match="it sent what cannot be"):
                await ask(client, 1)

    run(main())


@every_loop
def test_a_server_that_stops_answers_what_it_has_and_no_outcome_is_unknown(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        async with serving(appends.handlers) as (server, host, port), calling(host, port, Purpose.PRODUCE) as client:
            early = [append(client, value) for value in range(20)]
            await until(lambda: len(appends.taken) == 20)
            stopping = asyncio.ensure_future(server.stop(grace_s=5))
            late = []
            while client.is_connected and len(late) < 500:
                late.append(append(client, 1000 + len(late)))
                await asyncio.sleep(0.001)
                if len(late) == 20:
                    appends.release()
            await stopping
            assert await asyncio.gather(*early) == list(range(20))
            refused = await outcomes(late)
            assert len(late) < 500
            assert all(isinstance(error, NotReady) for error in refused)
            assert appends.taken == list(range(20))

    run(main())


@every_loop
def test_a_server_that_stops_ends_long_polls(run: Runner) -> None:
    async def main() -> None:
        async def poll(value: int) -> int:
            await asyncio.sleep(3600)
            return value

        async with serving(control(poll, Api.READ_TAIL)) as (server, host, port), calling(host, port, Purpose.TAIL) as client:
            polls = [asyncio.ensure_future(ask(client, value, Api.READ_TAIL)) for value in range(3)]
            await until(lambda: client.is_connected)
            await asyncio.sleep(0.01)
            await server.stop(grace_s=5)
            assert all(isinstance(error, NotReady) for error in await outcomes(polls))

    run(main())


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
            futures = [append(client, 2 * value + which, 100_000) for value in range(100) for which, client in enumerate((one, two))]
            await until(lambda: server.room.is_full)
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
            await until(lambda: server.room.held_bytes >= PRODUCE_CONNECTION_BYTES_MAX)
            small = append(modest, 1000)
            await until(lambda: 1000 in appends.held)
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
        async with serving(appends.handlers, produce_bytes_max=1) as (_, host, port), calling(host, port, Purpose.PRODUCE) as client:
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


def test_every_key_of_the_protocol_has_its_line_in_the_table() -> None:
    assert set(APIS) == {int(api) for api in Api}
    assert [api for api in Api if APIS[api].purpose is Purpose.PRODUCE] == [Api.APPEND]
