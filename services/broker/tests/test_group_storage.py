"""What groups keep for good is bounded, for a broker and for each address: new offsets are refused, those that are
there go on.
"""

import asyncio
import time
from typing import Any

import pytest
from group_log import Disk
from group_shard import COMMIT, DELETE, SYNC, Coordinator, Topics, coordinator

from bmq.wire.error_codes import ErrorCode
from bmq_broker.coordinators.groups.durable import OFFSET_BYTES, DurableState
from bmq_broker.coordinators.groups.machine import Memory
from bmq_broker.coordinators.groups.records import GroupKey, GroupValue, MemberValue, OffsetKey, OffsetValue
from bmq_broker.coordinators.groups.snapshot import decode_state, encode_state
from bmq_sim.loop import on_virtual_time

FULL = ErrorCode.invalid_commit_offset_size
TOO_FAST = ErrorCode.throttling_quota_exceeded
NONE = ErrorCode.none


def durable(one: Coordinator) -> DurableState:
    state: DurableState = one.shard._machine.durable  # type: ignore[union-attr]
    return state


async def committed(
    one: Coordinator, *partitions: int, group_id: str = "g", offset: int = 5, metadata: str = ""
) -> list[ErrorCode]:
    parts = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata} for index in partitions
    ]
    reply = await one.ask(
        COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, topics=[{"name": "t", "partitions": parts}]
    )
    return [ErrorCode(part.error_code) for part in reply.topics[0].partitions]


@on_virtual_time
async def test_offsets_beyond_the_limit_are_refused_one_by_one_and_those_that_are_there_go_on() -> None:
    disk = Disk()
    async with coordinator(disk, stored_bytes_max=20_000) as one:
        codes = await committed(one, *range(40))
        taken = codes.count(NONE)
        assert 15 < taken < 30
        assert codes == [NONE] * taken + [FULL] * (40 - taken)
        assert durable(one).tally.size_bytes <= 10_000
        assert await committed(one, *range(40), offset=6) == codes, "what is there is committed as ever"
        assert {value.offset for _, _, _, value in durable(one).all_offsets()} == {6}
        assert await committed(one, 0, metadata="x" * 4_000) == [FULL], "but not with more"
        assert await committed(one, 0, group_id="h") == [FULL]
        assert len(disk.records()) == 2 * taken


@on_virtual_time
async def test_clients_at_one_address_store_as_much_as_they_leave_to_those_at_others() -> None:
    async with coordinator(stored_bytes_max=20_000) as one:
        assert set(await committed(one, *range(40))) == {NONE, FULL}
        tally = durable(one).tally
        assert 8_000 < tally.by_address["/10.0.0.1"] == tally.size_bytes <= 10_000
        one.host = "10.0.0.2"
        assert await committed(one, *range(40, 50), group_id="h") == [NONE] * 10
        assert await committed(one, 50, group_id="g") == [FULL], "though it is there that it is stored"
        assert 4_000 < tally.by_address["/10.0.0.2"] <= 5_000
        assert await committed(one, *range(5), offset=6) == [NONE] * 5, "what is there is committed as ever"
        assert tally.by_address.total() == tally.size_bytes
        assert (await one.ask(DELETE, groups_names=["g"])).results[0].error_code == 0
        assert tally.by_address.keys() == {"/10.0.0.2"}
        assert await committed(one, 50, group_id="h") == [NONE]
        assert (await one.ask(DELETE, groups_names=["h"])).results[0].error_code == 0
        assert not tally.by_address and not durable(one)._writers


@on_virtual_time
async def test_what_is_deleted_makes_room() -> None:
    async with coordinator(stored_bytes_max=20_000) as one:
        await committed(one, *range(40))
        assert await committed(one, 0, group_id="h") == [FULL]
        deleted = await one.ask(DELETE, groups_names=["g"])
        assert deleted.results[0].error_code == 0
        assert durable(one).tally.size_bytes == 0
        assert await committed(one, 0, group_id="h") == [NONE]


@on_virtual_time
async def test_a_coordinator_that_has_more_than_it_may_loads_all_of_it_and_goes_on() -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        assert await committed(one, *range(40)) == [NONE] * 40
    async with coordinator(disk, stored_bytes_max=10_000) as one:
        assert len(list(durable(one).all_offsets())) == 40
        assert await committed(one, *range(41), offset=6) == [NONE] * 40 + [FULL]
        assert (await one.join()).error_code == 0


@on_virtual_time
async def test_all_coordinators_of_a_broker_count_together_and_one_that_ends_no_more() -> None:
    memory = Memory()
    async with coordinator(stored_bytes_max=10_000) as one:
        durable(one).tally.join(memory.stored)
        async with coordinator(stored_bytes_max=10_000) as other:
            durable(other).tally.join(memory.stored)
            await committed(other, *range(40))
            assert memory.stored.size_bytes == durable(other).tally.size_bytes > 4_500
            assert await committed(one, *range(10)) == [FULL] * 10
        assert memory.stored.size_bytes == 0
        assert await committed(one, *range(10)) == [NONE] * 10


@on_virtual_time
async def test_clients_at_one_address_add_as_much_as_they_may_at_once_and_then_with_time() -> None:
    async with coordinator(stored_burst_bytes=10_000, stored_per_minute_bytes=60_000) as one:
        codes = await committed(one, *range(40))
        assert set(codes) == {NONE, TOO_FAST}
        assert await committed(one, *range(40), offset=6) == codes, "what is there is committed as ever"
        await asyncio.sleep(1)
        more = await committed(one, *range(40))
        assert codes.count(NONE) + 2 <= more.count(NONE) <= codes.count(NONE) + 4
        await asyncio.sleep(60)
        assert await committed(one, *range(40)) == [NONE] * 40


@on_virtual_time
async def test_a_generation_for_which_there_is_no_room_is_not_stored_and_its_members_try_again() -> None:
    async with coordinator(stored_bytes_max=10_000) as one:
        member = (await one.join()).member_id
        given = [{"member_id": member, "assignment": bytes(20_000)}]
        asked: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": member, "assignments": given}
        assert ErrorCode((await one.ask(SYNC, 3, **asked)).error_code) == ErrorCode.coordinator_not_available
        assert durable(one).groups == {}
        again = await one.join(member)
        assert (again.error_code, again.generation_id) == (0, 2)
        assert (await one.sync(member, 2, **{member.replace("-", "_"): b"small"})).error_code == 0


def test_what_is_counted_is_the_same_however_the_state_came_to_be() -> None:
    state = DurableState()
    member = MemberValue("m", None, "c", "/h", 1, 1, b"s" * 100, b"a" * 200)
    for number in range(10):
        state.replay(OffsetKey(f"g{number % 3}", "t", number), OffsetValue(number, metadata="é" * number))
        state.replay(GroupKey(f"g{number % 3}"), GroupValue("consumer", number, "p", "m", 1, (member,) * (number % 2)))
    state.replay(OffsetKey("g0", "t", 0), OffsetValue(7, metadata="longer"))
    state.replay(OffsetKey("g1", "t", 1), None)
    state.replay(OffsetKey("g1", "t", 1), None)
    anew = decode_state(encode_state(state))
    assert anew.tally.size_bytes == state.tally.size_bytes == state.copy().tally.size_bytes > 9 * OFFSET_BYTES
    for key in [OffsetKey(group, topic, partition) for group, topic, partition, _ in state.all_offsets()] + [
        GroupKey(name) for name in state.groups
    ]:
        state.replay(key, None)
    assert (state.tally.size_bytes, state) == (0, DurableState())


@pytest.mark.measures
@on_virtual_time
async def test_counting_takes_a_small_part_of_a_commit() -> None:
    topics = Topics("t")
    topics.partitions = 2_000
    async with coordinator(topics=topics) as one:
        took_s = []
        for offset in range(5):
            began_s = time.thread_time()
            assert set(await committed(one, *range(2_000), offset=offset)) == {NONE}
            took_s.append(time.thread_time() - began_s)
        state = durable(one)
        began_s = time.thread_time()
        for index in range(2_000):
            state.growth_bytes(OffsetKey("g", "t", index), OffsetValue(index))
        assert time.thread_time() - began_s < 0.3 * min(took_s)
