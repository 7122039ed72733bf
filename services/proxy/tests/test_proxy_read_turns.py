"""Who reads much takes turns while there is anybody to protect; who reads little, or nobody else is there for, is not
held back.
"""

import asyncio
from random import Random

import pytest

from bmq.fairness.greedy_window import REMEMBERED_S, SLOWER_MAX, WINDOW_FIRST_BYTES, WINDOW_MIN_BYTES, Modest
from bmq_proxy.fetch.turns import ReadTurns
from bmq_sim.loop import on_virtual_time

MIB = 1 << 20


class Reader:
    """A client that reads so many MiB, one after the other."""

    def __init__(self, turns: ReadTurns, party: str, count: int, *, takes_s: float = 0.01) -> None:
        self.turns = turns
        self.party = party
        self.left = count
        self.takes_s = takes_s

    async def read(self) -> None:
        while self.left:
            turn = self.turns.begin(MIB) or await self.turns.wait((self.party, ""), MIB)
            try:
                await asyncio.sleep(self.takes_s)
            finally:
                turn.over()
            self.left -= 1


def over(modest: Modest, took_s: float) -> None:
    """An append of who is modest."""
    now = asyncio.get_running_loop().time()
    modest.began(now)
    modest.over(took_s, now)


async def keep_modest(modest: Modest, turns: ReadTurns, took_s: float) -> None:
    """Appends take so long beside readers, and 2 ms by themselves."""
    loop = asyncio.get_running_loop()
    while True:
        modest.began(loop.time())
        needed_s = took_s if turns.window.held_bytes else 0.002
        over_s: float | None = None
        try:
            await asyncio.sleep(needed_s)
            over_s = needed_s
        finally:
            modest.over(over_s, loop.time())


@on_virtual_time
async def test_where_nobody_is_modest_all_read_at_once() -> None:
    turns = ReadTurns(Modest(), bytes_max=64 * MIB)
    assert turns.at_most(50 * MIB) == 50 * MIB
    begun = [turns.begin(MIB) for _ in range(1000)]
    assert all(begun)


@pytest.mark.parametrize(
    ("parties", "told"),
    [
        (list("aaaabac"), list("abcaaaa")),
        # many client ids are one address' still
        (["a1", "a1", "a2", "a3", "b1", "b1"], ["a1", "b1", "a2", "b1", "a3", "a1"]),
    ],
)
@on_virtual_time
async def test_beside_the_modest_there_is_a_window_and_clients_take_turns(parties: list[str], told: list[str]) -> None:
    modest = Modest()
    turns = ReadTurns(modest, bytes_max=64 * MIB)
    over(modest, 0.01)
    assert turns.at_most(50 * MIB) == WINDOW_FIRST_BYTES
    held = [turns.begin(MIB) for _ in range(WINDOW_FIRST_BYTES // MIB)]
    assert turns.begin(MIB) is None
    order: list[str] = []

    async def wait(party: str) -> None:
        turn = await turns.wait((party[0], party[1:]), MIB)
        order.append(party)
        turn.over()

    async with asyncio.TaskGroup() as tasks:
        for party in parties:
            tasks.create_task(wait(party))
        await asyncio.sleep(0.1)
        assert not order
        for turn in held:
            assert turn is not None
            turn.over()
    assert order == told
    assert turns.window.held_bytes == 0


@on_virtual_time
async def test_what_is_larger_than_the_window_is_read_by_itself() -> None:
    modest = Modest()
    turns = ReadTurns(modest, bytes_max=2 * MIB)
    over(modest, 0.01)
    first = turns.begin(MIB)
    assert first is not None
    waiting = asyncio.ensure_future(turns.wait(("large", ""), 10 * MIB))
    await asyncio.sleep(0)
    assert turns.begin(1) is None  # nobody goes past who waits
    first.over()
    (await waiting).over()


@on_virtual_time
async def test_readers_slow_down_for_the_modest_and_speed_up_without_them() -> None:
    modest = Modest()
    turns = ReadTurns(modest, bytes_max=64 * MIB)
    over(modest, 0.002)
    waits = asyncio.ensure_future(keep_modest(modest, turns, 0.002 * 3 * SLOWER_MAX))
    readers = [Reader(turns, str(n), 100) for n in range(4)]
    began_s = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(reader.read())
    slow_s = asyncio.get_running_loop().time() - began_s
    assert turns.window.size_bytes == WINDOW_MIN_BYTES
    assert 0.8 * 400 * 0.05 < slow_s < 1.2 * 400 * 0.05  # one at a time, and four times as long a rest
    waits.cancel()
    await asyncio.sleep(2 * REMEMBERED_S)
    began_s = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            reader.left = 100
            tasks.create_task(reader.read())
    assert asyncio.get_running_loop().time() - began_s < 1.1 * 100 * 0.01


@pytest.mark.parametrize("seed", range(10))
@on_virtual_time
async def test_who_goes_while_it_waits_holds_up_nobody_and_every_byte_comes_back(seed: int) -> None:
    rng = Random(seed)
    modest = Modest()
    turns = ReadTurns(modest, bytes_max=8 * MIB)
    over(modest, 0.002)
    waits = asyncio.ensure_future(keep_modest(modest, turns, 0.02 if seed % 2 else 0.002))
    readers = [Reader(turns, str(n % 5), 20, takes_s=rng.random() / 50) for n in range(20)]
    tasks = [asyncio.ensure_future(reader.read()) for reader in readers]
    await asyncio.sleep(0.2)
    gone = rng.sample(tasks, 8)
    for task in gone:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    waits.cancel()
    for task, outcome in zip(tasks, found, strict=True):
        assert outcome is None or (task in gone and isinstance(outcome, asyncio.CancelledError))
    assert turns.window.held_bytes == 0
    (turns.begin(8 * MIB) or await turns.wait(("last", ""), 8 * MIB)).over()
