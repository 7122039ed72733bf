"""Offsets never pass from a topic to another one of its name, whichever of two images is behind."""

import asyncio
from uuid import NAMESPACE_OID, uuid5

import pytest
from group_shard import COMMIT, FETCH, Coordinator, Topics, coordinator

from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

OLD, NEW = (TopicId(uuid5(NAMESPACE_OID, text)) for text in ("old t", "new t"))


async def commit(one: Coordinator, topic_id: TopicId | None, offset: int, *, version: int = 10) -> ErrorCode:
    """As a proxy hands it on, which has looked up the id or the name in its own image."""
    part = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
    request = Message(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[Message(name="t", topic_id=topic_id, partitions=[part])],
    )
    reply = await handle_group_call(
        one.shard, COMMIT, request, Caller(client_id="app", client_host="/h", api_version=version)
    )
    return ErrorCode(reply["topics"][0]["partitions"][0]["error_code"])


async def fetch(one: Coordinator, topic_id: TopicId | None, *, version: int = 10) -> tuple[ErrorCode, int]:
    topics = [Message(name="t", topic_id=topic_id, partition_indexes=[0])]
    request = Message(
        groups=[Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)], require_stable=False
    )
    reply = await handle_group_call(
        one.shard, FETCH, request, Caller(client_id="app", client_host="/h", api_version=version)
    )
    [group] = reply["groups"]
    if group["error_code"]:
        return ErrorCode(group["error_code"]), -1
    part = group["topics"][0]["partitions"][0]
    return ErrorCode(part["error_code"]), part["committed_offset"]


@pytest.mark.parametrize(
    ("version", "refusal"), [(10, ErrorCode.unknown_topic_id), (9, ErrorCode.coordinator_load_in_progress)]
)
@pytest.mark.parametrize(("here", "asked"), [(NEW, OLD), (OLD, NEW)])
@on_virtual_time
async def test_an_offset_of_another_topic_of_that_name_is_neither_stored_nor_told(
    version: int, refusal: ErrorCode, here: TopicId, asked: TopicId
) -> None:
    topics = Topics("t")
    topics.ids["t"] = here
    async with coordinator(topics=topics) as one:
        assert await commit(one, asked, 5_000, version=version) == refusal
        assert await fetch(one, here, version=version) == (ErrorCode.none, -1)
        assert await commit(one, here, 7, version=version) == ErrorCode.none
        assert await fetch(one, asked, version=version) == (refusal, -1)
        assert await fetch(one, here, version=version) == (ErrorCode.none, 7)
        assert await fetch(one, None, version=9) == (ErrorCode.none, 7), "nobody looked up an id: the name counts here"


@on_virtual_time
async def test_what_was_acknowledged_under_a_new_topics_id_is_there_when_the_image_has_come() -> None:
    topics = Topics("t")
    topics.ids["t"] = OLD
    async with coordinator(topics=topics) as one:
        assert await commit(one, OLD, 5_000) == ErrorCode.none
        assert await commit(one, NEW, 7) == ErrorCode.unknown_topic_id, (
            "not acknowledged, so not lost with the old topic's offsets"
        )
        topics.ids["t"] = NEW
        one.shard.topics_deleted([(OLD, "t")])
        await asyncio.sleep(1)
        assert await commit(one, NEW, 7) == ErrorCode.none
        assert await fetch(one, NEW) == (ErrorCode.none, 7)


@on_virtual_time
async def test_a_topic_that_is_not_known_here_yet_has_none_of_an_older_ones_offsets() -> None:
    topics = Topics("t")
    topics.ids["t"] = OLD
    async with coordinator(topics=topics) as one:
        assert await commit(one, OLD, 5_000) == ErrorCode.none
        del topics.ids["t"]  # deleted, and its tombstones are still to come
        assert await fetch(one, NEW, version=9) == (ErrorCode.none, -1)
        assert await commit(one, NEW, 7, version=9) == ErrorCode.unknown_topic_or_partition
