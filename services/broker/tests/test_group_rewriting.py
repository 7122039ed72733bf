"""A small request that has a large group's generation written anew costs what the record's bytes cost, and each address
has so many of them.
"""

import asyncio
from typing import Any

import pytest
from group_log import Disk
from group_shard import JOIN, SYNC, Coordinator, coordinator
from test_group_topics_kept import many, subscription

from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups import group as group_module
from bmq_broker.coordinators.groups import records
from bmq_broker.coordinators.groups import subscription as subscriptions
from bmq_broker.coordinators.groups.group import Group
from bmq_broker.coordinators.groups.records import GroupValue, MemberValue, encode_value, group_size_bytes
from bmq_broker.coordinators.groups.turns import TURN_BYTES, Turns
from bmq_sim.loop import on_virtual_time

ASKED = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000, "protocol_type": "consumer"}


async def joined(one: Coordinator, instance_id: str, metadata: bytes, member_id: str = "") -> Message:
    protocols = [{"name": "p", "metadata": metadata}]
    return await one.ask(
        JOIN, 5, group_id="g", member_id=member_id, group_instance_id=instance_id, protocols=protocols, **ASKED
    )


async def stable(one: Coordinator, large: bytes) -> Group:
    """Static members a, which says little and leads, and b, which says much."""
    first = await joined(one, "a", subscription("t"))
    other = asyncio.ensure_future(joined(one, "b", large))
    await asyncio.sleep(0.1)
    again = await joined(one, "a", subscription("t"), first.member_id)
    assert (await other).generation_id == again.generation_id == 2
    given = [{"member_id": again.member_id, "assignment": b"all"}]
    asked: dict[str, Any] = {
        "group_id": "g",
        "generation_id": 2,
        "member_id": again.member_id,
        "group_instance_id": "a",
        "assignments": given,
    }
    assert (await one.ask(SYNC, 4, **asked)).error_code == 0
    group: Group = one.shard._machine.groups["g"]  # type: ignore[union-attr]
    return group


@on_virtual_time
async def test_of_a_group_whose_static_member_comes_back_no_other_is_read_and_the_record_is_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        group = await stable(one, many(5_000))
        looked: list[str] = []

        def count(place: Any, name: str) -> None:
            known = getattr(place, name)
            monkeypatch.setattr(place, name, lambda *given: (looked.append(name), known(*given))[1])

        count(records, "_encode_group")
        count(subscriptions, "_read")
        count(group_module.Group, "to_value")
        for _ in range(10):
            back = await joined(one, "a", subscription("t"))
            assert (back.error_code, back.generation_id) == (0, 2)
        assert looked == ["_encode_group"] * 10
        stored = one.shard._machine.durable.groups["g"]
        monkeypatch.undo()
        assert stored == group.to_value()
        assert group.record_bytes == group_size_bytes(stored) == len(encode_value(stored))
        assert len(group.topics or ()) == 5_001
    async with coordinator(disk) as one:
        assert one.shard._machine.groups["g"].record_bytes == group.record_bytes


@on_virtual_time
async def test_an_address_has_so_many_bytes_of_generations_written_and_more_with_time() -> None:
    disk = Disk()
    async with coordinator(disk, rewritten_burst_bytes=200_000, rewritten_per_minute_bytes=200_000) as one:
        group = await stable(one, many(5_000))
        codes = [ErrorCode((await joined(one, "a", subscription("t"))).error_code) for _ in range(20)]
        taken = codes.count(ErrorCode.none)
        assert 2 <= taken <= 5
        assert codes == [ErrorCode.none] * taken + [ErrorCode.coordinator_not_available] * (20 - taken)
        assert group.static.keys() == {"a", "b"}, "who is refused keeps its place"
        await asyncio.sleep(60)
        assert (await joined(one, "a", subscription("t"))).error_code == 0


@on_virtual_time
async def test_a_static_member_that_wants_other_topics_is_a_rebalance() -> None:
    async with coordinator() as one:
        await stable(one, subscription("u"))
        asking = asyncio.ensure_future(joined(one, "a", subscription("t", "u")))
        await asyncio.sleep(0.1)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@on_virtual_time
async def test_generations_are_written_one_large_one_in_a_turn() -> None:
    turns = Turns()
    went: list[int] = []

    async def write(number: int, size_bytes: int) -> None:
        await turns.take(size_bytes)
        went.append(number)

    tasks = [asyncio.ensure_future(write(number, TURN_BYTES)) for number in range(5)]
    tasks += [asyncio.ensure_future(write(number, 1_000)) for number in range(5, 9)]
    counts = []
    for _ in range(12):
        before = len(went)
        await asyncio.sleep(0)
        counts.append(len(went) - before)
    await asyncio.gather(*tasks)
    assert went == list(range(9))
    assert sorted(counts)[-2:] == [1, 4], "large ones each by itself, small ones together"


def test_the_size_of_a_record_is_known_without_making_it() -> None:
    for text in ("", "a", "é" * 50, "\U0001f600" * 9):
        for count in range(3):
            members = tuple(
                MemberValue(f"{text}{n}", text or None, text, "/h", 1, 2, b"s" * n, b"a" * count) for n in range(count)
            )
            value = GroupValue("consumer", 4, text or None, f"{text}0" if count else None, 5, members)
            assert group_size_bytes(value) == len(encode_value(value))


@on_virtual_time
async def test_what_is_taken_back_because_nothing_can_be_stored_uses_up_nobodys_share() -> None:
    shares = {
        "stored_burst_bytes": 40_000,
        "stored_per_minute_bytes": 1,
        "rewritten_burst_bytes": 200_000,
        "rewritten_per_minute_bytes": 1,
    }
    async with coordinator(**shares) as one:
        await stable(one, many(1_000))
        one.log.is_stopped = True
        loading = ErrorCode.coordinator_load_in_progress
        assert {await one.commit(number, group_id=f"h{number}") for number in range(100)} == {loading}
        assert {(await joined(one, "a", subscription("t"))).error_code for _ in range(10)} == {loading}
        one.log.is_stopped = False
        assert await one.commit(1, group_id="h") == ErrorCode.none
        assert (await joined(one, "a", subscription("t"))).error_code == ErrorCode.none
