"""What the group coordinator's shell answers, and when: durability, restarts, fences, expiry."""

import asyncio
from uuid import NAMESPACE_OID, uuid5

import pytest
from group_log import Disk
from group_shard import COMMIT, DELETE, DESCRIBE, FETCH, LIST, SYNC, Coordinator, Topics, coordinator

from bmq.errors import Corrupt, Fenced
from bmq.values import Offset, TopicId
from bmq.wire.batches import Record, build_batch
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups.asked import STORED_WITHIN_S
from bmq_broker.coordinators.groups.records import OffsetKey, OffsetValue, encode_key, encode_value
from bmq_sim.loop import on_virtual_time


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
        assert await commit == ErrorCode.coordinator_load_in_progress, (
            "who commits is told to ask again, before it gives up itself"
        )
        one.log.release()
        await asyncio.sleep(1)
        assert await one.fetch() == 5, "and what was decided counts once it is durable"


@on_virtual_time
async def test_what_the_store_does_not_take_is_answered_before_clients_give_up() -> None:
    async with coordinator() as one:
        member_id = str((await one.join()).member_id)
        one.log.hold()
        began = asyncio.get_running_loop().time()
        syncing = one.sync(member_id, 1, **{member_id.replace("-", "_"): b"all"})
        committing = one.commit(5, generation_id_or_member_epoch=1, member_id=member_id)
        looking = one.ask(DESCRIBE, groups=["g"]), one.ask(LIST), one.ask(DELETE, groups_names=["other"])
        sync, commit, described, listed, deleted = await asyncio.gather(syncing, committing, *looking)
        assert STORED_WITHIN_S <= asyncio.get_running_loop().time() - began <= STORED_WITHIN_S + 1
        codes = [
            sync.error_code,
            commit,
            described.groups[0].error_code,
            listed.error_code,
            deleted.results[0].error_code,
        ]
        assert codes == [ErrorCode.coordinator_load_in_progress] * 5
        assert list(one.shard._asked._decided) == []
        one.log.release()
        assert (await one.join()).error_code == ErrorCode.none


@on_virtual_time
async def test_who_joins_while_nothing_can_be_stored_is_told_to_join_again() -> None:
    async with coordinator() as one:
        member_id = await one.single_member()
        one.log.hold()
        commit = asyncio.ensure_future(one.commit(5, generation_id_or_member_epoch=1, member_id=member_id))
        await asyncio.sleep(0)
        reply = await one.join(member_id)
        assert reply.error_code == ErrorCode.coordinator_load_in_progress
        assert await commit == ErrorCode.coordinator_load_in_progress
        one.log.release()
        again = await one.join(member_id)
        assert (again.error_code, again.leader) == (ErrorCode.none, member_id)


@on_virtual_time
async def test_members_are_waited_for_as_long_as_their_group_says() -> None:
    async with coordinator(initial_rebalance_delay_ms=25_000) as one:
        began = asyncio.get_running_loop().time()
        assert (await one.join()).error_code == ErrorCode.none
        assert asyncio.get_running_loop().time() - began >= 25


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
        assert list(one.shard.group_offsets(9)) == []
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
        assert [*one.shard.group_offsets(1)] == [{("g", "u", 0): 2}, {("g", "t", 0): 9}], "so many at a time"
    topics.ids["t"] = TopicId(uuid5(NAMESPACE_OID, "t a third time"))
    async with coordinator(disk, topics) as two:
        assert list(two.shard.group_offsets(9)) == [{("g", "u", 0): 2}]
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
        assert list(one.shard.group_offsets(9)) == [{("g", "t", 0): 4}]


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
        partitions = [
            {"partition_index": index, "committed_offset": index, "committed_metadata": "x" * 50}
            for index in range(100)
        ]
        reply = await one.ask(COMMIT, 9, group_id="g", topics=[{"name": "t", "partitions": partitions}])
        assert {partition.error_code for partition in reply.topics[0].partitions} == {0}
        assert len(one.log.disk.batches) > 5
        assert one.log.end_offset() == Offset(100)


@on_virtual_time
async def test_a_group_of_a_lane_that_is_gone_goes_with_its_members_and_offsets_also_when_it_is_loaded_later() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        member_id = await one.single_member()
        assert await one.commit(5, group_id="other") == ErrorCode.none
        assert await one.commit(7, generation_id_or_member_epoch=1, member_id=member_id) == ErrorCode.none
        one.abandoned = {"g"}
        one.shard.drop_abandoned()
        await asyncio.sleep(0.001)  # a few turns of the loop
        assert [group.group_id for group in (await one.ask(LIST)).groups] == ["other"]
        assert await one.beat(member_id, 1) == ErrorCode.unknown_member_id
        assert await one.fetch() == -1
        assert await one.fetch(group_id="other") == 5
    async with coordinator(disk) as two:
        assert [group.group_id for group in (await two.ask(LIST)).groups] == ["other"]
        await two.shard.close()
        three = Coordinator(disk, Topics("t", "u"))
        three.abandoned = {"other"}
        await three.shard.load()
        await asyncio.sleep(0.001)
        assert (await three.ask(LIST)).groups == []
        await three.shard.close()


@on_virtual_time
async def test_a_group_of_a_lane_that_is_gone_goes_in_the_middle_of_a_rebalance() -> None:
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        joining = asyncio.ensure_future(one.join())
        await asyncio.sleep(1)
        one.abandoned = {"g"}
        one.shard.drop_abandoned()
        assert (await joining).error_code == ErrorCode.unknown_member_id
        await asyncio.sleep(10)
        assert (await one.ask(LIST)).groups == []
