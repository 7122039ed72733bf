"""Every call to the group coordinator's shell: all versions, tools, bad requests, topic ids."""

import asyncio
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import uvloop
from group_shard import (
    BEAT,
    COMMIT,
    DELETE,
    DESCRIBE,
    FETCH,
    JOIN,
    LEAVE,
    LIST,
    NEWEST,
    OFFSET_DELETE,
    SYNC,
    Topics,
    coordinator,
)

from bmq.roles.owner import LANE_OFFSETS, TOPIC_CONSUMERS, Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, decode_response, encode_request, encode_response
from bmq_broker.handlers.group_calls import GROUP_API_KEYS, group_call_failed, handle_group_call
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_every_version_of_every_request_is_answered_and_can_be_encoded() -> None:
    topic_id = Topics("t").ids["t"]
    fields: dict[int, dict[str, Any]] = {
        COMMIT: {
            "group_id": "g",
            "topics": [
                {"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
            ],
        },
        FETCH: {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": [0, 1]}],
            "groups": [{"group_id": "g", "topics": [{"name": "t", "topic_id": topic_id, "partition_indexes": [0, 1]}]}],
        },
        JOIN: {
            "group_id": "j",
            "session_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        BEAT: {"group_id": "g", "generation_id": 1, "member_id": "x"},
        LEAVE: {"group_id": "g", "member_id": "x", "members": [{"member_id": "x", "group_instance_id": None}]},
        SYNC: {"group_id": "g", "generation_id": 1, "member_id": "x", "assignments": []},
        DESCRIBE: {"groups": ["g", "unknown"], "include_authorized_operations": True},
        LIST: {"states_filter": ["empty"], "types_filter": ["CLASSIC"]},
        DELETE: {"groups_names": ["unknown"]},
        OFFSET_DELETE: {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
    }
    assert fields.keys() == GROUP_API_KEYS - {LANE_OFFSETS, TOPIC_CONSUMERS}
    lowest = {COMMIT: 2, FETCH: 1}
    for api_key, values in fields.items():
        for version in range(lowest.get(api_key, 0), NEWEST[api_key] + 1):
            async with coordinator() as one:
                await one.commit(1)
                await asyncio.wait_for(one.ask(api_key, version, **values), 5)
                request = decode_request(api_key, version, encode_request(api_key, version, values))
                failed = group_call_failed(api_key, request, ErrorCode.not_coordinator)
                assert (
                    "16" in repr(decode_response(api_key, version, encode_response(api_key, version, failed)))
                    or api_key == LIST
                )


@on_virtual_time
async def test_tools_see_and_delete_groups() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        await one.commit(1, group_id="other")
        listed = {
            group.group_id: (group.protocol_type, group.group_state, group.group_type)
            for group in (await one.ask(LIST)).groups
        }
        assert listed == {"g": ("consumer", "Stable", "Classic"), "other": ("", "Empty", "Classic")}
        assert [group.group_id for group in (await one.ask(LIST, states_filter=["STABLE"])).groups] == ["g"]
        assert (await one.ask(LIST, types_filter=["consumer"])).groups == []
        missing = (await one.ask(DESCRIBE, groups=["missing"])).groups[0]
        assert (missing.error_code, missing.group_state) == (ErrorCode.group_id_not_found, "Dead")
        assert (await one.ask(DESCRIBE, 5, groups=["missing"])).groups[0].error_code == 0
        results = (await one.ask(DELETE, groups_names=["g", "other", "missing"])).results
        assert [result.error_code for result in results] == [
            ErrorCode.non_empty_group,
            ErrorCode.none,
            ErrorCode.group_id_not_found,
        ]
        assert [bool(result.error_message) for result in results] == [True, False, True]
        assert await one.fetch(group_id="other") == -1
        left = await one.ask(LEAVE, 1, group_id="g", member_id=member_id)
        assert left.error_code == 0
        again = await one.ask(LEAVE, 2, group_id="g", member_id=member_id)
        assert again.error_code == ErrorCode.unknown_member_id


@on_virtual_time
async def test_bad_requests_get_kafkas_codes() -> None:
    async with coordinator() as one:
        assert (await one.ask(JOIN, group_id="", member_id="")).error_code == ErrorCode.invalid_group_id
        assert (await one.ask(SYNC, group_id="")).error_code == ErrorCode.invalid_group_id
        assert (await one.ask(BEAT, group_id="")).error_code == ErrorCode.invalid_group_id
        assert (await one.ask(LEAVE, group_id="")).error_code == ErrorCode.invalid_group_id
        assert (await one.ask(OFFSET_DELETE, group_id="")).error_code == ErrorCode.invalid_group_id
        assert (await one.ask(OFFSET_DELETE, group_id="nobody")).error_code == ErrorCode.group_id_not_found
        assert await one.commit(1, group_id="x" * 10_000) == ErrorCode.invalid_group_id
        assert await one.commit(1, generation_id_or_member_epoch=3) == ErrorCode.group_id_not_found
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 5_000}]
        reply = await one.ask(
            COMMIT,
            7,
            group_id="g",
            topics=[{"name": "t", "partitions": partitions}, {"name": "missing", "partitions": partitions}],
        )
        codes = [topic.partitions[0].error_code for topic in reply.topics]
        assert codes == [ErrorCode.offset_metadata_too_large, ErrorCode.unknown_topic_or_partition]
        unknown = await one.ask(
            FETCH,
            10,
            groups=[{"group_id": "g", "topics": [{"topic_id": uuid5(NAMESPACE_OID, "no"), "partition_indexes": [0]}]}],
        )
        assert unknown.groups[0].topics[0].partitions[0].error_code == ErrorCode.unknown_topic_id
        given = await one.join(version=4)
        assert given.error_code == ErrorCode.member_id_required
        assert given.member_id.startswith("app-")


@on_virtual_time
async def test_requests_that_a_proxy_has_completed_get_complete_replies() -> None:
    """A proxy looks up names and ids, and asks about lists whatever version the client used."""
    async with coordinator() as one:
        topic_id = one.topics.ids["t"]
        for version in (2, 9, 10):
            caller = Caller(client_id="app", client_host="h", api_version=version)
            partition = Message(
                partition_index=0, committed_offset=version, committed_leader_epoch=-1, committed_metadata=None
            )
            commit = Message(
                group_id="g",
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time_ms=-1,
                topics=[Message(name="t", topic_id=topic_id, partitions=[partition])],
            )
            reply = await handle_group_call(one.shard, COMMIT, commit, caller)
            assert reply["topics"] == [
                {"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "error_code": 0}]}
            ]
            for topics in ([Message(name="t", topic_id=topic_id, partition_indexes=[0])], None):
                group = Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)
                reply = await handle_group_call(one.shard, FETCH, Message(groups=[group], require_stable=False), caller)
                [topic] = reply["groups"][0]["topics"]
                assert (topic["name"], topic["topic_id"], topic["partitions"][0]["committed_offset"]) == (
                    "t",
                    topic_id,
                    version,
                )
        old = Caller(client_id="app", client_host="h", api_version=1)
        leaver = Message(member_id="nobody", group_instance_id=None, reason=None)
        reply = await handle_group_call(
            one.shard, LEAVE, Message(group_id="g", member_id="nobody", members=[leaver]), old
        )
        assert reply["members"][0]["error_code"] == ErrorCode.unknown_member_id


@on_virtual_time
async def test_topic_ids_name_topics_in_the_newest_versions() -> None:
    async with coordinator() as one:
        assert await one.commit(6) == ErrorCode.none
        topic_id = one.topics.ids["t"]
        reply = await one.ask(
            FETCH, 10, groups=[{"group_id": "g", "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}]
        )
        [topic] = reply.groups[0].topics
        assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 6)
        reply = await one.ask(FETCH, 10, groups=[{"group_id": "g", "topics": None}])
        assert [topic.topic_id for topic in reply.groups[0].topics] == [topic_id]


def test_deadlines_that_are_due_at_once_keep_the_shard_running_on_uvloop() -> None:
    """A timer of uvloop for a time that has passed is a plain handle, which knows no time."""

    async def scenario() -> None:
        async with coordinator(session_timeout_ms_min=0) as one:
            protocols = [{"name": "range", "metadata": b""}]
            join = {
                "session_timeout_ms": 0,
                "rebalance_timeout_ms": 0,
                "member_id": "",
                "protocol_type": "consumer",
                "protocols": protocols,
            }
            await asyncio.gather(
                *(one.ask(JOIN, 3, group_id=f"g{number}", **join) for number in range(5)), return_exceptions=True
            )
            await asyncio.sleep(0.01)
            assert one.failures == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
