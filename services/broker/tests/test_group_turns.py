"""What groups do for many at once is done in turns, which all coordinators of a broker share: rebalances that end,
deadlines, descriptions.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import pytest
from group_log import Disk
from group_shard import COMMIT, DESCRIBE, FETCH, JOIN, SYNC, Coordinator, Topics, coordinator

from bmq_broker.coordinators.groups import timeouts
from bmq_broker.coordinators.groups.asked import Asked
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.turns import TURN_BYTES, Turns
from bmq_broker.handlers import k09_offset_fetch, k15_describe_groups
from bmq_sim.loop import on_virtual_time

MEMBERS: Final = 700
LOADED: Final = 8
TURN_ELEMENTS: Final = TURN_BYTES // ELEMENT_WORK_BYTES


class Watch:
    """Counts by the turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self._left = 0

    def run(self, turns: int = 2_000) -> None:
        """Counts so many from now on: virtual time only passes where nobody has anything to do."""
        self._left = turns
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.turn += 1
        self._left -= 1
        if self._left > 0:
            asyncio.get_running_loop().call_soon(self._next)


def replies_per_turn(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many who wait are told in each turn, by coordinators of whatever partition."""
    found: Counter[int] = Counter()
    deliver = Asked.deliver

    def counted(asked: Asked, replies: Sequence[Any]) -> None:
        found[watch.turn] += len(replies)
        deliver(asked, replies)

    monkeypatch.setattr(Asked, "deliver", counted)
    return found


async def joining(
    one: Coordinator, name: str, go: asyncio.Event, *, rebalance_timeout_ms: int = 60_000
) -> list["asyncio.Task[Any]"]:
    """MEMBERS wait for another one, which was stable alone and joins again when it may go: the first of the tasks."""
    times = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": rebalance_timeout_ms}
    offer = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0"}]}

    def join(member_id: str, instance_id: str) -> "asyncio.Task[Any]":
        fields = {"group_id": name, **times, "member_id": member_id, "group_instance_id": instance_id, **offer}
        return asyncio.create_task(one.ask(JOIN, 5, **fields))

    first = await join("", "first")
    await one.ask(
        SYNC, 3, group_id=name, generation_id=1, member_id=first.member_id, group_instance_id="first", assignments=[]
    )
    others = [join("", f"i{number}") for number in range(MEMBERS)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in others)

    async def last() -> Any:
        await go.wait()
        return await join(first.member_id, "first")

    return [asyncio.create_task(last()), *others]


@on_virtual_time
async def test_members_of_large_groups_whose_rebalances_end_at_once_go_on_some_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = asyncio.Event()
    async with coordinator() as one:
        tasks = [task for name in "abc" for task in await joining(one, name, go)]
        watch = Watch()
        found = replies_per_turn(watch, monkeypatch)
        watch.run()
        go.set()
        replies = await asyncio.gather(*tasks)
        assert {reply.error_code for reply in replies} == {0}
        assert {reply.generation_id for reply in replies} == {2}
        assert found.total() == 3 * (MEMBERS + 1)
        assert max(found.values()) <= TURN_ELEMENTS


@on_virtual_time
async def test_rebalances_of_several_coordinators_whose_time_is_up_at_the_same_moment_end_in_turns_of_their_own() -> (
    None
):
    go = asyncio.Event()
    turns = Turns()
    async with AsyncExitStack() as open_ones:
        ones = [await open_ones.enter_async_context(coordinator()) for _ in range(3)]
        for one in ones:
            one.shard._turns = one.shard._deadlines._turns = turns
        found = await asyncio.gather(*(joining(one, "g", go, rebalance_timeout_ms=10_000) for one in ones))
        watch, ended = Watch(), Counter[int]()
        fire_next = GroupCoordinatorShard._fire_next

        def counted(shard: GroupCoordinatorShard) -> int | None:
            size_bytes = fire_next(shard)
            if size_bytes is not None and size_bytes > MEMBERS * ELEMENT_WORK_BYTES // 2:
                if not ended:
                    watch.run(100)
                ended[watch.turn] += 1
            return size_bytes

        for one in ones:
            one.shard._deadlines._fire = partial(counted, one.shard)
        replies = await asyncio.gather(*(task for tasks in found for task in tasks[1:]))
        assert {reply.generation_id for reply in replies} == {2}
        assert ended.total() == 3
        assert max(ended.values()) * MEMBERS <= TURN_ELEMENTS + MEMBERS
        for task in (tasks[0] for tasks in found):
            task.cancel()


@on_virtual_time
async def test_members_of_several_coordinators_that_are_loaded_together_are_brought_to_life_some_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disks = [Disk() for _ in range(LOADED)]
    for disk in disks:
        async with coordinator(disk) as one:
            for number in range(4):
                protocols = [{"name": "range", "metadata": bytes(TURN_BYTES // 4)}]
                times = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 60_000}
                group = {"group_id": f"g{number}", "protocol_type": "x"}
                member_id = (await one.ask(JOIN, 3, **group, **times, member_id="", protocols=protocols)).member_id
                assert (
                    await one.ask(SYNC, 3, group_id=f"g{number}", generation_id=1, member_id=member_id, assignments=[])
                ).error_code == 0
    turns, watch, alive = Turns(), Watch(), Counter[int]()
    start = timeouts.start

    def counted(machine: GroupMachine, now: Now, group_ids: Sequence[str]) -> Effects:
        if not alive:
            watch.run(500)
        alive[watch.turn] += sum(map(machine.durable.generation_bytes, group_ids))
        return start(machine, now, group_ids)

    monkeypatch.setattr(timeouts, "start", counted)
    ones = [Coordinator(disk, Topics("t")) for disk in disks]
    for one in ones:
        one.shard._turns = turns
    await asyncio.gather(*(one.shard.load() for one in ones))
    assert alive.total() > LOADED * TURN_BYTES
    assert max(alive.values()) <= TURN_BYTES
    for one in ones:
        assert len(one.shard._machine.groups) == 4  # type: ignore[union-attr]
        await one.shard.close()


@on_virtual_time
async def test_a_session_ends_however_many_wait_for_turns() -> None:
    turns = Turns()
    async with coordinator() as one:
        one.shard._turns = one.shard._deadlines._turns = turns
        await one.single_member()
        greedy = [asyncio.create_task(turns.take(TURN_BYTES, party=f"10.0.0.{number % 5}")) for number in range(50)]
        await asyncio.sleep(11)
        await asyncio.gather(*greedy)
        assert sum(one.shard.state_counts(1), Counter()) == {"Empty": 1}


@on_virtual_time
async def test_whoever_asks_for_much_has_one_turn_and_then_others_have_theirs() -> None:
    turns, went = Turns(), list[str]()

    async def take(party: str, count: int) -> None:
        async def one() -> None:
            await turns.take(TURN_BYTES, party=party)
            went.append(party)

        await asyncio.gather(*(one() for _ in range(count)))

    await asyncio.gather(take("greedy", 50), take("modest", 2))
    assert [number for number, party in enumerate(went) if party == "modest"][-1] <= 5


@on_virtual_time
async def test_many_descriptions_of_a_large_group_are_one_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()
    async with coordinator() as one:
        tasks = await joining(one, "g", go)
        watch, described = Watch(), Counter[int]()
        describe = k15_describe_groups.describe

        def counted(machine: Any, group_id: str) -> Any:
            described[watch.turn] += 1
            return describe(machine, group_id)

        monkeypatch.setattr(k15_describe_groups, "describe", counted)
        watch.run()
        replies = await asyncio.gather(*(one.ask(DESCRIBE, groups=["g"]) for _ in range(20)))
        assert {len(reply.groups[0].members) for reply in replies} == {MEMBERS + 1}
        assert (described.total(), max(described.values())) == (20, 1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@on_virtual_time
async def test_all_offsets_of_a_group_are_looked_at_a_thousand_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Topics("t", "u")
    async with coordinator(topics=topics) as one:
        for name in ("u", "t"):
            parts = [
                {"partition_index": index, "committed_offset": index, "committed_metadata": ""} for index in range(900)
            ]
            await one.ask(
                COMMIT,
                8,
                group_id="g",
                generation_id_or_member_epoch=-1,
                topics=[{"name": name, "partitions": parts[::-1]}],
            )
        watch, looked = Watch(), Counter[int]()
        fetch = k09_offset_fetch.fetch

        def counted(*asked: Any) -> Any:
            looked[watch.turn] += 1
            return fetch(*asked)

        monkeypatch.setattr(k09_offset_fetch, "fetch", counted)
        monkeypatch.setattr(k09_offset_fetch, "OFFSETS_PER_TURN", 400)
        watch.run()
        replies = await asyncio.gather(
            *(one.ask(FETCH, 8, groups=[{"group_id": "g", "topics": None}]) for _ in range(5))
        )
        for reply in replies:
            found = [
                (topic.name, [(each.partition_index, each.committed_offset) for each in topic.partitions])
                for topic in reply.groups[0].topics
            ]
            assert found == [(name, [(index, index) for index in range(900)]) for name in ("t", "u")]
        assert looked.total() == 5 * 1_800
        assert max(looked.values()) <= TURN_ELEMENTS
