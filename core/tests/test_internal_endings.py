"""What is known of a call that was not answered, and how connections end."""

import asyncio

import pytest
from internal_calls import NUMBER, Appends, append, ask, control, every_loop, number, outcomes
from internal_under_test import CLIENT, SERVER, Runner, calling, serving
from tests.waiting import until_async

from bmq.errors import NotReady
from bmq.internal import ConnectionLost, InternalClient, NotSent, Purpose
from bmq.internal.framing.apis import Api
from bmq.internal.framing.routes import Outgoing, Route, answered_by, header_of


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
            assert await until_async(lambda: ask(client, 6), "it to come back", not_yet=NotSent, every_s=0.01) == 12
            await client.close()
        assert not found[0].is_connected

    run(main())


@every_loop
def test_a_connection_lost_after_a_call_was_written_leaves_its_outcome_unknown(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        async with (
            serving(appends.handlers, grace_s=0) as (_, host, port),
            calling(host, port, Purpose.PRODUCE) as client,
        ):
            written = [append(client, value) for value in range(3)]
            await until_async(lambda: len(appends.taken) == 3, "three appends to be taken")
            not_written = append(client, 3)
            await client.close()
            assert [type(error) for error in await outcomes([*written, not_written])] == [ConnectionLost] * 3 + [
                NotSent
            ]
            assert "whether append was carried out is not known" in str(written[0].exception())
            assert "append was not sent" in str(not_written.exception())
            assert isinstance(append(client, 4).exception(), NotSent)
            appends.release()

    run(main())


@every_loop
def test_after_a_loss_nothing_is_sent_before_those_who_failed_have_learned_of_it(run: Runner) -> None:
    """Otherwise batch 2, called in the same turn of the loop in which the connection with batch 1 breaks, overtakes
    batch 1's retry.
    """

    async def main() -> None:
        appends = Appends()
        async with (
            serving(appends.handlers, grace_s=0) as (server, host, port),
            calling(host, port, Purpose.PRODUCE) as client,
        ):
            learned: list[str] = []
            first = append(client, 1)
            await until_async(lambda: bool(appends.taken), "an append to be taken")

            def broke(_: object) -> None:
                learned.append("first failed")
                assert isinstance(append(client, 2).exception(), NotSent)

            first.add_done_callback(broke)
            await server.stop(grace_s=0)
            await until_async(lambda: bool(learned), "the failure to be learned")
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

        async with (
            serving(control(wait, Api.READ_TAIL)) as (_, host, port),
            calling(host, port, Purpose.TAIL) as client,
        ):
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
            await until_async(lambda: len(appends.taken) == 20, "20 appends to be taken")
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

        async with (
            serving(control(poll, Api.READ_TAIL)) as (server, host, port),
            calling(host, port, Purpose.TAIL) as client,
        ):
            polls = [asyncio.ensure_future(ask(client, value, Api.READ_TAIL)) for value in range(3)]
            await until_async(lambda: client.is_connected, "the connection")
            await asyncio.sleep(0.01)
            await server.stop(grace_s=5)
            assert all(isinstance(error, NotReady) for error in await outcomes(polls))

    run(main())
