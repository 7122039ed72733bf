"""Offsets are deleted a thousand in a turn, whoever deletes them; others have their turn between."""

import asyncio
from typing import Any

import pytest
from group_log import Disk
from group_shard import COMMIT, DELETE, Coordinator, Topics, coordinator

from bmq.errors import NotReady
from bmq_broker.groups.walks import OFFSETS_PER_TURN
from bmq_sim.loop import on_virtual_time


async def many(one: Coordinator, *group_ids: str, count: int = 3_500) -> None:
    for group_id in group_ids:
        parts = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in range(count)]
        reply = await one.ask(COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, topics=[{"name": "t", "partitions": parts}])
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
        assert [(result.group_id, result.error_code) for result in reply.results] == [(name, 69 if name == "none" else 0) for name in names]
        assert sum(found) == 9_000
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
        assert (sum(found), max(found)) == (7_000, OFFSETS_PER_TURN)
        assert one.shard._machine.durable.offsets == {}


@on_virtual_time
async def test_offsets_whose_time_is_over_go_a_thousand_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinator(topics=wide(), offsets_retention_ms=60_000, offsets_check_interval_ms=120_000) as one:
        await many(one, "a")
        found = steps(one, monkeypatch)
        await asyncio.sleep(250)
        assert (sum(found), max(found)) == (3_500, OFFSETS_PER_TURN)
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
        assert (sum(found), max(found)) == (7_000, OFFSETS_PER_TURN)
        assert list(one.shard._machine.durable.offsets) == ["b"]


@on_virtual_time
async def test_a_deletion_that_the_log_does_not_take_now_is_not_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
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
