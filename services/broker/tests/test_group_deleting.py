"""Offsets are deleted a thousand in a turn, whoever deletes them; others have their turn between."""

import asyncio
from collections import Counter
from typing import Any, Final
from uuid import UUID

import pytest
from group_log import Disk
from group_shard import COMMIT, DELETE, LEAVE, OFFSET_DELETE, Coordinator, Topics, coordinator
from tests.waiting import until_async

from bmq.errors import NotReady
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups import membership, walks
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.requests import Leave, Now
from bmq_broker.coordinators.groups.walks import OFFSETS_PER_TURN
from bmq_broker.handlers import k13_leave_group
from bmq_sim.loop import on_virtual_time

MANY: Final = 2_200


async def many(one: Coordinator, *group_ids: str, count: int = MANY) -> None:
    for group_id in group_ids:
        parts = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in range(count)]
        reply = await one.ask(
            COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, topics=[{"name": "t", "partitions": parts}]
        )
        assert not any(part.error_code for part in reply.topics[0].partitions)


def steps(one: Coordinator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each append has from now on."""
    found: list[int] = []
    append = one.shard._appending.append

    def counted(records: Any) -> Any:
        found.append(len(records))
        return append(records)

    monkeypatch.setattr(one.shard._appending, "append", counted)
    return found


def wide() -> Topics:
    topics = Topics("t")
    topics.partitions = 10_000
    return topics


@on_virtual_time
async def test_delete_groups_takes_a_thousand_offsets_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with coordinator(disk, wide()) as one:
        await many(one, "a", "b")
        await many(one, *(f"s{number}" for number in range(20)), count=100)
        found = steps(one, monkeypatch)
        names = ["a", "none", *(f"s{number}" for number in range(20)), "b"]
        reply = await one.ask(DELETE, groups_names=names)
        assert [(result.group_id, result.error_code) for result in reply.results] == [
            (name, 69 if name == "none" else 0) for name in names
        ]
        assert sum(found) == 2 * MANY + 2_000
        assert max(found) <= OFFSETS_PER_TURN
        assert one.shard._machine.durable.offsets == {}
    async with coordinator(disk, wide()) as one:
        assert one.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_topics_that_go_take_a_thousand_offsets_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = wide()
    async with coordinator(topics=topics) as one:
        await many(one, "a", "b")
        found = steps(one, monkeypatch)
        gone = topics.ids.pop("t")
        one.shard.topics_deleted([(gone, "t")])
        for _ in range(20):
            await asyncio.sleep(0)
        assert (sum(found), max(found)) == (2 * MANY, OFFSETS_PER_TURN)
        assert one.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_offsets_whose_time_is_over_go_a_thousand_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinator(topics=wide(), offsets_retention_ms=60_000, offsets_check_interval_ms=120_000) as one:
        await many(one, "a")
        found = steps(one, monkeypatch)
        await asyncio.sleep(250)
        assert (sum(found), max(found)) == (MANY, OFFSETS_PER_TURN)
        assert one.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_groups_of_a_lane_that_is_gone_go_a_thousand_offsets_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinator(topics=wide()) as one:
        await many(one, "a", "b", "c")
        found = steps(one, monkeypatch)
        one.abandoned |= {"a", "c"}
        one.shard.drop_abandoned()
        for _ in range(30):
            await asyncio.sleep(0)
        assert (sum(found), max(found)) == (2 * MANY, OFFSETS_PER_TURN)
        assert list(one.shard._machine.durable.offsets) == ["b"]


@on_virtual_time
async def test_groups_are_asked_for_gone_lanes_a_thousand_in_a_turn_and_for_all_that_went_meanwhile_at_once() -> None:
    async with coordinator(topics=wide(), snapshot_record_interval=10**9) as one:
        for number in range(3_000):
            assert await one.commit(1, group_id=f"g{number}") == ErrorCode.none
        looks: Counter[str] = Counter()
        most = 0
        is_abandoned = one.shard._is_abandoned

        def counted(group_id: str) -> bool:
            looks[group_id] += 1
            return is_abandoned(group_id)

        one.shard._is_abandoned = counted
        for lanes in range(1, 6):
            one.abandoned |= {f"g{500 * lanes}"}
            one.shard.drop_abandoned()
        while one.shard._walks._is_abandoning:
            before = looks.total()
            await asyncio.sleep(0)
            most = max(most, looks.total() - before)
        assert most == 1_000
        assert max(looks.values()) == 2, "five walks that were asked for are two"
        assert len(one.shard._machine.durable.offsets) == 3_000 - 5


@on_virtual_time
async def test_a_deletion_that_the_log_does_not_take_now_is_not_tried_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with coordinator(topics=wide(), offsets_retention_ms=60_000, offsets_check_interval_ms=120_000) as one:
        await many(one, "a")
        tries = 0

        def closed() -> None:
            nonlocal tries
            tries += 1
            raise NotReady("the store is away")

        with monkeypatch.context() as context:
            context.setattr(one.log, "check_open", closed)
            await asyncio.sleep(250)
        assert tries == 2
        await asyncio.sleep(120)
        assert one.shard._machine.durable.offsets == {}


def per_turn(one: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many records are appended in each turn of the loop from now on."""
    found: Counter[int] = Counter()
    append, turn = one.shard._appending.append, 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if turn < 1_000:  # virtual time only passes where nobody has anything to do
            asyncio.get_running_loop().call_soon(next_turn)

    def counted(records: Any) -> Any:
        found[turn] += len(records)
        return append(records)

    asyncio.get_running_loop().call_soon(next_turn)
    monkeypatch.setattr(one.shard._appending, "append", counted)
    return found


@on_virtual_time
async def test_many_who_delete_at_once_delete_no_more_in_a_turn_than_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinator(topics=wide()) as one:
        names = [f"g{number}" for number in range(3)]
        await many(one, *names)
        found = per_turn(one, monkeypatch)
        replies = await asyncio.gather(*(one.ask(DELETE, groups_names=[name]) for name in names))
        assert not any(reply.results[0].error_code for reply in replies)
        assert found.total() == 3 * MANY
        assert max(found.values()) <= OFFSETS_PER_TURN + len(names)


@on_virtual_time
async def test_who_joins_a_group_while_it_is_deleted_keeps_what_is_left_of_it() -> None:
    disk = Disk()
    async with coordinator(disk, wide()) as one:
        await many(one, "g")
        deleting = asyncio.create_task(one.ask(DELETE, groups_names=["g"]))
        await until_async(lambda: one.shard.offset_count("g") != MANY, "some offsets to be gone", every_s=0)
        await one.single_member()
        left = one.shard.offset_count("g")
        assert 0 < left < MANY
        assert (await deleting).results[0].error_code == ErrorCode.non_empty_group
        assert one.shard.offset_count("g") == left
    async with coordinator(disk, wide()) as one:
        assert one.shard.offset_count("g") == left


@on_virtual_time
@pytest.mark.parametrize("ends", ["is killed", "is fenced", "moves away"])
async def test_a_deletion_whose_coordinator_ends_half_way_is_not_acknowledged_and_may_be_asked_for_again(
    ends: str,
) -> None:
    disk = Disk()
    async with coordinator(disk, wide()) as one:
        await many(one, "a", "b")
        appends = len(disk.batches)
        deleting = asyncio.create_task(one.ask(DELETE, groups_names=["a", "b"]))
        await until_async(
            lambda: one.shard.offset_count("b") <= MANY - 1_000, "a thousand offsets to be gone", every_s=0
        )
        one.log.hold()
        if ends == "is fenced":
            one.log.fence()
        elif ends == "moves away":
            await one.shard.close()
        else:
            deleting.cancel()
        result = (await asyncio.gather(deleting, return_exceptions=True))[0]
        assert (
            isinstance(result, asyncio.CancelledError)
            if ends == "is killed"
            else {one.error_code for one in result.results} == {ErrorCode.not_coordinator}
        )
    assert len(disk.batches) >= appends
    async with coordinator(disk, wide()) as heir:
        assert 0 < heir.shard.offset_count("b") <= MANY
        reply = await heir.ask(DELETE, groups_names=["a", "b"])
        assert {one.error_code for one in reply.results} <= {0, ErrorCode.group_id_not_found}
        assert heir.shard._machine.durable.offsets == {}
    async with coordinator(disk, wide()) as heir:
        assert heir.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_offset_delete_takes_a_thousand_offsets_in_a_turn_and_says_what_became_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with coordinator(topics=wide()) as one:
        await many(one, "g")
        found = per_turn(one, monkeypatch)
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in range(3_000)]}
            for name in ("t", "gone")
        ]
        reply = await one.ask(OFFSET_DELETE, group_id="g", topics=topics)
        assert reply.error_code == 0
        assert [len(topic.partitions) for topic in reply.topics] == [3_000, 3_000]
        assert [{one.error_code for one in topic.partitions} for topic in reply.topics] == [
            {0},
            {ErrorCode.unknown_topic_or_partition},
        ]
        assert found.total() == MANY
        assert max(found.values()) <= OFFSETS_PER_TURN
        assert (await one.ask(OFFSET_DELETE, group_id="g", topics=topics)).error_code == ErrorCode.group_id_not_found


@on_virtual_time
async def test_very_many_who_leave_go_a_thousand_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[int] = []
    async with coordinator() as one:
        leave = membership.leave

        def counted(machine: GroupMachine, now: Now, request: Leave) -> Any:
            went.append(len(request.leavers))
            return leave(machine, now, request)

        monkeypatch.setattr(k13_leave_group, "leave", counted)
        member_id = (await one.join()).member_id
        members = [{"member_id": f"no-{number}", "group_instance_id": None} for number in range(3_500)]
        reply = await one.ask(
            LEAVE, group_id="g", members=[*members, {"member_id": member_id, "group_instance_id": None}]
        )
        assert [one.error_code for one in reply.members] == [ErrorCode.unknown_member_id] * 3_500 + [0]
        assert (sum(went), max(went)) == (3_501, 1_000)


@on_virtual_time
async def test_offsets_of_topics_that_go_while_nothing_can_be_stored_go_later() -> None:
    topics = wide()
    async with coordinator(topics=topics, offsets_check_interval_ms=60_000) as one:
        await many(one, "a", "b")
        one.log.is_stopped = True
        gone = topics.ids.pop("t")
        one.shard.topics_deleted([(gone, "t")])
        await asyncio.sleep(1)
        assert one.shard.offset_count("a") == MANY
        one.log.is_stopped = False
        await asyncio.sleep(60)
        assert one.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_topics_that_go_while_offsets_are_looked_through_are_looked_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = []
    in_parts = walks.in_parts

    def counted(machine: GroupMachine, group_ids: Any) -> Any:
        walked.append(len(group_ids))
        return in_parts(machine, group_ids)

    topics = wide()
    async with coordinator(topics=topics) as one:
        await many(one, "a", "b", "c")
        monkeypatch.setattr(walks, "in_parts", counted)
        for number in range(100):
            one.shard.topics_deleted([(TopicId(UUID(int=number + 1)), f"other-{number}")])
            await asyncio.sleep(0)
        gone = topics.ids.pop("t")
        one.shard.topics_deleted([(gone, "t")])
        await asyncio.sleep(1)
        assert one.shard._machine.durable.offsets == {}
        assert len(walked) < 30
