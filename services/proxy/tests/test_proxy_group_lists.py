"""Answers about groups: nobody knows how much coordinators will say, so few are asked for at a time."""

import asyncio
from typing import Any

import pytest
from one_connection import run
from proxy_in_memory import Client, Running
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.errors import ControllerUnavailable
from bmq.fairness.fair_room import FairRoom
from bmq.naming.group_partition import partition_of_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.bulk import LISTS_AT_ONCE
from bmq_proxy.coordinators import HELD_TIMES, Coordinators
from bmq_proxy.handlers.k09_offset_fetch import ALL_COUNTS, COORDINATORS_AT_ONCE
from bmq_proxy.lanes.groups import BaseGroups
from bmq_proxy.settings import ProxySettings

ASKING = 12
LIST: dict[str, Any] = {"states_filter": [], "types_filter": []}
GROUP = {"group_id": "g", "protocol_type": "", "group_state": "Empty", "group_type": "Classic"}


def test_however_many_ask_coordinators_say_all_that_they_have_few_times_at_once() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        asked, most, may_answer = 0, 0, asyncio.Event()

        async def group_call(*_: Any) -> dict[str, Any]:
            nonlocal asked, most
            asked += 1
            most = max(most, asked)
            await may_answer.wait()
            asked -= 1
            return {"error_code": 0, "groups": [GROUP]}

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        clients = [await proxy.connect(local_addr=(hosts[number % 3], 0)) for number in range(ASKING)]
        for one in clients:
            one.send(ApiKey.LIST_GROUPS, 4, LIST)
        await until_async(lambda: asked >= LISTS_AT_ONCE, "two lists under way")
        for _ in range(50):
            await asyncio.sleep(0)
        may_answer.set()
        for one in clients:
            _, answered = await one.receive()
            assert [group.group_id for group in answered.groups] == ["g"]
        assert most == LISTS_AT_ONCE

    run(test)


def test_of_a_group_whose_offsets_say_much_few_have_them_at_once_as_soon_as_that_is_known() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        asked, most = 0, 0
        metadata = "m" * 1_000
        partitions = [
            {
                "partition_index": index,
                "committed_offset": 1,
                "committed_leader_epoch": -1,
                "metadata": metadata,
                "error_code": 0,
            }
            for index in range(6_000)
        ]

        async def group_call(_: int, __: int, request: Any, *more: Any) -> dict[str, Any]:
            nonlocal asked, most
            [group] = request.groups
            much = group.group_id == "much"
            asked += much
            most = max(most, asked)
            await asyncio.sleep(0.005)
            asked -= much
            topics = [{"name": "t", "partitions": partitions if much else partitions[:1]}]
            return {"groups": [{"group_id": group.group_id, "topics": topics, "error_code": 0}]}

        proxy.owner.group_call = group_call  # type: ignore[method-assign]

        def request(group_id: str) -> dict[str, Any]:
            return {
                "groups": [{"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}],
                "require_stable": False,
            }

        assert len((await client.ask(ApiKey.OFFSET_FETCH, 9, request("much"))).groups[0].topics[0].partitions) == 6_000
        most = 0
        clients = [await proxy.connect() for _ in range(4)]
        for one in clients:
            one.send(ApiKey.OFFSET_FETCH, 9, request("much"))
        taken = [asyncio.create_task(one.receive()) for one in clients]
        assert (await client.ask(ApiKey.OFFSET_FETCH, 9, request("little"))).groups[0].error_code == 0
        for _, answered in await asyncio.gather(*taken):
            assert answered.groups[0].error_code == 0
        assert most == 1

    run(test, ProxySettings(limits=Limits(wide_answer_elements=5 * ALL_COUNTS)))


def test_those_at_one_address_who_wait_for_others_of_their_groups_leave_places_to_others() -> None:
    request = {"group_id": "g", "generation_id": 1, "member_id": "a", "group_instance_id": None, "assignments": []}

    async def test(proxy: Running, client: Client) -> None:
        groups = proxy.role.proxy.coordinators
        assert isinstance(groups, BaseGroups)
        coordinators = groups.real
        assert isinstance(coordinators, Coordinators)
        coordinators._held = FairRoom(5, times=HELD_TIMES)
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        asked, may_answer = 0, asyncio.Event()

        async def group_call(*_: Any) -> dict[str, Any]:
            nonlocal asked
            asked += 1
            await may_answer.wait()
            return {"error_code": 0, "assignment": b""}

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        waiting = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(4)]
        for number, one in enumerate(waiting):
            one.send(ApiKey.SYNC_GROUP, 3, {**request, "member_id": str(number)})
        await until_async(lambda: asked == 4, "those to be asked for")
        refused = await proxy.connect(local_addr=("127.0.0.2", 0))
        assert (await refused.ask(ApiKey.SYNC_GROUP, 3, request)).error_code == ErrorCode.rebalance_in_progress
        client.send(ApiKey.SYNC_GROUP, 3, request)
        await until_async(lambda: asked == 5, "one at another address to be asked for")
        for one in waiting:
            one.close()
        await until_async(lambda: coordinators._held.left == 4, "those that went to leave their places")
        may_answer.set()
        assert (await client.receive())[1].error_code == 0

    run(test)


def test_of_many_groups_few_coordinators_are_asked_at_a_time_until_the_answer_is_full() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic(CONSUMER_OFFSETS, 20)
        asked: list[str] = []
        under_way, most = 0, 0
        offset = {"committed_offset": 1, "committed_leader_epoch": -1, "metadata": "m" * 1_000, "error_code": 0}

        async def group_call(_: int, __: int, request: Any, *more: Any) -> dict[str, Any]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1
            asked.extend(group.group_id for group in request.groups)
            partitions = [{"partition_index": index, **offset} for index in range(10)]
            return {
                "groups": [
                    {"group_id": group.group_id, "topics": [{"name": "t", "partitions": partitions}], "error_code": 0}
                    for group in request.groups
                ]
            }

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        each = {partition_of_group(name, len(topic.partitions)): name for name in (f"g{n}" for n in range(200))}
        names = list(each.values())
        answer = await client.ask(ApiKey.OFFSET_FETCH, 9, asking_all(*names))
        assert [group.group_id for group in answer.groups] == names
        codes = [group.error_code for group in answer.groups]
        assert most == COORDINATORS_AT_ONCE
        assert codes == [0] * 4 + [ErrorCode.coordinator_load_in_progress] * 16
        assert asked == names[:4], "nobody is asked for what there is no room for"

    run(test, ProxySettings(limits=Limits(fetched_offsets_bytes_max=50_000)))


def asking_all(*names: str) -> dict[str, Any]:
    groups = [{"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in names]
    return {"groups": groups, "require_stable": False}


@pytest.mark.parametrize("count", [1, 2, 20])
def test_where_there_is_no_topic_for_groups_and_nobody_makes_it_each_of_them_is_told(count: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.controller.error = ControllerUnavailable("nobody leads")
        answer = await client.ask(ApiKey.OFFSET_FETCH, 9, asking_all(*(f"g{number}" for number in range(count))))
        assert [group.error_code for group in answer.groups] == [ErrorCode.coordinator_not_available] * count

    run(test, ProxySettings(store_wait_ms=200))


def test_a_coordinator_that_does_not_answer_keeps_the_others_a_moment_and_its_groups_are_to_be_asked_again() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic(CONSUMER_OFFSETS, 20)
        each = {partition_of_group(name, len(topic.partitions)): name for name in (f"g{n}" for n in range(200))}

        async def group_call(partition: int, _: int, request: Any, *more: Any) -> dict[str, Any]:
            if partition == next(iter(each)):
                await asyncio.sleep(3_600)
            return {"groups": [{"group_id": one.group_id, "topics": [], "error_code": 0} for one in request.groups]}

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        answer = await client.ask(ApiKey.OFFSET_FETCH, 9, asking_all(*each.values()))
        later = ErrorCode.coordinator_load_in_progress
        assert [group.error_code for group in answer.groups] == [later] + [0] * 19

    run(test, ProxySettings(store_wait_ms=10_000))
