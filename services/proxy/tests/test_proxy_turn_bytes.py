"""What begins in one turn of the loop: few requests, or few bytes that are decoded, and nobody is told more often than
need be.
"""

import asyncio

import pytest
from proxy_in_memory import batch, running_proxy
from tests.bare_client import framed

from bmq.config.limits import limits_of
from bmq.wire.apis import ApiKey
from bmq_proxy.endpoint import OTHERS_COST
from bmq_proxy.intake import SPLIT_AT_ONCE
from bmq_proxy.settings import ProxySettings

NAMES = [{"topic_id": None, "name": f"n{n}"} for n in range(100)]
METADATA = {"topics": NAMES, "allow_auto_topic_creation": False}


def test_large_requests_of_many_connections_begin_one_in_a_turn_and_addresses_have_their_turns() -> None:
    async def main() -> None:
        settings = ProxySettings(limits=limits_of({"turn_bytes": 256}))
        async with running_proxy(settings) as proxy:
            endpoint = proxy.role.server.endpoint
            greedy = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(20)]
            modest = await proxy.connect(local_addr=("127.0.0.3", 0))
            began = list[tuple[int, str]]()
            turn, begin = 0, endpoint._begin

            def noted(call, body):  # type: ignore[no-untyped-def]
                began.append((turn, call.client_host))
                return begin(call, body)

            endpoint._begin = noted  # type: ignore[method-assign]
            for one in greedy:
                one.send(ApiKey.METADATA, 12, METADATA)
            modest.send(ApiKey.METADATA, 12, METADATA)
            while len(began) < 21:
                turn += 1
                await asyncio.sleep(0)
            for one in (*greedy, modest):
                await one.receive()
            turns = [one for one, _ in began]
            assert max(turns.count(one) for one in turns) <= 2, "one, and one in what was left of the turn before"
            last = max(place for place, (_, host) in enumerate(began) if host == "/127.0.0.3")
            assert last < 15

    asyncio.run(main())


def test_produce_requests_cost_a_turn_no_bytes() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"turn_bytes": 256}))) as proxy:
            proxy.metadata.add_topic("orders", 1)
            endpoint = proxy.role.server.endpoint
            client = await proxy.connect()
            client.send_produce("orders", {0: batch(b"a" * 10_000)})
            await client.receive()
            left = endpoint._requests_left
            client.send_produce("orders", {0: batch(b"a" * 10_000)})
            await client.receive()
            assert left - endpoint._requests_left == 1

    asyncio.run(main())


def test_what_neither_writes_nor_reads_records_counts_as_several_requests() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings()) as proxy:
            endpoint = proxy.role.server.endpoint
            client = await proxy.connect()
            left = endpoint._requests_left
            await client.ask(ApiKey.API_VERSIONS, 0, {})
            assert left - endpoint._requests_left == pytest.approx(OTHERS_COST, abs=0.5)

    asyncio.run(main())


def test_of_connections_that_send_much_at_once_each_has_one_request_taken_in_while_the_turn_is_full() -> None:
    count, each = 40, 20

    async def main() -> None:
        async with running_proxy(ProxySettings()) as proxy:
            endpoint = proxy.role.server.endpoint
            clients = [await proxy.connect() for _ in range(count)]
            for client in clients:
                client.writer.write(framed(ApiKey.API_VERSIONS, 0, {}) * each)
            most = 0
            for _ in range(20):
                await asyncio.sleep(0)
                most = max(most, sum(len(one._exchanges or ()) for one in endpoint.connections))
            for client in clients:
                for _ in range(each):
                    await client.receive_frame()
            assert most <= count + 2 * SPLIT_AT_ONCE

    asyncio.run(main())


NAMED = b"\x02a\x02a"
"""The software's name and version."""


def test_a_request_that_is_never_decoded_beside_the_loop_costs_a_turn_its_bytes_however_large_it_is() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"request_inline_bytes_max": 1_024}))) as proxy:
            endpoint = proxy.role.server.endpoint
            client = await proxy.connect()
            begin = endpoint._begin
            lefts: list[float] = []

            def noted(call, body):  # type: ignore[no-untyped-def]
                lefts.append(endpoint._requests_left)
                return begin(call, body)

            endpoint._begin = noted  # type: ignore[method-assign]
            costs = []
            for filling in (b"\x80\x00", b"\xb8\x17" + bytes(3_000)):
                before = endpoint._requests_left
                await client.ask(ApiKey.API_VERSIONS, 3, raw=NAMED + b"\x01\x05" + filling)
                costs.append(before - lefts[-1])
            assert costs[1] - costs[0] == pytest.approx(3_000 * endpoint._byte_cost)

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [NAMED + b"\x41" + b"".join(bytes((tag, 0)) for tag in range(65)), b"\x81\x20" + b"a" * 4_096 + b"\x02a\x00"],
    ids=["tags", "bytes"],
)
def test_who_asks_for_versions_with_more_than_any_client_has_to_say_is_cut_off(body: bytes) -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings()) as proxy:
            client = await proxy.connect()
            client.send(ApiKey.API_VERSIONS, 3, raw=body)
            assert await client.closed()

    asyncio.run(main())


def test_a_few_unknown_fields_in_the_question_for_versions_are_passed_over() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings()) as proxy:
            client = await proxy.connect()
            answer = await client.ask(
                ApiKey.API_VERSIONS, 3, raw=NAMED + b"\x3c" + b"".join(bytes((tag, 0)) for tag in range(60))
            )
            assert answer.error_code == 0

    asyncio.run(main())
