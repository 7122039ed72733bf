"""How many Produce requests are under way is bounded, whatever becomes of their clients; whoever waits gets through in the end."""

import asyncio

from proxy_in_memory import Client, batch, running_proxy
from test_proxy_fair_shares import until

from bmq.limits import Limits
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

MOST = 10
SETTINGS = ProxySettings(limits=Limits(produce_requests_max=MOST))


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
            assert len(proxy.owner.appended) == MOST

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
            await until(lambda: len(proxy.owner.appended) == MOST)
            await turns(100)
            assert len(proxy.owner.appended) == MOST
            gone = clients.pop()
            gone.close()
            answers = asyncio.gather(*(answers_of(client, 9) for client in clients))
            async with asyncio.timeout(20):
                while not answers.done():
                    if proxy.owner.held:
                        proxy.owner.let_go()
                    await asyncio.sleep(0)
            assert {code for codes in answers.result() for code in codes} == {ErrorCode.none}
            late = await proxy.connect()
            proxy.owner.hold = False
            late.send_produce("orders", {1: batch(b"late")})
            assert await answers_of(late, 1) == [ErrorCode.none]

    asyncio.run(main())


async def answers_of(client: Client, count: int) -> list[int]:
    return [(await client.receive())[1].responses[0].partition_responses[0].error_code for _ in range(count)]


async def turns(count: int) -> None:
    """Of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
