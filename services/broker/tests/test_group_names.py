"""What groups and their members are called is bounded and counted, wherever it is shown."""

import asyncio
from typing import Any

from group_log import Disk
from group_shard import COMMIT, DESCRIBE, JOIN, LIST, Coordinator, coordinator
from test_group_topics_kept import stable

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, encode_request
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

ASKED: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 30_000,
    "protocol_type": "x",
    "member_id": "",
}
FACE = "\U0001f600"


async def joined(one: Coordinator, group_id: str, *, client_id: str = "c", **fields: Any) -> dict[str, Any]:
    asked = {**ASKED, "group_id": group_id, "protocols": [{"name": "p", "metadata": b""}], **fields}
    request = decode_request(JOIN, 5, encode_request(JOIN, 5, asked))
    return await handle_group_call(
        one.shard, JOIN, request, Caller(client_id=client_id, client_host="/h", api_version=5)
    )


async def committed(one: Coordinator, group_id: str) -> ErrorCode:
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    reply = await one.ask(
        COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, topics=[{"name": "t", "partitions": parts}]
    )
    return ErrorCode(reply.topics[0].partitions[0].error_code)


async def described(one: Coordinator, *group_ids: str) -> list[Message]:
    groups: list[Message] = (await one.ask(DESCRIBE, 5, groups=list(group_ids))).groups
    return groups


@on_virtual_time
async def test_a_new_group_has_a_name_of_a_kib_at_most_and_those_that_are_there_go_on() -> None:
    disk = Disk()
    long = FACE * 7_990
    async with coordinator(disk, group_name_bytes_max=32_000) as one:
        assert await committed(one, long) == ErrorCode.none
        await stable(one, b"", long[:-1])
    async with coordinator(disk) as one:
        assert await committed(one, long) == ErrorCode.none
        assert len((await one.ask(LIST)).groups) == 2, "old names are loaded, and shown"
        assert (await joined(one, long))["error_code"] in (ErrorCode.none, ErrorCode.member_id_required)
        for name in (FACE * 257, "x" * 1_025):
            assert await committed(one, name) == ErrorCode.invalid_group_id
            assert (await joined(one, name))["error_code"] == ErrorCode.invalid_group_id
        for name in (FACE * 256, "x" * 1_024):
            assert await committed(one, name) == ErrorCode.none


@on_virtual_time
async def test_names_of_groups_count_in_memory_once_however_many_offsets_they_have() -> None:
    async with coordinator(group_name_bytes_max=32_000) as one:
        await committed(one, "short")
        before = one.shard._machine.durable.tally.size_bytes
        await committed(one, FACE * 7_000)
        grown = one.shard._machine.durable.tally.size_bytes - before
        assert 28_000 <= grown < 30_000


@on_virtual_time
async def test_a_member_is_remembered_with_a_short_client_id() -> None:
    async with coordinator() as one:
        await joined(one, "g", client_id="c" * 32_000, group_instance_id="i")
        [group] = await described(one, "g")
        assert [member.client_id for member in group.members] == ["c" * 255]


@on_virtual_time
async def test_a_group_that_is_rebalancing_is_described_within_the_limit_too() -> None:
    async with coordinator(
        described_bytes_max=50_000, record_size_bytes_max=100_000, initial_rebalance_delay_ms=60_000
    ) as one:
        joining = [
            asyncio.ensure_future(joined(one, f"g{number // 10}", group_instance_id=f"{number:02}" + "i" * 998))
            for number in range(30)
        ]
        await asyncio.sleep(0.1)
        codes = [(ErrorCode(group.error_code), len(group.members)) for group in await described(one, "g0", "g1", "g2")]
        late = ErrorCode.coordinator_load_in_progress
        assert codes == [(ErrorCode.none, 10), (ErrorCode.none, 10), (late, 0)]
        joining += [
            asyncio.ensure_future(joined(one, "h", group_instance_id=f"{number:02}" + "i" * 998))
            for number in range(60)
        ]
        await asyncio.sleep(0.1)
        [group] = await described(one, "h")
        assert (ErrorCode(group.error_code), len(group.members)) == (late, 0), "one that no answer has room for"
        for one_joining in joining:
            one_joining.cancel()
        await asyncio.gather(*joining, return_exceptions=True)


@on_virtual_time
async def test_what_members_are_called_counts_towards_what_an_answer_may_have() -> None:
    async with coordinator(record_size_bytes_max=10_000, initial_rebalance_delay_ms=60_000) as one:
        joining = [
            asyncio.ensure_future(joined(one, "g", group_instance_id=f"{number:02}" + "i" * 7_000))
            for number in range(20)
        ]
        await asyncio.sleep(0.1)
        group = one.shard._machine.groups["g"]
        assert len(group.members) == 9
        assert group.said_bytes <= 80_000
        for one_joining in joining:
            one_joining.cancel()
        await asyncio.gather(*joining, return_exceptions=True)
        assert (group.said_bytes, group.name_bytes) == (0, 0)
