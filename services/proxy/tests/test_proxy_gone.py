"""Clients that have gone: what they asked ends, what they wanted changed is carried through, and a clean stop still
answers those that are there.
"""

import asyncio
import threading
from typing import Any

import pytest
from one_connection import run
from proxy_in_memory import Client, Running, running_proxy
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import OffsetForTime
from bmq.wire.apis import READS, ApiKey
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.bulk import Bulk
from bmq_proxy.calls import Call, Lease

pytestmark = pytest.mark.usefixtures("both_loops")

CLIENTS = 60
WIDE_PARTITIONS = 2_000
ENDS = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
QUESTIONS: dict[str, tuple[ApiKey, int, Any]] = {
    "waits for its turn": (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    "waits for its turn, a wide one": (
        ApiKey.METADATA,
        12,
        {"topics": [{"topic_id": None, "name": f"name-{n}" * 3} for n in range(2_000)]},
    ),
    "waits for owners": (ApiKey.LIST_OFFSETS, 7, ENDS),
    "waits for coordinators": (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", "h"]}),
}


def call(host: str = "somebody else") -> Call:
    return Call(
        api_key=3,
        version=1,
        correlation_id=1,
        client_id="",
        client_host=host,
        lease=Lease(MemoryBudget(1_000), 1),
        arrived=0.0,
    )


class Held:
    """A proxy whose wide answers, owners and coordinators wait until they are let go."""

    def __init__(self, proxy: Running) -> None:
        self.proxy = proxy
        self.asked = 0
        self._gate = asyncio.Event()
        self._ask_owner = proxy.owner.offset_for_time
        proxy.owner.offset_for_time = self._offset  # type: ignore[method-assign]
        self._ask_coordinator = proxy.owner.group_call
        proxy.owner.group_call = self._coordinator  # type: ignore[method-assign]
        proxy.owner.on_group_call = lambda *_: {"groups": []}
        proxy.metadata.add_topic("wide", WIDE_PARTITIONS)
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 4)
        self._holder = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        bulk = self.proxy.role.proxy.bulk
        async with (
            bulk.building(call(), 10 * WIDE_PARTITIONS * 1_000),
            bulk.parsing(call(), bulk.limits.wide_requests_bytes),
        ):
            await self._gate.wait()

    async def _offset(self, *args: Any, **kwargs: Any) -> OffsetForTime:
        self.asked += 1
        await self._gate.wait()
        return await self._ask_owner(*args, **kwargs)

    async def _coordinator(self, *args: Any) -> Any:
        self.asked += 1
        await self._gate.wait()
        return await self._ask_coordinator(*args)

    async def let_go(self) -> None:
        self._gate.set()
        await self._holder


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_client_that_has_gone_asked_is_no_longer_worked_on(question: str) -> None:
    async def test(proxy: Running, client: Client) -> None:
        held, endpoint = Held(proxy), proxy.role.server.endpoint
        for _ in range(CLIENTS):
            gone = await proxy.connect()
            before = endpoint.in_flight
            gone.send(*QUESTIONS[question])
            await until_async(lambda before=before: endpoint.in_flight > before, "one request more")  # type: ignore[misc]
            gone.close()
            await until_async(lambda before=before: endpoint.in_flight == before, "the requests of who has gone to end")  # type: ignore[misc]
        assert endpoint.request_memory.held_bytes == 0
        client.send(*QUESTIONS[question])
        await until_async(lambda: endpoint.in_flight == 1, "one request to be worked on")
        await held.let_go()
        await asyncio.wait_for(client.receive(), 10)
        assert proxy.role.proxy.bulk.answers.held_bytes == 0

    run(test)


def test_what_a_client_that_has_gone_wanted_changed_is_carried_through() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.gate = asyncio.Event()
        endpoint = proxy.role.server.endpoint
        partition = {"partition_index": 0, "offset": 7}
        client.send(
            ApiKey.DELETE_RECORDS, 2, {"topics": [{"name": "orders", "partitions": [partition]}], "timeout_ms": 60_000}
        )
        await until_async(lambda: endpoint.in_flight == 1, "one request to be worked on")
        client.close()
        await until_async(lambda: not endpoint.connections, "all connections to end")
        assert endpoint.in_flight == 1
        proxy.owner.gate.set()
        await until_async(lambda: endpoint.in_flight == 0, "no request to be left")
        assert [one.log_start for one in proxy.owner.logs.values()] == [7]

    run(test)


def test_a_clean_stop_answers_what_clients_that_are_there_have_asked() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            held, client = Held(proxy), await proxy.connect()
            client.send(*QUESTIONS["waits for owners"])
            await until_async(lambda: held.asked == 1, "the question to be asked")
            stopping = asyncio.create_task(proxy.role.stop(grace_s=10))
            await until_async(lambda: proxy.role.server.endpoint._stopping, "the endpoint to stop")
            await held.let_go()
            assert (await client.receive())[1].topics[0].partitions[0].error_code == 0
            await stopping

    asyncio.run(main())


def test_a_thread_that_is_at_work_for_a_client_that_has_gone_is_still_the_only_one() -> None:
    async def main() -> None:
        bulk = Bulk(Limits())
        began, over = [threading.Event(), threading.Event()], threading.Event()

        def work(number: int) -> int:
            began[number].set()
            over.wait(10)
            return number

        first = asyncio.create_task(bulk.apart(call("a"), lambda: work(0)))
        second = asyncio.create_task(bulk.apart(call("b"), lambda: work(1)))
        await until_async(began[0].is_set, "the first to begin")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        third = asyncio.create_task(bulk.apart(call("c"), lambda: 2))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not began[1].is_set()
        over.set()
        assert await asyncio.gather(second, third) == [1, 2]

    asyncio.run(main())


def test_each_api_either_changes_something_or_ends_with_who_asked() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            endpoint = proxy.role.server.endpoint
            ending = {key for key in ApiKey if endpoint.ends_with_client(key)}
            assert ending == READS | {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
            assert {key for key in ApiKey if not endpoint.delays_stop(key)} == {ApiKey.FETCH, ApiKey.JOIN_GROUP}

    asyncio.run(main())
