"""The group coordinator's shell on virtual time, over a log that is durable late: through the same way in that the broker uses."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest
import uvloop
from group_log import Disk, LateLog

from bmq.errors import Corrupt, Fenced
from bmq.roles.owner import Caller
from bmq.values import Offset, TopicId
from bmq.wire.batches import Record, build_batch
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, decode_response, encode_request, encode_response
from bmq_broker.groups.records import OffsetKey, OffsetValue, encode_key, encode_value
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.groups.settings import GroupSettings
from bmq_broker.handlers.group_calls import GROUP_API_KEYS, group_call_failed, handle_group_call
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import on_virtual_time

COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 8, 9, 11, 12, 13, 14, 15, 16, 42, 47
NEWEST = {8: 10, 9: 10, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 42: 3, 47: 0}


class Topics:
    """An image with these topics."""

    def __init__(self, *names: str) -> None:
        self.ids = {name: TopicId(uuid5(NAMESPACE_OID, name)) for name in names}

    def id_of(self, name: str) -> TopicId | None:
        return self.ids.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((name for name, other in self.ids.items() if other == topic_id), None)


class Coordinator:
    """A shard with a client that speaks every version, through the wire's bytes both ways."""

    def __init__(self, disk: Disk, topics: Topics, **settings: int) -> None:
        self.log = LateLog(disk)
        self.topics = topics
        self.failures: list[BaseException] = []
        self.is_replaced = False
        self.clock_is_good = True
        self.shard = GroupCoordinatorShard(
            self.log,
            3,
            clock=SimClock(),
            rng=SimRng(1),
            settings=GroupSettings(**({"initial_rebalance_delay_ms": 0} | settings)),
            topics=topics,
            fence_check=self.fence_check,
            expiry_allowed=lambda: self.clock_is_good,
            failed=self.failures.append,
        )

    async def fence_check(self) -> None:
        if self.is_replaced:
            raise Fenced("sealed")

    async def ask(self, api_key: int, version: int = -1, **fields: Any) -> Message:
        version = NEWEST[api_key] if version < 0 else version
        request = decode_request(api_key, version, encode_request(api_key, version, fields))
        caller = Caller(client_id="app", client_host="/10.0.0.1", api_version=version)
        reply = await handle_group_call(self.shard, api_key, request, caller)
        return decode_response(api_key, version, encode_response(api_key, version, reply))

    async def join(self, member_id: str = "", version: int = 3, **fields: Any) -> Message:
        return await self.ask(
            JOIN,
            version,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0"}],
            **fields,
        )

    async def sync(self, member_id: str, generation: int, **assignments: bytes) -> Message:
        given = [{"member_id": name.replace("_", "-"), "assignment": data} for name, data in assignments.items()]
        return await self.ask(SYNC, 3, group_id="g", generation_id=generation, member_id=member_id, assignments=given)

    async def beat(self, member_id: str, generation: int) -> ErrorCode:
        return ErrorCode((await self.ask(BEAT, group_id="g", generation_id=generation, member_id=member_id)).error_code)

    async def commit(self, offset: int, *, topic: str = "t", group_id: str = "g", **fields: Any) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": topic, "topic_id": self.topics.id_of(topic), "partitions": partitions}]
        reply = await self.ask(COMMIT, group_id=group_id, topics=topics, **fields)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    async def fetch(self, topic: str = "t", *, group_id: str = "g") -> int:
        topics = [{"name": topic, "partition_indexes": [0]}]
        reply = await self.ask(FETCH, 9, groups=[{"group_id": group_id, "topics": topics}])
        found = reply.groups[0].topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.committed_offset)

    async def single_member(self) -> str:
        """Somebody who has everything, generation 1."""
        member_id = str((await self.join()).member_id)
        reply = await self.ask(SYNC, group_id="g", generation_id=1, member_id=member_id, assignments=[{"member_id": member_id, "assignment": b"all"}])
        assert reply.assignment == b"all"
        return member_id


@asynccontextmanager
async def coordinator(disk: Disk | None = None, topics: Topics | None = None, **settings: int) -> Any:
    one = Coordinator(disk or Disk(), topics or Topics("t", "u"), **settings)
    await one.shard.load()
    yield one
    await one.shard.close()


@on_virtual_time
async def test_no_reply_leaves_before_what_it_rests_on_is_durable() -> None:
    async with coordinator() as one:
        one.log.hold()
        commit = asyncio.ensure_future(one.commit(5))
        await asyncio.sleep(1)
        fetch = asyncio.ensure_future(one.fetch())
        describe = asyncio.ensure_future(one.ask(DESCRIBE, groups=["g"]))
        await asyncio.sleep(1)
        assert not commit.done()
        assert not fetch.done(), "a fetch showed an offset that may yet be lost"
        assert not describe.done()
        one.log.release()
        assert await commit == ErrorCode.none
        assert await fetch == 5
        assert (await describe).groups[0].group_state == "Empty"


@on_virtual_time
async def test_a_slow_store_does_not_end_sessions() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        one.log.hold()
        commit = asyncio.ensure_future(one.commit(5, generation_id_or_member_epoch=1, member_id=member_id))
        for _ in range(20):
            await asyncio.sleep(3)
            assert await asyncio.wait_for(one.beat(member_id, 1), 0.1) == ErrorCode.none
        assert not commit.done()
        one.log.release()
        assert await commit == ErrorCode.none


@on_virtual_time
async def test_a_heartbeat_waits_for_the_record_of_its_generation() -> None:
    async with coordinator() as one:
        member_id = str((await one.join()).member_id)
        one.log.hold()
        sync = asyncio.ensure_future(one.sync(member_id, 1))
        await asyncio.sleep(0)
        beat = asyncio.ensure_future(one.beat(member_id, 1))
        await asyncio.sleep(1)
        assert not beat.done()
        one.log.release()
        assert await beat == ErrorCode.none
        assert (await sync).error_code == 0


@on_virtual_time
async def test_a_stable_group_survives_a_restart_without_a_rebalance() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        first = asyncio.ensure_future(one.join(version=9, group_instance_id="A"))
        a = str((await first).member_id)
        waiting = asyncio.ensure_future(one.join(version=5, group_instance_id="B"))
        await asyncio.sleep(1)
        assert await one.beat(a, 1) == ErrorCode.rebalance_in_progress
        again = await one.join(a, version=5, group_instance_id="A")
        b = str((await waiting).member_id)
        assert {member.member_id for member in again.members} == {a, b}
        sync = asyncio.ensure_future(one.ask(SYNC, group_id="g", generation_id=2, member_id=b, group_instance_id="B"))
        given = [{"member_id": a, "assignment": b"x"}, {"member_id": b, "assignment": b"y"}]
        assert (await one.ask(SYNC, group_id="g", generation_id=2, member_id=a, assignments=given)).assignment == b"x"
        assert (await sync).assignment == b"y"
        assert await one.commit(7, generation_id_or_member_epoch=2, member_id=a) == ErrorCode.none
        await asyncio.sleep(9)
    async with coordinator(disk) as two:
        await asyncio.sleep(9)
        for _ in range(5):
            assert await two.beat(a, 2) == ErrorCode.none
            assert await two.beat(b, 2) == ErrorCode.none
            await asyncio.sleep(5)
        assert await two.fetch() == 7
        described = (await two.ask(DESCRIBE, groups=["g"])).groups[0]
        assert described.group_state == "Stable"
        assert [member.member_assignment for member in described.members] == [b"x", b"y"]


@on_virtual_time
async def test_requests_are_told_to_wait_while_the_log_is_loading() -> None:
    one = Coordinator(Disk(), Topics("t"))
    loading = asyncio.ensure_future(one.shard.load())
    assert await one.commit(1) == ErrorCode.coordinator_load_in_progress
    assert (await one.join()).error_code == ErrorCode.coordinator_load_in_progress
    await loading
    assert await one.commit(1) == ErrorCode.none
    await one.shard.close()


@on_virtual_time
async def test_closing_answers_everything_that_is_held() -> None:
    one = Coordinator(Disk(), Topics("t"), initial_rebalance_delay_ms=3_000)
    await one.shard.load()
    held = [asyncio.ensure_future(one.join()) for _ in range(3)]
    await asyncio.sleep(0)
    one.log.hold()
    commit = asyncio.ensure_future(one.commit(1, group_id="other"))
    await asyncio.sleep(1)
    await one.shard.close()
    assert [(await join).error_code for join in held] == [ErrorCode.not_coordinator] * 3
    assert await commit == ErrorCode.not_coordinator
    assert await one.commit(2) == ErrorCode.not_coordinator
    await one.shard.close()
    assert one.failures == [], "a clean end is no failure"


@on_virtual_time
async def test_a_fence_throws_the_whole_state_away() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        assert await one.commit(1) == ErrorCode.none
        one.log.hold()
        lost = asyncio.ensure_future(one.commit(2))
        fetch = asyncio.ensure_future(one.ask(FETCH, groups=[{"group_id": "g", "topics": None}]))
        await asyncio.sleep(1)
        one.log.fence()
        assert await lost == ErrorCode.not_coordinator
        assert (await fetch).groups[0].error_code == ErrorCode.not_coordinator
        assert [type(error) for error in one.failures] == [Fenced]
        assert not one.shard.is_active
        assert one.shard.group_offsets() == {}
    async with coordinator(disk) as heir:
        assert await heir.fetch() == 1


@on_virtual_time
async def test_an_owner_that_was_replaced_unawares_shows_no_offsets() -> None:
    async with coordinator() as one:
        assert await one.commit(1) == ErrorCode.none
        one.is_replaced = True
        reply = await one.ask(FETCH, groups=[{"group_id": "g", "topics": None}])
        assert reply.groups[0].error_code == ErrorCode.not_coordinator
        assert (await one.ask(DESCRIBE, groups=["g"])).groups[0].error_code == ErrorCode.not_coordinator


@on_virtual_time
async def test_loading_begins_at_the_snapshot_and_a_snapshot_holds_durable_records_only() -> None:
    disk = Disk()
    async with coordinator(disk, snapshot_record_interval=10) as one:
        for offset in range(25):
            assert await one.commit(offset) == ErrorCode.none
        await asyncio.sleep(1)
        assert [offset for offset, _ in disk.snapshots] == [10, 20]
        one.log.hold()
        stuck = [asyncio.ensure_future(one.commit(100 + extra)) for extra in range(10)]
        await asyncio.sleep(5)
        assert [offset for offset, _ in disk.snapshots] == [10, 20], "a snapshot of what is not durable"
        one.log.release()
        await asyncio.gather(*stuck)
        await asyncio.sleep(1)
        assert disk.snapshots[-1][0] == 30
    disk.batches = [batch for batch in disk.batches if int.from_bytes(batch[:8], "big") >= 30]
    async with coordinator(disk) as two:
        assert await two.fetch() == 109


@on_virtual_time
async def test_records_of_a_newer_protocol_are_skipped_and_no_snapshot_hides_them() -> None:
    disk = Disk()
    unknown = build_batch([Record(0, 0, bytes.fromhex("00030001") + b"g", b"\0\0"), Record(0, 0, None, b"")])
    disk.batches.append(unknown)
    disk.next_offset = 2
    async with coordinator(disk, snapshot_record_interval=1) as one:
        assert one.shard.unknown_records == 2
        assert await one.commit(1) == ErrorCode.none
        await asyncio.sleep(1)
        assert disk.snapshots == []


@on_virtual_time
async def test_a_log_that_cannot_be_read_is_not_served() -> None:
    disk = Disk()
    disk.batches.append(build_batch([Record(0, 0, encode_key(OffsetKey("g", "t", 0)), b"\0\3garbage")]))
    one = Coordinator(disk, Topics("t"))
    with pytest.raises(Corrupt, match="batch at offset 0"):
        await one.shard.load()
    assert await one.commit(1) == ErrorCode.coordinator_load_in_progress
    await one.shard.close()


@on_virtual_time
async def test_offsets_of_deleted_topics_go_on_the_notice_and_again_on_load() -> None:
    disk, topics = Disk(), Topics("t", "u")
    async with coordinator(disk, topics) as one:
        assert await one.commit(1, topic="t") == ErrorCode.none
        assert await one.commit(2, topic="u") == ErrorCode.none
        gone = topics.ids.pop("t")
        assert await one.commit(3, topic="t") == ErrorCode.unknown_topic_id
        one.shard.topics_deleted([(gone, "t")])
        assert await one.fetch("t") == -1
        topics.ids["t"] = TopicId(uuid5(NAMESPACE_OID, "t again"))
        assert await one.fetch("t") == -1
        assert await one.commit(9, topic="t") == ErrorCode.none
        assert one.shard.group_offsets().keys() == {("g", "t", 0), ("g", "u", 0)}
    topics.ids["t"] = TopicId(uuid5(NAMESPACE_OID, "t a third time"))
    async with coordinator(disk, topics) as two:
        assert two.shard.group_offsets().keys() == {("g", "u", 0)}
        assert await two.fetch("t") == -1
        assert await two.fetch("u") == 2


@on_virtual_time
async def test_offsets_without_a_topic_id_hold_by_name() -> None:
    disk = Disk()
    values = [(OffsetKey("g", name, 0), OffsetValue(4, 1, "", 0)) for name in ("t", "gone")]
    disk.batches.append(build_batch([Record(0, 0, encode_key(key), encode_value(value)) for key, value in values]))
    disk.next_offset = 2
    async with coordinator(disk) as one:
        assert await one.fetch("t") == 4
        assert one.shard.group_offsets() == {("g", "t", 0): (4, 0)}


@on_virtual_time
async def test_offsets_expire_unless_the_clock_cannot_be_trusted() -> None:
    async with coordinator(offsets_retention_ms=3_600_000) as one:
        assert await one.commit(1) == ErrorCode.none
        one.clock_is_good = False
        await asyncio.sleep(2 * 3600)
        assert await one.fetch() == 1
        one.clock_is_good = True
        await asyncio.sleep(1200)
        assert await one.fetch() == -1
        assert (await one.ask(LIST)).groups == []
        assert one.log.disk.records()[-1][1] is None


@on_virtual_time
async def test_a_member_that_falls_silent_is_removed_in_time() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        await asyncio.sleep(9.9)
        assert (await one.ask(DESCRIBE, groups=["g"])).groups[0].group_state == "Stable"
        await asyncio.sleep(0.2)
        assert (await one.ask(DESCRIBE, groups=["g"])).groups[0].group_state == "Empty"
        assert await one.beat(member_id, 1) == ErrorCode.unknown_member_id


@on_virtual_time
async def test_a_client_that_goes_away_leaves_its_request_and_nothing_else() -> None:
    async with coordinator() as one:
        await one.single_member()
        joining = asyncio.ensure_future(one.join())
        await asyncio.sleep(1)
        joining.cancel()
        await asyncio.sleep(20)
        assert await one.commit(5, group_id="other") == ErrorCode.none


@on_virtual_time
async def test_too_much_that_waits_for_the_store_is_told_to_try_again() -> None:
    async with coordinator(undurable_bytes_max=500) as one:
        one.log.hold()
        commits = [asyncio.ensure_future(one.commit(offset)) for offset in range(50)]
        await asyncio.sleep(1)
        refused = [commit for commit in commits if commit.done()]
        assert {await commit for commit in refused} == {ErrorCode.coordinator_load_in_progress}
        assert 30 < len(refused) < 50
        one.log.release()
        assert ErrorCode.none in await asyncio.gather(*commits)
        assert await one.commit(99) == ErrorCode.none


@on_virtual_time
async def test_a_large_commit_is_appended_in_pieces() -> None:
    async with coordinator(append_size_bytes_max=1_000) as one:
        partitions = [{"partition_index": index, "committed_offset": index, "committed_metadata": "x" * 50} for index in range(100)]
        reply = await one.ask(COMMIT, 9, group_id="g", topics=[{"name": "t", "partitions": partitions}])
        assert {partition.error_code for partition in reply.topics[0].partitions} == {0}
        assert len(one.log.disk.batches) > 5
        assert one.log.end_offset() == Offset(100)


@on_virtual_time
async def test_every_version_of_every_request_is_answered_and_can_be_encoded() -> None:
    topic_id = Topics("t").ids["t"]
    fields: dict[int, dict[str, Any]] = {
        COMMIT: {"group_id": "g", "topics": [{"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]},
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
    assert fields.keys() == GROUP_API_KEYS
    lowest = {COMMIT: 2, FETCH: 1}
    for api_key, values in fields.items():
        for version in range(lowest.get(api_key, 0), NEWEST[api_key] + 1):
            async with coordinator() as one:
                await one.commit(1)
                await asyncio.wait_for(one.ask(api_key, version, **values), 5)
                request = decode_request(api_key, version, encode_request(api_key, version, values))
                failed = group_call_failed(api_key, request, ErrorCode.not_coordinator)
                assert "16" in repr(decode_response(api_key, version, encode_response(api_key, version, failed))) or api_key == LIST


@on_virtual_time
async def test_tools_see_and_delete_groups() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        await one.commit(1, group_id="other")
        listed = {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in (await one.ask(LIST)).groups}
        assert listed == {"g": ("consumer", "Stable", "Classic"), "other": ("", "Empty", "Classic")}
        assert [group.group_id for group in (await one.ask(LIST, states_filter=["STABLE"])).groups] == ["g"]
        assert (await one.ask(LIST, types_filter=["consumer"])).groups == []
        missing = (await one.ask(DESCRIBE, groups=["missing"])).groups[0]
        assert (missing.error_code, missing.group_state) == (ErrorCode.group_id_not_found, "Dead")
        assert (await one.ask(DESCRIBE, 5, groups=["missing"])).groups[0].error_code == 0
        results = (await one.ask(DELETE, groups_names=["g", "other", "missing"])).results
        assert [result.error_code for result in results] == [ErrorCode.non_empty_group, ErrorCode.none, ErrorCode.group_id_not_found]
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
            COMMIT, 7, group_id="g", topics=[{"name": "t", "partitions": partitions}, {"name": "missing", "partitions": partitions}]
        )
        codes = [topic.partitions[0].error_code for topic in reply.topics]
        assert codes == [ErrorCode.offset_metadata_too_large, ErrorCode.unknown_topic_or_partition]
        unknown = await one.ask(FETCH, 10, groups=[{"group_id": "g", "topics": [{"topic_id": uuid5(NAMESPACE_OID, "no"), "partition_indexes": [0]}]}])
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
            partition = Message(partition_index=0, committed_offset=version, committed_leader_epoch=-1, committed_metadata=None)
            commit = Message(
                group_id="g",
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time_ms=-1,
                topics=[Message(name="t", topic_id=topic_id, partitions=[partition])],
            )
            reply = await handle_group_call(one.shard, COMMIT, commit, caller)
            assert reply["topics"] == [{"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "error_code": 0}]}]
            for topics in ([Message(name="t", topic_id=topic_id, partition_indexes=[0])], None):
                group = Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)
                reply = await handle_group_call(one.shard, FETCH, Message(groups=[group], require_stable=False), caller)
                [topic] = reply["groups"][0]["topics"]
                assert (topic["name"], topic["topic_id"], topic["partitions"][0]["committed_offset"]) == ("t", topic_id, version)
        old = Caller(client_id="app", client_host="h", api_version=1)
        leaver = Message(member_id="nobody", group_instance_id=None, reason=None)
        reply = await handle_group_call(one.shard, LEAVE, Message(group_id="g", member_id="nobody", members=[leaver]), old)
        assert reply["members"][0]["error_code"] == ErrorCode.unknown_member_id


@on_virtual_time
async def test_topic_ids_name_topics_in_the_newest_versions() -> None:
    async with coordinator() as one:
        assert await one.commit(6) == ErrorCode.none
        topic_id = one.topics.ids["t"]
        reply = await one.ask(FETCH, 10, groups=[{"group_id": "g", "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}])
        [topic] = reply.groups[0].topics
        assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 6)
        reply = await one.ask(FETCH, 10, groups=[{"group_id": "g", "topics": None}])
        assert [topic.topic_id for topic in reply.groups[0].topics] == [topic_id]


def test_deadlines_that_are_due_at_once_keep_the_shard_running_on_uvloop() -> None:
    """A timer of uvloop for a time that has passed is a plain handle, which knows no time."""

    async def scenario() -> None:
        async with coordinator(session_timeout_ms_min=0) as one:
            protocols = [{"name": "range", "metadata": b""}]
            join = {"session_timeout_ms": 0, "rebalance_timeout_ms": 0, "member_id": "", "protocol_type": "consumer", "protocols": protocols}
            await asyncio.gather(*(one.ask(JOIN, 3, group_id=f"g{number}", **join) for number in range(5)), return_exceptions=True)
            await asyncio.sleep(0.01)
            assert one.failures == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
