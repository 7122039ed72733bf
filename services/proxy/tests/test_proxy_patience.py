"""What waits for a store that does not answer: every client is told to ask again within one bound, whatever its request
names.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from proxy_in_memory import Client, Running, running_proxy

from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.settings import ProxySettings

WAIT_MS = 300
AT_MOST_S = 2.0
"""Many times the bound: it is not measured here, only that it is one."""
PARTITIONS = 500
LOADING, NOT_LEADER = int(ErrorCode.coordinator_load_in_progress), int(ErrorCode.not_leader_or_follower)


class Silent:
    """An owner's method that never answers, and what became of its calls."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    async def __call__(self, *_: Any, **__: Any) -> Any:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def run(test: Callable[[Running, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(store_wait_ms=WAIT_MS, write_timeout_ms_min=WAIT_MS)) as proxy:
            proxy.metadata.add_topic("orders", PARTITIONS)
            proxy.metadata.add_topic("__consumer_offsets", 16)
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


def _all_partitions(index: str, **fields: Any) -> list[dict[str, Any]]:
    return [{index: number, **fields} for number in range(PARTITIONS)]


GROUPS = [f"group-{number}" for number in range(100)]
ASKED: dict[str, tuple[str, int, int, dict[str, Any], Callable[[Message], set[int]]]] = {
    "ListOffsets": (
        "offset_for_time",
        2,
        7,
        {"topics": [{"name": "orders", "partitions": _all_partitions("partition_index", timestamp=-1)}]},
        lambda reply: {one.error_code for one in reply.topics[0].partitions},
    ),
    "OffsetForLeaderEpoch": (
        "epoch_end",
        23,
        4,
        {
            "topics": [
                {"topic": "orders", "partitions": _all_partitions("partition", current_leader_epoch=-1, leader_epoch=3)}
            ]
        },
        lambda reply: {one.error_code for one in reply.topics[0].partitions},
    ),
    "OffsetCommit": (
        "group_call",
        8,
        8,
        {
            "group_id": "g",
            "topics": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ],
        },
        lambda reply: {reply.topics[0].partitions[0].error_code},
    ),
    "OffsetFetch": (
        "group_call",
        9,
        8,
        {"groups": [{"group_id": group, "topics": None} for group in GROUPS], "require_stable": False},
        lambda reply: {one.error_code for one in reply.groups},
    ),
    "LeaveGroup": ("group_call", 13, 0, {"group_id": "g", "member_id": "m"}, lambda reply: {reply.error_code}),
    "DescribeGroups": ("group_call", 15, 5, {"groups": GROUPS}, lambda reply: {one.error_code for one in reply.groups}),
    "ListGroups": ("group_call", 16, 4, {"states_filter": []}, lambda reply: {reply.error_code}),
    "DeleteGroups": (
        "group_call",
        42,
        2,
        {"groups_names": GROUPS},
        lambda reply: {one.error_code for one in reply.results},
    ),
    "OffsetDelete": (
        "group_call",
        47,
        0,
        {"group_id": "g", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
        lambda reply: {reply.error_code},
    ),
}


@pytest.mark.parametrize("api", ASKED)
def test_it_is_answered_within_one_bound_and_nothing_goes_on_for_it(api: str) -> None:
    method, api_key, version, request, codes = ASKED[api]

    async def test(proxy: Running, client: Client) -> None:
        silent = Silent()
        setattr(proxy.owner, method, silent)
        began = monotonic()
        assert codes(await client.ask(api_key, version, request)) == {LOADING if method == "group_call" else NOT_LEADER}
        assert monotonic() - began < AT_MOST_S
        assert 0 < silent.begun == silent.cancelled < PARTITIONS, "what came to its turn after the bound is not begun"

    run(test)


def test_a_heartbeat_and_a_sync_at_a_store_that_is_down_do_not_end_a_member() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.group_call = Silent()  # type: ignore[method-assign]
        assert (await client.ask(12, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"})).error_code == 0

    run(test)


def test_records_to_delete_of_many_partitions_are_waited_for_once() -> None:
    async def test(proxy: Running, client: Client) -> None:
        silent = Silent()
        proxy.owner.delete_records = silent  # type: ignore[method-assign]
        began = monotonic()
        topics = [{"name": "orders", "partitions": _all_partitions("partition_index", offset=0)}]
        reply = await client.ask(21, 2, {"topics": topics, "timeout_ms": 1})
        assert {one.error_code for one in reply.topics[0].partitions} == {int(ErrorCode.request_timed_out)}
        assert monotonic() - began < AT_MOST_S

    run(test)


def test_figures_of_owners_that_do_not_answer_are_left_out() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.status = Silent()  # type: ignore[method-assign]
        [found] = (await client.ask(35, 4, {"topics": None})).results
        assert (found.error_code, list(found.topics)) == (0, [])

    run(test)


def test_a_controller_that_does_not_answer_is_not_waited_for_by_each_in_turn() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.change(topics={}, topic_ids={})
        silent = Silent()
        proxy.controller.create_topics = silent  # type: ignore[method-assign]
        clients = [await proxy.connect() for _ in range(10)]
        began = monotonic()
        found = [client.ask(10, 3, {"key": "g", "key_type": 0}) for client in clients]
        assert {reply.error_code for reply in await asyncio.gather(*found)} == {LOADING}
        assert monotonic() - began < AT_MOST_S
        assert silent.begun == silent.cancelled

    run(test)


def test_a_producer_id_is_not_waited_for_by_each_in_turn() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.controller.allocate_producer_ids = Silent()  # type: ignore[method-assign]
        clients = [await proxy.connect() for _ in range(10)]
        began = monotonic()
        asked = [client.ask(22, 4, {"transactional_id": None, "transaction_timeout_ms": 0}) for client in clients]
        assert {reply.error_code for reply in await asyncio.gather(*asked)} == {
            int(ErrorCode.coordinator_not_available)
        }
        assert monotonic() - began < AT_MOST_S

    run(test)


def test_what_is_answered_in_time_says_so_beside_what_is_not() -> None:
    async def test(proxy: Running, client: Client) -> None:
        real = proxy.owner.offset_for_time

        async def some(tp: Any, timestamp_ms: int, **options: Any) -> Any:
            if tp.partition % 2:
                await asyncio.Event().wait()
            return await real(tp, timestamp_ms, **options)

        proxy.owner.offset_for_time = some  # type: ignore[method-assign]
        partitions = [{"partition_index": number, "timestamp": -1} for number in range(40)]
        [topic] = (await client.ask(2, 7, {"topics": [{"name": "orders", "partitions": partitions}]})).topics
        assert [one.error_code for one in topic.partitions] == [0, NOT_LEADER] * 20

    run(test)
