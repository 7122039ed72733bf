"""Turns go by party first: who comes with many senders has no more of them."""

import asyncio
from random import Random

import pytest

from bmq.fairness.turns import Places, Rotation, Turns


def test_parties_alternate_however_many_senders_one_has() -> None:
    waiting: Rotation[str] = Rotation()
    for sender in range(200):
        waiting.push(f"greedy {sender}", party="greedy", sender=sender)
    waiting.push("modest", party="modest", sender=0)
    assert [waiting.pop() for _ in range(3)] == ["greedy 0", "modest", "greedy 1"]


def test_senders_of_one_party_alternate_however_much_one_has_sent() -> None:
    waiting: Rotation[str] = Rotation()
    for number in range(200):
        waiting.push(f"greedy {number}", party="behind one router", sender="greedy")
    waiting.push("modest", party="behind one router", sender="modest")
    assert [waiting.pop() for _ in range(3)] == ["greedy 0", "modest", "greedy 1"]


def test_everything_comes_once_and_each_senders_in_its_order() -> None:
    rng = Random(7)
    waiting: Rotation[tuple[int, int, int]] = Rotation()
    put: list[tuple[int, int, int]] = []
    got: list[tuple[int, int, int]] = []
    for number in range(2_000):
        if waiting and rng.random() < 0.4:
            got.append(waiting.pop())
        else:
            party, sender = rng.randrange(5), rng.randrange(5)
            put.append((party, sender, number))
            waiting.push(put[-1], party=party, sender=sender)
    while waiting:
        got.append(waiting.pop())
    assert sorted(got) == sorted(put)
    for party in range(5):
        for sender in range(5):
            numbers = [one[2] for one in got if one[:2] == (party, sender)]
            assert numbers == sorted(numbers)


def test_what_is_not_wanted_any_more_leaves_nothing_behind_and_the_turns_of_others_as_they_are() -> None:
    waiting: Rotation[str] = Rotation()
    for item, party, sender in (("a1", "a", 1), ("b1", "b", 1), ("a2", "a", 2), ("a1 too", "a", 1), ("c1", "c", 1)):
        waiting.push(item, party=party, sender=sender)
    waiting.discard("a1", party="a", sender=1)
    waiting.discard("b1", party="b", sender=1)
    waiting.discard("a1 too", party="c", sender=1)
    waiting.discard("nobody's", party="d", sender=1)
    assert [waiting.pop() for _ in range(len(waiting))] == ["a1 too", "c1", "a2"]
    waiting.push("last", party="b", sender=1)
    waiting.discard("last", party="b", sender=1)
    assert not waiting


def test_who_gives_up_waiting_takes_no_turn() -> None:
    async def main() -> None:
        turns, taken = Turns(), []

        async def take(name: str) -> None:
            await turns.turn(party=name)
            taken.append(name)

        tasks = [asyncio.create_task(take(name)) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert taken == ["b", "c"]

    asyncio.run(main())


def test_a_party_that_is_passed_over_goes_behind_all_others_with_its_own_order() -> None:
    waiting: Rotation[str] = Rotation()
    for item in ("a1", "a2", "b1", "c1"):
        waiting.push(item, party=item[0], sender=item)
    assert waiting.parties == 3
    waiting.pass_over()
    assert [waiting.pop() for _ in range(4)] == ["b1", "c1", "a1", "a2"]
    assert waiting.parties == 0


class Work:
    """Pieces that have a place until they are let go, in the order in which they got it."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.under_way: list[str] = []
        self.begun: list[str] = []

    async def want(self, *parties: str) -> None:
        for party in parties:
            self.under_way.append(party)
            task = asyncio.create_task(self._places.enter(party=party, sender=len(self.under_way)))
            task.add_done_callback(lambda done, party=party: done.cancelled() or self.begun.append(party))
        await self.settle()

    async def let_go(self, party: str) -> None:
        self._places.leave(party=party)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)


def test_who_has_a_place_waits_for_its_next_behind_who_has_none() -> None:
    async def main() -> None:
        work = Work(Places(2))
        await work.want("greedy", "greedy", "greedy", "greedy", "modest")
        assert work.begun == ["greedy", "greedy"], "as long as nobody else wanted one"
        await work.let_go("greedy")
        assert work.begun[2:] == ["modest"], "it is another one's turn, who has one already"
        await work.let_go("greedy")
        await work.let_go("modest")
        assert work.begun[3:] == ["greedy", "greedy"], "nobody else waits"

    asyncio.run(main())


def test_those_who_all_have_a_place_have_their_next_by_turns() -> None:
    async def main() -> None:
        work = Work(Places(4))
        await work.want("a", "a", "b", "b", "a", "a", "b", "b", "a")
        for party in ("a", "b", "a", "b"):
            await work.let_go(party)
        assert work.begun[4:] == ["a", "b", "a", "b"]

    asyncio.run(main())


def test_where_a_party_leaves_as_many_places_as_it_has_another_one_does_not_wait() -> None:
    async def main() -> None:
        work = Work(Places(8, leaving=True))
        await work.want(*["greedy"] * 20)
        assert work.begun == ["greedy"] * 4
        await work.want(*["second"] * 20)
        assert work.begun[4:] == ["second"] * 2
        await work.want("modest")
        assert work.begun[6:] == ["modest"]
        await work.let_go("greedy")
        assert work.begun[7:] == [], "each has as many as are free, or more"
        await work.let_go("greedy")
        assert len(work.begun[7:]) == 1, "each might, and then not the other one"

    asyncio.run(main())


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whoever_waits_for_a_place_has_one_in_the_end_and_none_is_lost(seed: int, leaving: bool) -> None:
    async def main() -> None:
        rng, at_once = Random(seed), 1 + seed % 5
        places, done, most, under_way = Places(at_once, leaving=leaving), 0, 0, 0

        async def one(party: str) -> None:
            nonlocal done, most, under_way
            async with places.holding(party=party, sender=rng.randrange(3)):
                under_way += 1
                most = max(most, under_way)
                try:
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)
                finally:
                    under_way -= 1
            done += 1

        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(one(rng.choice("aaaabc"))))
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            if rng.random() < 0.2:
                rng.choice(tasks).cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert places.is_idle
        assert most <= at_once
        assert done == sum(not task.cancelled() for task in tasks)

    asyncio.run(main())
