"""Turns go by party first: who comes with many senders has no more of them."""

import asyncio
from random import Random

from bmq.fairness.turns import Rotation, Turns


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
