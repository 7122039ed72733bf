"""Calls between two nodes: what reaches the other side, and in which order."""

import asyncio
from typing import Any

import pytest
from internal_calls import Appends, append, ask, control, every_loop
from internal_under_test import Runner, calling, serving
from tests.waiting import until_async

from bmq.errors import BmqError, NotOwner, OffsetOutOfRange
from bmq.internal import ConnectionLost, NotSent, Purpose
from bmq.internal.framing.apis import APIS, Api


@every_loop
def test_answers_come_in_whatever_order_they_are_ready(run: Runner) -> None:
    async def main() -> None:
        appends = Appends()
        answered: list[int] = []
        async with serving(appends.handlers) as (_, host, port), calling(host, port, Purpose.PRODUCE) as client:
            futures = [append(client, value) for value in range(5)]
            for future in futures:
                future.add_done_callback(lambda done: answered.append(done.result()))
            await until_async(lambda: len(appends.held) == 5, "five appends to arrive")
            for value in (3, 0, 4, 1, 2):
                appends.held[value].set_result(value)
                await futures[value]
            await until_async(lambda: len(answered) == 5, "five answers")
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
                while not began.is_set():  # a busy machine may not even connect in time
                    with pytest.raises((NotSent, ConnectionLost)) as raised:
                        await ask(client, 1, timeout_s=0.05)
                assert raised.type is ConnectionLost
                began.clear()
                other = asyncio.ensure_future(ask(client, 2))
                await asyncio.wait_for(began.wait(), 5)
            with pytest.raises(ConnectionLost):
                await other
            await until_async(lambda: not server.connections, "all connections to end")
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


def test_every_key_of_the_protocol_has_its_line_in_the_table() -> None:
    assert set(APIS) == {int(api) for api in Api}
    assert [api for api in Api if APIS[api].purpose is Purpose.PRODUCE] == [Api.APPEND]
