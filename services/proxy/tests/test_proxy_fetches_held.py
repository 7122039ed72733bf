"""How many partitions all Fetch requests wait for is bounded, also where each names few of them; whoever has to wait is
answered all the same.
"""

import asyncio
import gc
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from proxy_in_memory import Client, batch, fetch_request, running_proxy
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.roles.owner import TailAnswer, TailRequest
from bmq_proxy.bulk import FEW_PARTITIONS
from bmq_proxy.fetch.sessions import Fetching, Wanted
from bmq_proxy.handlers import k01_fetch
from bmq_proxy.settings import ProxySettings

T = TypeVar("T")
HELD = 1_000
EACH = 100
CLIENTS = 40
ENTERED = 2 * (HELD // 2 // EACH)
"""What one address has at its leisure, and what is let in by turns beside it."""
FOREVER_MS = 300_000
SETTINGS = ProxySettings(limits=Limits(fetch_partitions_held=HELD))


@pytest.fixture(autouse=True)
def nobody_is_answered_before_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k01_fetch, "WIDE_WAIT_MS_MAX", FOREVER_MS)


class Counting:
    """An owner's `read_tail` that counts the partitions which it is asked to wait for."""

    def __init__(self, owner: Any) -> None:
        self._read_tail = owner.read_tail
        self.waited_for = self.most = 0
        owner.read_tail = self

    async def __call__(self, requests: Sequence[TailRequest], *, max_wait_ms: int, **more: int) -> list[TailAnswer]:
        waits = len(requests) if max_wait_ms and len(requests) > FEW_PARTITIONS else 0
        self.waited_for += waits
        self.most = max(self.most, self.waited_for)
        try:
            answers: list[TailAnswer] = await self._read_tail(requests, max_wait_ms=max_wait_ms, **more)
        finally:
            self.waited_for -= waits
        return answers


def fetch(partitions: int, **options: Any) -> dict[str, Any]:
    request = fetch_request("wide", 0, 0, max_wait_ms=FOREVER_MS, **options)
    [topic] = request["topics"]
    topic["partitions"] = [{**topic["partitions"][0], "partition": index} for index in range(partitions)]
    return request


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_many_requests_for_a_hundred_partitions_each_are_not_all_waited_for_at_once_and_all_are_answered() -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("wide", EACH)
            owner = Counting(proxy.owner)
            clients = [await proxy.connect() for _ in range(CLIENTS)]
            for client in clients:
                client.send(1, 11, fetch(EACH))
            await until_async(lambda: owner.waited_for >= ENTERED * EACH, "all partitions to be waited for")
            await turns(200)
            few = await proxy.connect()
            few.send(1, 11, fetch(FEW_PARTITIONS))
            await until_async(
                lambda: proxy.owner.reads > ENTERED, "another read at the owner"
            )  # whoever names few waits for nobody
            assert owner.most == ENTERED * EACH
            await (await proxy.connect()).ask(0, 9, produced())
            answers = await asyncio.wait_for(asyncio.gather(*(client.receive() for client in [*clients, few])), 20)
            assert all(answer.responses[0].partitions[0].records for _, answer in answers)
            assert (owner.waited_for, owner.most) == (0, ENTERED * EACH)

    asyncio.run(main())


def test_the_requests_of_one_session_over_many_connections_are_bounded_likewise_and_leave_with_their_clients() -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("wide", EACH)
            owner = Counting(proxy.owner)
            first = await proxy.connect()
            began = await first.ask(1, 11, {**fetch(EACH, session_epoch=0), "max_wait_ms": 0})
            clients: list[Client] = []
            for epoch in range(1, CLIENTS + 1):
                client = await proxy.connect()
                clients.append(client)
                client.send(1, 11, {**fetch(0), "topics": [], "session_id": began.session_id, "session_epoch": epoch})
                await turns(50)
            await until_async(lambda: owner.waited_for >= ENTERED * EACH, "all partitions to be waited for")
            await turns(200)
            assert owner.most == ENTERED * EACH
            for client in clients[:-1]:
                client.close()
            await until_async(lambda: owner.waited_for == EACH, "one's partitions to be waited for")
            await (await proxy.connect()).ask(0, 9, produced())
            _, answer = await asyncio.wait_for(clients[-1].receive(), 20)
            assert answer.responses[0].partitions[0].records

    asyncio.run(main())


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_request_that_waits_for_its_turn_keeps_no_list_of_what_it_names(session_epoch: int) -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("wide", EACH)
            owner = Counting(proxy.owner)
            clients = [await proxy.connect() for _ in range(CLIENTS)]
            before = alive(Wanted)
            for client in clients:
                client.send(1, 11, fetch(EACH, session_epoch=session_epoch))
            await until_async(lambda: owner.waited_for >= ENTERED * EACH, "all partitions to be waited for")
            await turns(200)
            assert alive(Wanted) - before <= (ENTERED * EACH if session_epoch else CLIENTS * EACH)
            assert sum(len(one._wanted or ()) for one in living(Fetching)) == ENTERED * EACH
            await (await proxy.connect()).ask(0, 9, produced())
            answers = await asyncio.wait_for(asyncio.gather(*(client.receive() for client in clients)), 20)
            assert all(len(answer.responses[0].partitions) == EACH for _, answer in answers)

    asyncio.run(main())


def living(kind: type[T]) -> list[T]:
    return [one for one in gc.get_objects() if type(one) is kind]


def alive(kind: type) -> int:
    return len(living(kind))


def produced() -> dict[str, Any]:
    data = [{"name": "wide", "partition_data": [{"index": 0, "records": batch(b"news")}]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": data}
