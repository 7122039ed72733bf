"""What a member offers and a leader assigns is counted by the objects that it becomes, and is let go of by everybody
but the group.
"""

import asyncio
import time
from typing import Any

import pytest
from group_shard import JOIN, LEAVE, SYNC, Coordinator, coordinator

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.group import MEMBER_BYTES, Group
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

CALLER = Caller(client_id="c", client_host="/h", api_version=3)


def offer(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    return [{"name": f"{number:03x}", "metadata": b""} for number in range(first, first + count)]


async def joined(one: Coordinator, group_id: str, protocols: list[dict[str, Any]], **fields: Any) -> Message:
    asked = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "member_id": "", "protocol_type": "x"}
    return await one.ask(JOIN, 3, group_id=group_id, protocols=protocols, **(asked | fields))


def group_of(one: Coordinator, group_id: str) -> Group:
    group: Group = one.shard._machine.groups[group_id]  # type: ignore[union-attr]
    return group


def join_request(protocols: int) -> Message:
    return Message(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=None,
        protocol_type="x",
        protocols=[Message(name=f"{number}", metadata=b"m") for number in range(protocols)],
        reason=None,
    )


@on_virtual_time
async def test_a_member_may_offer_a_hundred_protocols_and_no_more() -> None:
    async with coordinator() as one:
        refused = await joined(one, "g", offer(101))
        assert ErrorCode(refused.error_code) == ErrorCode.invalid_request
        assert one.shard._machine.groups == {}
        taken = await joined(one, "g", offer(100))
        assert (ErrorCode(taken.error_code), taken.protocol_name) == (ErrorCode.none, "000")


@on_virtual_time
async def test_a_protocol_of_three_letters_counts_as_the_objects_that_it_is() -> None:
    async with coordinator(members_bytes_max=100_000) as one:
        hosts = (f"10.0.0.{number}" for number in range(2, 100))
        assert (await joined(one, "g", offer(100))).error_code == 0
        assert group_of(one, "g").size_bytes >= MEMBER_BYTES + 100 * 200
        codes = []
        for number, one.host in zip(range(6), hosts, strict=False):  # each has as much as is left
            codes.append(ErrorCode((await joined(one, f"g{number}", offer(100))).error_code))
        assert codes == [ErrorCode.none] * 3 + [ErrorCode.coordinator_not_available] * 3


@on_virtual_time
async def test_what_a_member_is_called_counts_like_what_it_says() -> None:
    async with coordinator() as one:
        await joined(one, "g", offer(1))
        few = group_of(one, "g").size_bytes
        static = {"group_instance_id": "i" * 8_000, "member_id": ""}
        asked = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "protocol_type": "x"}
        await one.ask(JOIN, 5, group_id="h", protocols=offer(1), **asked, **static)
        assert group_of(one, "h").size_bytes >= few + 8_990, "its instance id, and the member id that begins with it"


@on_virtual_time
async def test_members_do_not_say_more_together_than_an_answer_may_have() -> None:
    async with coordinator(record_size_bytes_max=10_000, initial_rebalance_delay_ms=3_000) as one:
        large = [{"name": "p", "metadata": bytes(9_000)}]
        joining = [asyncio.ensure_future(joined(one, "g", large)) for _ in range(12)]
        await asyncio.sleep(0.1)
        assert group_of(one, "g").said_bytes == 8 * 9_001 + group_of(one, "g").name_bytes
        codes = sorted(ErrorCode(answer.error_code) for answer in await asyncio.gather(*joining))
        assert codes == [ErrorCode.none] * 8 + [ErrorCode.group_max_size_reached] * 4


@on_virtual_time
async def test_names_that_nobody_offers_any_more_are_forgotten() -> None:
    async with coordinator() as one:
        member_id = (await joined(one, "g", offer(1))).member_id
        for turn in range(1, 50):
            again = [*offer(1), *offer(99, first=100 * turn)]
            assert (await joined(one, "g", again, member_id=member_id)).error_code == 0
        assert len(group_of(one, "g")._supporters) == 100


@on_virtual_time
async def test_a_join_that_waits_holds_nothing_of_its_request() -> None:
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        request = join_request(100)
        protocols = request.protocols
        call = asyncio.ensure_future(handle_group_call(one.shard, JOIN, request, CALLER))
        await asyncio.sleep(0.1)
        assert (call.done(), protocols) == (False, [])
        assert len(group_of(one, "g").members) == 1
        assert (await call)["error_code"] == ErrorCode.none


@on_virtual_time
async def test_a_sync_that_waits_for_its_leader_holds_no_assignments_of_its_own() -> None:
    async with coordinator(initial_rebalance_delay_ms=1_000) as one:
        members = await asyncio.gather(*(joined(one, "g", offer(1)) for _ in range(2)))
        leader = next(one.member_id for one in members if one.members)
        other = next(one.member_id for one in members if not one.members)
        request = Message(
            group_id="g",
            generation_id=1,
            member_id=other,
            group_instance_id=None,
            protocol_type=None,
            protocol_name=None,
            assignments=[Message(member_id=f"{number}", assignment=b"") for number in range(1_000)],
        )
        said = request.assignments
        call = asyncio.ensure_future(handle_group_call(one.shard, SYNC, request, CALLER))
        await asyncio.sleep(0.1)
        assert (call.done(), said) == (False, [])
        given = [{"member_id": name, "assignment": name.encode()} for name in (leader, other)]
        await one.ask(SYNC, 3, group_id="g", generation_id=1, member_id=leader, assignments=given)
        assert (await call)["assignment"] == other.encode(), "the leader's are the generation's"


@pytest.mark.measures
@on_virtual_time
async def test_a_thousand_members_that_leave_at_once_are_one_short_turn() -> None:
    async with coordinator(initial_rebalance_delay_ms=1_000) as one:
        members = await asyncio.gather(*(joined(one, "g", offer(100)) for _ in range(1_000)))
        took_s = []
        leavers = [{"member_id": member.member_id, "group_instance_id": None} for member in members]
        for part in (leavers[:500], leavers[500:]):
            began_s = time.thread_time()
            left = await one.ask(LEAVE, 3, group_id="g", members=part)
            took_s.append(time.thread_time() - began_s)
            assert not any(member.error_code for member in left.members)
        assert min(took_s) < 0.1
        assert await one.commit(1) == ErrorCode.none
