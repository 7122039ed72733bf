"""What one client of a group coordinator can make it keep is bounded, and what it keeps of clients that are gone."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from group_log import Disk
from group_shard import COMMIT, DELETE, FETCH, JOIN, LEAVE, SYNC, Coordinator, Topics, coordinator

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.group import GROUP_BYTES, MEMBER_BYTES
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.coordinators.groups.tally import Tally
from bmq_broker.coordinators.groups.timers import TimerKey
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

KIB = 1024


def topics_of(*partitions: int, topic: str = "t", offset: int = 5) -> list[dict[str, Any]]:
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in partitions
            ],
        }
    ]


async def joined(one: Coordinator, group_id: str, *, size_bytes: int = 6, version: int = 3, **fields: Any) -> Message:
    asked = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "x",
        "protocols": [{"name": "p", "metadata": bytes(size_bytes)}],
    }
    return await one.ask(JOIN, version, **(asked | fields))


def code(reply: Message) -> ErrorCode:
    return ErrorCode(reply.error_code)


async def in_generation_two(one: Coordinator) -> tuple[str, str]:
    """The leader and a newcomer, neither of whom has its assignment."""
    leader = await one.single_member()
    joining = asyncio.ensure_future(one.join())
    await asyncio.sleep(0.1)
    await one.join(leader)
    return leader, str((await joining).member_id)


def machine_of(one: Coordinator) -> Any:
    assert one.shard._machine is not None
    return one.shard._machine


@on_virtual_time
async def test_offsets_of_partitions_that_do_not_exist_are_refused_one_by_one_and_not_stored() -> None:
    topics = Topics("t")
    topics.partitions = 3
    async with coordinator(topics=topics) as one:
        reply = await one.ask(
            COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics_of(-1, 0, 2, 3, 2**31 - 1)
        )
        codes = [ErrorCode(part.error_code) for part in reply.topics[0].partitions]
        unknown = ErrorCode.unknown_topic_or_partition
        assert codes == [unknown, ErrorCode.none, ErrorCode.none, unknown, unknown]
        assert sorted(machine_of(one).durable.offsets["g"]) == [("t", 0), ("t", 2)]
        topics.partitions = 4
        grown = await one.ask(COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics_of(3))
        assert grown.topics[0].partitions[0].error_code == 0


@on_virtual_time
async def test_a_partition_that_one_commit_names_thousands_of_times_is_stored_once_with_the_last_offset() -> None:
    async with coordinator() as one:
        topics = [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "committed_offset": at, "committed_metadata": ""} for at in range(1_500)
                ],
            }
        ]
        reply = await one.ask(COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        assert {part.error_code for part in reply.topics[0].partitions} == {0}
        assert await one.fetch() == 1_499
        assert len(one.log.disk.records()) == 1


@on_virtual_time
async def test_an_offset_that_was_taken_is_stored_though_its_partition_is_named_again_and_refused_there() -> None:
    too_long = "m" * 5_000
    parts = [
        {"partition_index": 0, "committed_offset": at, "committed_metadata": text}
        for at, text in ((5, ""), (7, ""), (9, too_long))
    ]
    async with coordinator() as one:
        reply = await one.ask(
            COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=[{"name": "t", "partitions": parts}]
        )
        codes = [ErrorCode(part.error_code) for part in reply.topics[0].partitions]
        assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.offset_metadata_too_large]
        assert await one.fetch() == 7


@on_virtual_time
async def test_a_commit_of_very_many_partitions_lets_others_have_their_turn_and_is_answered_in_order() -> None:
    topics = Topics("t")
    topics.partitions = 9_000
    async with coordinator(topics=topics) as one:
        member = await one.single_member()
        one.log.hold()
        wide = asyncio.ensure_future(
            one.ask(COMMIT, 8, group_id="wide", generation_id_or_member_epoch=-1, topics=topics_of(*range(10_000)))
        )
        turns = 0
        while len(machine_of(one).durable.offsets.get("wide", {})) < 9_000:
            assert await one.beat(member, 1) == ErrorCode.none
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 4
        one.log.release()
        codes = [part.error_code for part in (await wide).topics[0].partitions]
        assert codes == [0] * 9_000 + [ErrorCode.unknown_topic_or_partition] * 1_000


@on_virtual_time
async def test_groups_that_only_have_offsets_count_towards_the_limit() -> None:
    async with coordinator(group_count_max=2) as one:
        codes = []
        for number in range(4):
            one.host = f"10.0.0.{number}"
            codes.append(await one.commit(1, group_id=f"g{number}"))
        assert codes == [ErrorCode.none] * 2 + [ErrorCode.coordinator_not_available] * 2
        assert code(await joined(one, "h")) == ErrorCode.coordinator_not_available
        assert await one.commit(2, group_id="g0") == ErrorCode.none, "one that is there goes on"
        assert code(await joined(one, "g1")) == ErrorCode.none, "and counts once when it gets members"


@on_virtual_time
async def test_clients_at_one_address_make_as_many_groups_as_they_leave_to_those_at_others() -> None:
    async with coordinator(group_count_max=8) as one:
        codes = [await one.commit(1, group_id=f"g{number}") for number in range(4)]
        assert codes == [ErrorCode.none] * 4
        assert await one.commit(1, group_id="h") == ErrorCode.coordinator_not_available
        assert code(await joined(one, "h")) == ErrorCode.coordinator_not_available
        assert await one.commit(2, group_id="g0") == ErrorCode.none, "one that is there goes on"
        one.host = "10.0.0.2"
        assert code(await joined(one, "h")) == ErrorCode.none
        assert await one.commit(1, group_id="i") == ErrorCode.none
        assert await one.commit(3, group_id="g1") == ErrorCode.none, "which stays the other's"
        one.host = "10.0.0.1"
        assert code(await joined(one, "g2")) == ErrorCode.none
        assert (await one.ask(DELETE, groups_names=["g0", "g1", "g3", "i"])).results[0].error_code == 0
        assert machine_of(one).group_count == 2
        founded = machine_of(one)._founded
        assert founded == {"/10.0.0.1": 1, "/10.0.0.2": 1}
        await asyncio.sleep(120)  # the sessions of g2 and h end
        assert (await one.ask(DELETE, groups_names=["g2", "h"])).results[0].error_code == 0
        assert machine_of(one).group_count == 0
        assert not founded and not machine_of(one)._founders


@on_virtual_time
async def test_a_member_that_alone_says_more_than_a_groups_record_takes_is_refused() -> None:
    async with coordinator(record_size_bytes_max=64 * KIB) as one:
        assert code(await joined(one, "g", size_bytes=65 * KIB)) == ErrorCode.invalid_request
        assert machine_of(one).groups == {}
        assert code(await joined(one, "g", size_bytes=60 * KIB)) == ErrorCode.none


@on_virtual_time
async def test_a_static_member_that_comes_back_does_not_make_its_groups_record_too_large() -> None:
    disk = Disk()
    async with coordinator(disk, record_size_bytes_max=64 * KIB, initial_rebalance_delay_ms=1_000) as one:
        first, second = await asyncio.gather(
            joined(one, "g", version=5, group_instance_id="i"),
            joined(one, "g", version=5, group_instance_id="j", size_bytes=40 * KIB),
        )
        assert first.generation_id == second.generation_id == 1
        mine = [{"member_id": member.member_id, "assignment": b"a"} for member in (first, second)]
        for member, instance in ((first, "i"), (second, "j")):
            asked = {"group_id": "g", "generation_id": 1, "member_id": member.member_id, "group_instance_id": instance}
            assert code(await one.ask(SYNC, 3, **asked, assignments=mine if member.members else [])) == ErrorCode.none
        back = await joined(one, "g", version=5, group_instance_id="i", size_bytes=40 * KIB)
        assert code(back) == ErrorCode.invalid_request
        assert max(len(value or b"") for _, value in disk.records()) <= 64 * KIB
        assert code(await joined(one, "g", version=5, group_instance_id="i", size_bytes=10 * KIB)) == ErrorCode.none


@on_virtual_time
async def test_what_members_say_is_bounded_for_the_whole_broker_and_those_that_are_in_go_on() -> None:
    async with coordinator(members_bytes_max=200 * KIB) as one:
        kept = await joined(one, "g0", size_bytes=60 * KIB)
        one.host = "10.0.0.2"
        assert code(await joined(one, "g1", size_bytes=60 * KIB)) == ErrorCode.none
        one.host = "10.0.0.3"
        assert code(await joined(one, "g2", size_bytes=60 * KIB)) == ErrorCode.none
        one.host = "10.0.0.4"
        assert code(await joined(one, "g3", size_bytes=60 * KIB)) == ErrorCode.coordinator_not_available
        again = await joined(one, "g0", size_bytes=60 * KIB, member_id=kept.member_id)
        assert code(again) == ErrorCode.none
        tally = machine_of(one).tally
        assert tally.size_bytes == sum(group.size_bytes for group in machine_of(one).groups.values())
        await asyncio.sleep(120)  # their sessions end
        assert code(await joined(one, "g3", size_bytes=60 * KIB)) == ErrorCode.none


@on_virtual_time
async def test_what_members_at_one_address_say_leaves_as_much_to_those_at_others() -> None:
    async with coordinator(members_bytes_max=400 * KIB) as one:
        for number in range(4):
            wanted = ErrorCode.none if number < 3 else ErrorCode.coordinator_not_available
            assert code(await joined(one, f"g{number}", size_bytes=60 * KIB)) == wanted
        named = await joined(one, "named", version=4)
        assert code(named) == ErrorCode.member_id_required
        one.host = "10.0.0.2"
        for number in range(4, 6):
            assert code(await joined(one, f"g{number}", size_bytes=60 * KIB)) == ErrorCode.none
        tally = machine_of(one).tally
        assert tally.by_address.keys() == {"/10.0.0.1", "/10.0.0.2"}
        assert tally.by_address.total() == tally.size_bytes
        await asyncio.sleep(120)  # their sessions end
        assert tally.by_address.total() == tally.size_bytes == 5 * (GROUP_BYTES + 2), "groups that have been"


@on_virtual_time
async def test_a_member_that_comes_back_from_another_address_counts_there() -> None:
    async with coordinator() as one:
        static = {"group_instance_id": "i", "version": 5}
        await joined(one, "g", size_bytes=60 * KIB, **static)
        one.host = "10.0.0.2"
        assert code(await joined(one, "g", size_bytes=60 * KIB, **static)) == ErrorCode.none
        at = machine_of(one).tally.by_address
        assert at["/10.0.0.2"] > 60 * KIB > at["/10.0.0.1"], at


@pytest.mark.parametrize("version", [2, 5])
@on_virtual_time
async def test_a_member_whose_client_goes_while_it_joins_leaves_nothing_behind(version: int) -> None:
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        static = {"group_instance_id": "i"} if version >= 5 else {}
        joining = asyncio.ensure_future(joined(one, "g", version=version, **static))
        await asyncio.sleep(0.1)
        machine = machine_of(one)
        [member] = machine.groups["g"].members.values()
        assert machine.tally.size_bytes == GROUP_BYTES + 1 + member.size_bytes > GROUP_BYTES + MEMBER_BYTES
        joining.cancel()
        await asyncio.sleep(0.1)
        assert (machine.groups, machine.tally.size_bytes, len(machine.timers)) == ({}, 0, 0)
        await asyncio.sleep(10)
        assert one.log.disk.records() == []


@on_virtual_time
async def test_a_member_that_knew_its_id_may_join_again_with_it_after_its_connection_broke() -> None:
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        known = (await joined(one, "g", version=4)).member_id
        joining = asyncio.ensure_future(joined(one, "g", version=4, member_id=known, size_bytes=100 * KIB))
        await asyncio.sleep(0.1)
        joining.cancel()
        await asyncio.sleep(0.1)
        assert machine_of(one).tally.size_bytes < 3 * KIB
        again = await joined(one, "g", version=4, member_id=known)
        assert (code(again), again.member_id) == (ErrorCode.none, known)


@on_virtual_time
async def test_a_member_of_a_generation_whose_join_breaks_off_stays() -> None:
    async with coordinator() as one:
        member = await one.single_member()
        newcomer = asyncio.ensure_future(one.join())
        await asyncio.sleep(0.1)
        assert await one.beat(member, 1) == ErrorCode.rebalance_in_progress
        newcomer.cancel()
        await asyncio.sleep(0.1)
        assert list(machine_of(one).groups["g"].members) == [member]
        assert (await one.join(member)).generation_id == 2


@pytest.mark.parametrize("comes_back", [True, False])
@on_virtual_time
async def test_a_member_whose_client_goes_while_it_waits_for_its_assignment_has_a_session_to_come_back_in(
    *, comes_back: bool
) -> None:
    """However long its client asked to be waited for."""
    async with coordinator() as one:
        _, newcomer = await in_generation_two(one)
        syncing = asyncio.ensure_future(one.sync(newcomer, 2))
        await asyncio.sleep(9)
        syncing.cancel()
        await asyncio.sleep(0.1)
        group = machine_of(one).groups["g"]
        assert not group.syncs
        await asyncio.sleep(9)
        assert newcomer in group.members
        if comes_back:
            await one.beat(newcomer, 2)
        await asyncio.sleep(2)
        assert (newcomer in group.members) is comes_back


@on_virtual_time
async def test_those_at_one_address_who_wait_for_others_leave_places_to_those_at_others() -> None:
    async with coordinator(waiting_max=10, initial_rebalance_delay_ms=3_000) as one:
        waiting = [asyncio.ensure_future(joined(one, f"g{number}")) for number in range(8)]
        await asyncio.sleep(0.1)
        assert code(await joined(one, "late")) == ErrorCode.coordinator_load_in_progress
        one.host = "10.0.0.2"
        assert code(await joined(one, "other")) == ErrorCode.none
        assert [code(reply) for reply in await asyncio.gather(*waiting)] == [ErrorCode.none] * 8
        one.host = "10.0.0.1"
        assert code(await joined(one, "late")) == ErrorCode.none


@on_virtual_time
async def test_a_group_of_as_many_members_as_one_may_have_is_complete_though_all_are_at_one_address() -> None:
    async with coordinator(waiting_max=20, group_size_max=15, initial_rebalance_delay_ms=1_000) as one:
        members = await asyncio.gather(*(joined(one, "g", version=3) for _ in range(15)))
        assert {code(member) for member in members} == {ErrorCode.none}
        mine = [{"member_id": member.member_id, "assignment": b"a"} for member in members]
        replies = await asyncio.gather(
            *(
                one.ask(
                    SYNC,
                    3,
                    group_id="g",
                    generation_id=1,
                    member_id=member.member_id,
                    assignments=mine if member.members else [],
                )
                for member in members
            )
        )
        assert {(code(reply), reply.assignment) for reply in replies} == {(ErrorCode.none, b"a")}


@on_virtual_time
async def test_those_that_are_in_go_on_after_the_limit_was_lowered() -> None:
    async with coordinator(members_bytes_max=200 * KIB) as one:
        member = await joined(one, "g", size_bytes=60 * KIB)
        settings = replace(one.shard.settings, members_bytes_max=10 * KIB)
        one.shard.configure(settings)
        again = await joined(one, "g", size_bytes=60 * KIB, member_id=member.member_id)
        assert code(again) == ErrorCode.none
        assert code(await joined(one, "h")) == ErrorCode.coordinator_not_available


@on_virtual_time
async def test_a_request_that_is_given_up_takes_no_newer_ones_place() -> None:
    async with coordinator() as one:
        member, newcomer = await in_generation_two(one)
        first = asyncio.ensure_future(one.sync(newcomer, 2))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(one.sync(newcomer, 2))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.sleep(0.1)
        assert newcomer in machine_of(one).groups["g"].syncs
        await one.sync(member, 2, **{newcomer.replace("-", "_"): b"half", member.replace("-", "_"): b"half"})
        assert (await second).assignment == b"half"


@on_virtual_time
async def test_a_coordinator_that_ends_gives_its_memory_back_to_the_broker() -> None:
    whole = Tally()
    async with coordinator() as one:
        one.shard._machine.tally.whole = whole
        await joined(one, "g", size_bytes=KIB)
        assert whole.size_bytes > whole.by_address["/10.0.0.1"] - 1 > KIB
    assert (whole.size_bytes, whole.by_address) == (0, {})


@on_virtual_time
async def test_a_join_whose_client_is_gone_ends_with_the_call() -> None:
    """Over the way in that the broker uses, as a proxy's task that is cancelled."""
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        request = Message(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            group_instance_id=None,
            protocol_type="x",
            protocols=[Message(name="p", metadata=b"m")],
            reason=None,
        )
        call = asyncio.ensure_future(
            handle_group_call(one.shard, JOIN, request, Caller(client_id="c", client_host="/h", api_version=3))
        )
        await asyncio.sleep(0.1)
        call.cancel()
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
        assert machine_of(one).groups == {}


def saying(*partitions: int, metadata: str) -> list[dict[str, Any]]:
    found = topics_of(*partitions)
    for partition in found[0]["partitions"]:
        partition["committed_metadata"] = metadata
    return found


@on_virtual_time
async def test_the_metadata_of_a_groups_offsets_has_a_bound_and_offsets_without_any_go_on() -> None:
    async with coordinator(metadata_bytes_max=100) as one:

        async def codes(*partitions: int, metadata: str) -> list[int]:
            asked = saying(*partitions, metadata=metadata)
            reply = await one.ask(COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=asked)
            return [part.error_code for part in reply.topics[0].partitions]

        too_large = ErrorCode.offset_metadata_too_large
        assert await codes(0, 1, 2, metadata="m" * 40) == [0, 0, too_large]
        assert await codes(2, 3, metadata="") == [0, 0]
        assert await codes(0, metadata="m" * 50) == [0], "it has as much already, and may have what is left"
        assert await codes(2, metadata="m" * 20) == [too_large]
        assert await codes(1, metadata="") == [0]
        assert await codes(2, metadata="m" * 20) == [0]
        assert machine_of(one).durable.metadata_chars("g") == 70


@on_virtual_time
async def test_an_answer_about_the_offsets_of_several_groups_has_a_bound_and_the_first_comes_whole() -> None:
    async with coordinator(fetched_bytes_max=1_000) as one:
        for group_id in ("a", "b", "c"):
            await one.ask(COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, topics=topics_of(0, 1, 2))
        groups = [Message(group_id=group_id, topics=None) for group_id in ("none", "a", "b", "c")]
        reply = await one.ask(FETCH, 9, groups=groups)
        later = ErrorCode.coordinator_load_in_progress
        assert [group.error_code for group in reply.groups] == [0, 0, later, later]
        assert [sum(len(topic.partitions) for topic in group.topics) for group in reply.groups] == [0, 3, 0, 0]
        reply = await one.ask(FETCH, 9, groups=groups[2:3])
        assert [len(topic.partitions) for topic in reply.groups[0].topics] == [3]


@on_virtual_time
async def test_a_group_whose_static_members_stay_away_has_nothing_due_before_their_sessions_end() -> None:
    # Each round began the next one a rebalance timeout later; with none at all that filled every turn for half an hour.
    async with coordinator() as one:
        leader = await one.single_member()
        hour: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1}
        offer: dict[str, Any] = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": bytes(6)}]}
        static = asyncio.ensure_future(joined(one, "g", version=5, group_instance_id="i", **hour, **offer))
        await asyncio.sleep(0.1)
        await one.join(leader)
        member = await static
        await one.sync(leader, 2)
        await one.ask(SYNC, group_id="g", generation_id=2, member_id=member.member_id, group_instance_id="i")
        machine = machine_of(one)
        await one.ask(LEAVE, 1, group_id="g", member_id=leader)
        await asyncio.sleep(0.01)
        group = machine.groups["g"]
        assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, [member.member_id])
        assert list(machine.timers._deadlines) == [TimerKey("session", "g", member.member_id)]

        back = await joined(one, "g", version=5, group_instance_id="i", **hour, **offer)
        assert (code(back), back.generation_id) == (ErrorCode.none, 3)


@on_virtual_time
async def test_the_first_static_member_that_comes_back_waits_for_the_others_no_longer_than_a_rebalance_takes() -> None:
    async with coordinator() as one:
        leader = await one.single_member()
        session: dict[str, Any] = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 20_000}
        offer: dict[str, Any] = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": bytes(6)}]}

        async def static(name: str) -> Message:
            return await joined(one, "g", version=5, group_instance_id=name, **session, **offer)

        joining = [asyncio.ensure_future(static(name)) for name in ("i", "j")]
        await asyncio.sleep(0.1)
        await one.join(leader)
        await one.sync(leader, 2)
        for name, asked in zip(("i", "j"), joining, strict=True):
            member = await asked
            await one.ask(SYNC, group_id="g", generation_id=2, member_id=member.member_id, group_instance_id=name)
        await one.ask(LEAVE, 1, group_id="g", member_id=leader)
        await asyncio.sleep(100)
        began_s = asyncio.get_running_loop().time()
        back = await static("i")
        assert (code(back), back.generation_id, back.leader) == (ErrorCode.none, 3, back.member_id)
        assert 19 < asyncio.get_running_loop().time() - began_s < 21
