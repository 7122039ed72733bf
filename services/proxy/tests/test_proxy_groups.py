"""Requests about groups: which partition they go to, how they are split and merged, how old versions and topic ids are
brought to one form.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
import structlog
from proxy_in_memory import Client, Running, running_proxy

from bmq.errors import BmqError, NotOwner, NotReady, StoreUnavailable
from bmq.naming.group_partition import partition_of_group
from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode

GROUPS = ["a", "b", "c", "hello", "my-group", "a"]


def run(test: Callable[[Running, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


def offsets(partition: int, api_key: int, request: Any, caller: Caller) -> Any:
    """A coordinator where every group has offset 7 for each partition asked of it."""
    groups = []
    for group in request.groups:
        asked = (
            [("orders", [0])]
            if group.topics is None
            else [(topic.name, topic.partition_indexes) for topic in group.topics]
        )
        topics = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "committed_offset": 7, "metadata": "", "error_code": 0}
                    for index in indexes
                ],
            }
            for name, indexes in asked
        ]
        groups.append({"group_id": group.group_id, "topics": topics, "error_code": 0})
    return {"groups": groups}


def test_groups_are_split_by_partition_and_merged_in_the_order_of_the_request() -> None:
    async def test(proxy: Running, client: Client) -> None:
        def describe(partition: int, api_key: int, request: Any, caller: Caller) -> Any:
            assert all(partition_of_group(group, 16) == partition for group in request.groups)
            return {
                "groups": [
                    {"group_id": group, "error_code": 0, "group_state": "Stable"} for group in reversed(request.groups)
                ]
            }

        proxy.owner.on_group_call = describe
        reply = await client.ask(15, 5, {"groups": GROUPS})
        assert [group.group_id for group in reply.groups] == GROUPS[:-1]
        assert len(proxy.owner.group_calls) == len({partition_of_group(group, 16) for group in GROUPS})

    run(test)


def test_a_coordinator_that_cannot_answer_fails_its_own_groups_alone() -> None:
    async def test(proxy: Running, client: Client) -> None:
        failing = partition_of_group("hello", 16)

        def delete(partition: int, api_key: int, request: Any, caller: Caller) -> Any:
            if partition == failing:
                return NotReady("loading")
            return {"results": [{"group_id": group, "error_code": 0} for group in request.groups_names]}

        proxy.owner.on_group_call = delete
        reply = await client.ask(42, 2, {"groups_names": GROUPS})
        expected = {
            group: ErrorCode.coordinator_load_in_progress if partition_of_group(group, 16) == failing else 0
            for group in GROUPS
        }
        assert {one.group_id: one.error_code for one in reply.results} == expected

    run(test)


def test_groups_of_all_coordinators_are_listed_and_none_where_there_never_was_one() -> None:
    async def test(proxy: Running, client: Client) -> None:
        assert (await client.ask(16, 4, {})).groups == []
        await client.ask(10, 2, {"key": "g"})
        proxy.owner.on_group_call = lambda partition, *_: {
            "error_code": 0,
            "groups": [{"group_id": f"g{partition:02}", "group_state": "Empty"}],
        }
        reply = await client.ask(16, 4, {})
        assert [group.group_id for group in reply.groups] == [f"g{n:02}" for n in range(16)]
        proxy.owner.on_group_call = lambda partition, *_: (
            NotOwner("moved") if partition == 3 else {"error_code": 0, "groups": []}
        )
        assert (await client.ask(16, 4, {})).error_code == ErrorCode.not_coordinator

    run(test)


def test_offsets_are_fetched_in_every_version() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 2)
        proxy.owner.on_group_call = offsets
        for version in (1, 2, 5, 7):
            reply = await client.ask(
                9, version, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0, 1]}]}
            )
            assert [(one.partition_index, one.committed_offset) for one in reply.topics[0].partitions] == [
                (0, 7),
                (1, 7),
            ]
        everything = await client.ask(9, 7, {"group_id": "g", "topics": None})
        assert [one.name for one in everything.topics] == ["orders"]
        reply = await client.ask(9, 9, {"groups": [{"group_id": group, "topics": None} for group in GROUPS[:3]]})
        assert [group.group_id for group in reply.groups] == GROUPS[:3]
        unknown = UUID(int=99)
        asked = [
            {"topic_id": topic.topic_id, "partition_indexes": [1]},
            {"topic_id": unknown, "partition_indexes": [4]},
        ]
        reply = await client.ask(
            9, 10, {"groups": [{"group_id": "g", "topics": asked}, {"group_id": "all", "topics": None}]}
        )
        found = {
            one.topic_id: (one.partitions[0].committed_offset, one.partitions[0].error_code)
            for one in reply.groups[0].topics
        }
        assert found == {topic.topic_id: (7, 0), unknown: (-1, ErrorCode.unknown_topic_id)}
        assert [one.topic_id for one in reply.groups[1].topics] == [topic.topic_id]

    run(test)


def test_offsets_of_a_coordinator_that_moved_say_so_in_every_version() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.on_group_call = lambda *_: NotOwner("moved")
        asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
        assert (await client.ask(9, 1, asked)).topics[0].partitions[0].error_code == ErrorCode.not_coordinator
        assert (await client.ask(9, 5, asked)).error_code == ErrorCode.not_coordinator
        reply = await client.ask(9, 8, {"groups": [{"group_id": "g", "topics": None}]})
        assert reply.groups[0].error_code == ErrorCode.not_coordinator

    run(test)


def test_commits_by_id_reach_the_coordinator_by_name() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = proxy.metadata.add_topic("orders", 2)

        def commit(partition: int, api_key: int, request: Any, caller: Caller) -> Any:
            return {
                "topics": [
                    {
                        "name": one.name,
                        "partitions": [{"partition_index": p.partition_index, "error_code": 0} for p in one.partitions],
                    }
                    for one in request.topics
                ]
            }

        proxy.owner.on_group_call = commit
        unknown = UUID(int=99)
        partitions = [{"partition_index": 1, "committed_offset": 5}]
        asked = [
            {"topic_id": unknown, "partitions": partitions},
            {"topic_id": topic.topic_id, "partitions": partitions},
        ]
        reply = await client.ask(8, 10, {"group_id": "g", "topics": asked})
        found = {one.topic_id: one.partitions[0].error_code for one in reply.topics}
        assert found == {topic.topic_id: 0, unknown: ErrorCode.unknown_topic_id}
        _, _, forwarded, caller = proxy.owner.group_calls[0]
        assert [(one.name, one.topic_id) for one in forwarded.topics] == [("orders", topic.topic_id)]
        assert (caller.client_id, caller.client_host, caller.api_version) == ("test", "/127.0.0.1", 10)
        reply = await client.ask(8, 3, {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]})
        assert (reply.topics[0].name, reply.topics[0].partitions[0].error_code) == ("orders", 0)
        error: BmqError = StoreUnavailable("down")
        proxy.owner.on_group_call = lambda *_: error
        reply = await client.ask(8, 8, {"group_id": "g", "topics": [{"name": "orders", "partitions": partitions}]})
        assert reply.topics[0].partitions[0].error_code == ErrorCode.coordinator_not_available

    run(test)


def test_old_versions_of_membership_become_the_newest_form() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.on_group_call = lambda *_: {"error_code": 0, "members": [{"member_id": "m", "error_code": 25}]}
        assert (await client.ask(13, 1, {"group_id": "g", "member_id": "m"})).error_code == ErrorCode.unknown_member_id
        assert [one.member_id for one in proxy.owner.group_calls[-1][2].members] == ["m"]
        reply = await client.ask(13, 4, {"group_id": "g", "members": [{"member_id": "m"}]})
        assert (reply.error_code, reply.members[0].error_code) == (0, ErrorCode.unknown_member_id)
        joined = {
            "error_code": 0,
            "generation_id": 1,
            "protocol_name": None,
            "leader": "m",
            "member_id": "m",
            "members": [],
        }
        proxy.owner.on_group_call = lambda *_: joined
        join = {"group_id": "g", "session_timeout_ms": 6_000, "member_id": "", "protocol_type": "consumer"}
        assert (await client.ask(11, 0, join)).generation_id == 1
        assert proxy.owner.group_calls[-1][2].rebalance_timeout_ms == 6_000
        proxy.owner.on_group_call = lambda *_: NotReady("loading")
        failed = await client.ask(11, 7, {**join, "member_id": "m", "rebalance_timeout_ms": 9_000})
        assert (failed.error_code, failed.member_id) == (ErrorCode.coordinator_load_in_progress, "m")

    run(test)


@pytest.mark.parametrize("who_says_so", ["the coordinator", "the proxy"])
def test_members_of_a_group_that_is_loaded_stay_in_it_or_join_again(who_says_so: str) -> None:
    async def test(proxy: Running, client: Client) -> None:
        loading = {"throttle_time_ms": 0, "error_code": int(ErrorCode.coordinator_load_in_progress)}
        proxy.owner.on_group_call = lambda *_: loading if who_says_so == "the coordinator" else NotReady("loading")
        for version in range(5):
            beat = await client.ask(12, version, {"group_id": "g", "generation_id": 1, "member_id": "m"})
            assert beat.error_code == ErrorCode.none
        loading |= {"protocol_type": None, "protocol_name": None, "assignment": b""}
        for version in range(6):
            synced = await client.ask(
                14, version, {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}
            )
            assert (synced.error_code, synced.assignment) == (ErrorCode.rebalance_in_progress, b"")

    run(test)


def test_a_coordinator_that_is_away_is_told_of_once_and_not_with_each_heartbeat() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.on_group_call = lambda *_: NotReady("loading")
        heartbeat = {"group_id": "hello", "generation_id": 1, "member_id": "one", "group_instance_id": None}
        with structlog.testing.capture_logs() as logs:
            for _ in range(20):
                assert (await client.ask(12, 4, heartbeat)).error_code == ErrorCode.none
        assert len([line for line in logs if line["event"] == "group request not answered"]) == 1

    run(test)
