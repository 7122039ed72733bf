"""Look-ups of offsets: one address has so many under way at owners, and those of others stand behind no more of them
than that.
"""

import asyncio
from typing import Any

import pytest
import structlog
from proxy_in_memory import running_proxy
from tests.waiting import until_async

from bmq.config.limits import limits_of
from bmq.roles.owner import EpochEnd, OffsetForTime
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

PARTITIONS = 40
CLIENTS = 10
AT_ONCE = 50
OFFSETS = {
    "replica_id": -1,
    "isolation_level": 0,
    "topics": [
        {
            "name": "orders",
            "partitions": [
                {"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in range(PARTITIONS)
            ],
        }
    ],
}
EPOCHS = {
    "replica_id": -1,
    "topics": [
        {
            "topic": "orders",
            "partitions": [{"partition": n, "current_leader_epoch": -1, "leader_epoch": 1} for n in range(PARTITIONS)],
        }
    ],
}
ASKED: dict[ApiKey, tuple[int, Any]] = {ApiKey.LIST_OFFSETS: (7, OFFSETS), ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, EPOCHS)}


@pytest.mark.parametrize("api", ASKED)
def test_one_address_has_so_many_look_ups_at_owners_and_others_do_not_wait_for_them(api: ApiKey) -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"look_ups_per_address": AT_ONCE}))) as proxy:
            proxy.metadata.add_topic("orders", PARTITIONS)
            gate, asked = asyncio.Event(), 0
            offset_for_time, epoch_end = proxy.owner.offset_for_time, proxy.owner.epoch_end

            async def offset(*args: Any, **kwargs: Any) -> OffsetForTime:
                nonlocal asked
                asked += 1
                await gate.wait()
                return await offset_for_time(*args, **kwargs)

            async def end(*args: Any, **kwargs: Any) -> EpochEnd:
                nonlocal asked
                asked += 1
                await gate.wait()
                return await epoch_end(*args, **kwargs)

            proxy.owner.offset_for_time, proxy.owner.epoch_end = offset, end  # type: ignore[method-assign]
            greedy = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(CLIENTS)]
            for one in greedy:
                one.send(api, *ASKED[api])
            endpoint = proxy.role.server.endpoint
            await until_async(
                lambda: endpoint.in_flight == CLIENTS and asked >= AT_ONCE, "as many look-ups as may be at once"
            )
            for _ in range(100):
                await asyncio.sleep(0)
            assert asked == AT_ONCE
            modest = await proxy.connect(local_addr=("127.0.0.3", 0))
            modest.send(api, *ASKED[api])
            await until_async(lambda: asked == AT_ONCE + PARTITIONS, "the modest one's look-ups")
            gate.set()
            for one in (*greedy, modest):
                await asyncio.wait_for(one.receive(), 10)
            assert asked == (CLIENTS + 1) * PARTITIONS

    asyncio.run(main())


@pytest.mark.parametrize("api", ASKED)
def test_few_look_ups_of_one_address_are_tasks_that_wait_and_each_request_has_one(
    monkeypatch: pytest.MonkeyPatch, api: ApiKey
) -> None:
    monkeypatch.setattr("bmq_proxy.bulk.BESIDE_OTHERS_MAX", 3 * PARTITIONS)

    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"look_ups_per_address": 1}))) as proxy:
            proxy.metadata.add_topic("orders", PARTITIONS)
            gate = asyncio.Event()
            offset_for_time, epoch_end = proxy.owner.offset_for_time, proxy.owner.epoch_end

            async def offset(*args: Any, **kwargs: Any) -> OffsetForTime:
                await gate.wait()
                return await offset_for_time(*args, **kwargs)

            async def end(*args: Any, **kwargs: Any) -> EpochEnd:
                await gate.wait()
                return await epoch_end(*args, **kwargs)

            proxy.owner.offset_for_time, proxy.owner.epoch_end = offset, end  # type: ignore[method-assign]
            greedy = [await proxy.connect() for _ in range(CLIENTS)]
            before = len(asyncio.all_tasks())
            for one in greedy:
                one.send(api, *ASKED[api])
            await until_async(lambda: proxy.role.server.endpoint.in_flight == CLIENTS, "all requests")
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) - before <= 2 * PARTITIONS + 3 * CLIENTS
            gate.set()
            for one in greedy:
                topics = (await asyncio.wait_for(one.receive(), 10))[1].topics
                assert [part.error_code for part in topics[0].partitions] == [0] * PARTITIONS
            assert proxy.role.proxy.bulk._beside.left == 3 * PARTITIONS

    asyncio.run(main())


def test_an_owner_is_told_where_the_client_is() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", PARTITIONS)
            addresses: set[str] = set()
            offset_for_time = proxy.owner.offset_for_time

            async def offset(*args: Any, address: str, **kwargs: Any) -> OffsetForTime:
                addresses.add(address)
                return await offset_for_time(*args, **kwargs)

            proxy.owner.offset_for_time = offset  # type: ignore[method-assign]
            client = await proxy.connect(local_addr=("127.0.0.3", 0))
            await client.ask(ApiKey.LIST_OFFSETS, 7, OFFSETS)
            assert addresses == {"/127.0.0.3"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("timestamp", "lacks"),
    [(0, "busy with look-ups"), (-3, "busy with look-ups"), (-1, "is the object store down"), (-2, "is the object")],
)
def test_who_looks_for_a_time_in_vain_is_not_told_that_the_store_is_down(timestamp: int, lacks: str) -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(store_wait_ms=10)) as proxy:
            proxy.metadata.add_topic("orders", 1)

            async def never(*_: Any, **__: Any) -> OffsetForTime:
                await asyncio.Event().wait()
                raise AssertionError

            proxy.owner.offset_for_time = never  # type: ignore[method-assign]
            client = await proxy.connect()
            asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
            with structlog.testing.capture_logs() as logs:
                [topic] = (
                    await client.ask(ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": "orders", "partitions": asked}]})
                ).topics
            assert topic.partitions[0].error_code == int(ErrorCode.not_leader_or_follower)
            [line] = [one["event"] for one in logs if "in time" in one["event"]]
            assert lacks in line

    asyncio.run(main())
