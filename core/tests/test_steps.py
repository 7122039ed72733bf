"""So many steps in a turn of the loop, by turns of those whose they are."""

import asyncio

from bmq.fairness.steps import Steps


def test_few_steps_are_taken_in_a_turn_of_the_loop_and_one_who_has_few_does_not_wait_for_one_who_has_many() -> None:
    async def main() -> list[list[str]]:
        steps, turns, taken = Steps(3), [], []
        for n in range(12):
            if steps.may_take(lambda n=n: taken.append(f"greedy {n}"), party="greedy"):
                taken.append(f"greedy {n}")
        steps.may_take(lambda: taken.append("modest"), party="modest")
        while taken:
            turns.append(taken.copy())
            taken.clear()
            await asyncio.sleep(0)
        return turns

    turns = asyncio.run(main())
    assert [len(taken) for taken in turns] == [3, 3, 3, 3, 1]
    assert turns[1] == ["greedy 3", "modest", "greedy 4"]
    assert turns[2] == ["greedy 5", "greedy 6", "greedy 7"]


def test_what_a_turn_left_is_there_for_who_comes_in_it() -> None:
    async def main() -> list[bool]:
        steps = Steps(2)
        first = [steps.may_take(int, party=1) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [*first, *(steps.may_take(int, party=2) for _ in range(2))]

    assert asyncio.run(main()) == [True, True, False, True, False]
