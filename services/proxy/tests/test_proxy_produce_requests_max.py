"""How many Produce requests are under way is bounded, whatever becomes of their clients; whoever waits gets through in
the end.
"""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from proxy_in_memory import Client, Running, batch, running_proxy
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings
from bmq_proxy.under_way import LOOKED_AT_MAX, UnderWay

MOST = 10
OF_ONE = MOST // 2
"""What one address has of them: as many as are free beside it."""
SETTINGS = ProxySettings(limits=Limits(produce_requests_max=MOST, alike_requests_max=1))


def test_clients_that_ask_and_go_while_the_store_is_slow_have_no_more_under_way() -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            for _ in range(3 * MOST):
                client = await proxy.connect()
                client.send_produce("orders", {0: batch(b"small")})
                await turns(5)
                client.close()
            await turns(100)
            assert len(proxy.owner.appended) == OF_ONE

    asyncio.run(main())


def test_a_request_for_many_partitions_counts_as_many() -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("orders", 9)
            proxy.owner.hold = True
            clients = [await proxy.connect() for _ in range(MOST)]
            for client in clients:
                client.send_produce("orders", {index: batch(b"small") for index in range(9)})
            await turns(200)
            assert len(proxy.owner.appended) == 9 * 2, "each counts as three, and the next begins where one has room"
            assert await answered_while_let_go(proxy, clients, 1) == {ErrorCode.none}

    asyncio.run(main())


def test_who_waits_for_the_outcome_of_others_goes_on_in_order_and_nobody_is_forgotten() -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            clients = [await proxy.connect() for _ in range(7)]
            for client in clients:
                for _ in range(9):
                    client.send_produce("orders", {0: batch(b"small")})
            await until_async(lambda: len(proxy.owner.appended) == OF_ONE, "as many appends as one may have")
            await turns(100)
            assert len(proxy.owner.appended) == OF_ONE
            gone = clients.pop()
            gone.close()
            assert await answered_while_let_go(proxy, clients, 9) == {ErrorCode.none}
            late = await proxy.connect()
            proxy.owner.hold = False
            late.send_produce("orders", {1: batch(b"late")})
            assert await answers_of(late, 1) == [ErrorCode.none]

    asyncio.run(main())


def test_who_takes_all_that_one_address_may_have_keeps_no_other_address_waiting() -> None:
    """How long a request is under way may be in its client's hands."""

    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("orders", 2)
            proxy.owner.hold = True
            for _ in range(3):
                client = await proxy.connect()
                for _ in range(MOST):
                    client.send_produce("orders", {0: batch(b"never durable")})
            await until_async(lambda: len(proxy.owner.appended) == OF_ONE, "as many appends as one may have")
            for number in (2, 3, 4):
                other = await proxy.connect(local_addr=(f"127.0.0.{number}", 0))
                other.send_produce("orders", {1: batch(b"another's")})
                await until_async(
                    lambda: sum(tp.partition == 1 for tp, _ in proxy.owner.appended) == number - 1,  # noqa: B023 - called in this turn
                    "an append of each address",
                )
            await turns(100)
            assert len(proxy.owner.appended) == OF_ONE + 3

    asyncio.run(main())


@given(st.integers(1, 20), st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=200))
def test_all_who_wait_go_on_once_enough_is_over_and_never_are_there_too_many(
    most: int, steps: list[tuple[bool, int]]
) -> None:
    producing: UnderWay[tuple[int, int]] = UnderWay(most)
    under_way: list[int] = []
    waiting: set[tuple[int, int]] = set()

    def go_on() -> None:
        while (connection := producing.next()) is not None:
            waiting.remove(connection)
            begin(connection)

    def begin(connection: tuple[int, int]) -> None:
        address = connection[0]
        if producing.has_room(address):
            producing.began(address)
            under_way.append(address)
        else:
            producing.wait(connection, address=address)
            waiting.add(connection)

    for number, (is_new, address) in enumerate(steps):
        if is_new or not under_way:
            begin((address, number))
        else:
            producing.over(under_way.pop(address % len(under_way)))
            go_on()
        assert producing.count == len(under_way) <= most
        assert all(under_way.count(address) <= max(1, (most + 1) // 2) for address in under_way)
    while under_way:
        producing.over(under_way.pop())
        go_on()
    assert not waiting


def test_of_very_many_addresses_that_have_too_many_few_are_looked_at_and_none_is_forgotten() -> None:
    producing: UnderWay[int] = UnderWay(2 * LOOKED_AT_MAX)
    for address in range(2 * LOOKED_AT_MAX):
        if producing.has_room(address):
            producing.began(address)
        producing.wait(address, address=address)
    assert producing.next() is None, "each has one, and none is free"
    went_on: list[int] = []
    for address in range(2 * LOOKED_AT_MAX):
        producing.over(address)
        while (found := producing.next()) is not None:
            went_on.append(found)
    assert sorted(went_on) == list(range(2 * LOOKED_AT_MAX))


async def answers_of(client: Client, count: int) -> list[int]:
    return [(await client.receive())[1].responses[0].partition_responses[0].error_code for _ in range(count)]


async def answered_while_let_go(proxy: Running, clients: Sequence[Client], count: int) -> set[int]:
    """The codes of so many answers to each, as the held appends become durable one by one."""
    answers = asyncio.gather(*(answers_of(client, count) for client in clients))
    async with asyncio.timeout(20):
        while not answers.done():
            if proxy.owner.held:
                proxy.owner.let_go()
            await asyncio.sleep(0)
    return {code for codes in answers.result() for code in codes}


async def turns(count: int) -> None:
    """Of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
