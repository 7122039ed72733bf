"""Memory of whole requests: one address leaves something to others, and whoever waits goes on in the end."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
import uvloop

from bmq_proxy.fair_memory import ROOMS_AT_ONCE, FairMemory

NEW_LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def test_addresses_that_take_all_they_can_leave_some_to_the_next() -> None:
    memory = FairMemory(1_000)
    taken = []
    for address in "abcd":
        while memory.has_room_for(address):
            memory.hold(address, 1)
        taken.append(memory.held_bytes)
    assert taken == [750, 938, 985, 997]
    assert memory.has_room_for("e")


@NEW_LOOPS
@pytest.mark.parametrize("seed", range(10))
def test_whoever_waits_is_read_in_the_end_and_never_beyond_what_its_address_may_have(
    new_loop: Callable[[], asyncio.AbstractEventLoop], seed: int
) -> None:
    async def main() -> None:
        rng, memory = Random(seed), FairMemory(1_000)
        held: list[tuple[str, int]] = []
        own, in_turn, left = Counter[str](), Counter[int](), 400
        turns = 0

        def read(address: str) -> None:
            nonlocal left
            free = memory.limit_bytes - memory.held_bytes
            assert own[address] < 3 * free
            in_turn[turns] += 1
            left -= 1
            size_bytes = rng.randint(1, 200)
            memory.hold(address, size_bytes)
            own[address] += size_bytes
            held.append((address, size_bytes))

        for number in range(left):
            address = rng.choice(("greedy", f"a{number % 100}"))
            if memory.has_room_for(address):
                read(address)
            else:
                memory.wait(address, partial(read, address))
        while held:
            address, size_bytes = held.pop(rng.randrange(len(held)))
            own[address] -= size_bytes
            turns += 1
            memory.release(address, size_bytes)
            await asyncio.sleep(0)
        assert left == 0
        assert memory.held_bytes == 0
        assert max(count for turn, count in in_turn.items() if turn) <= 2 * ROOMS_AT_ONCE

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_request_that_is_larger_than_all_of_it_keeps_its_own_address_from_being_read_and_no_other() -> None:
    memory = FairMemory(64)
    large, other = memory.of("large"), memory.of("other")
    large.hold(100)
    assert memory.held_bytes == 100
    assert not large.has_room
    assert other.has_room
    other.hold(10)
    assert other.has_room
    other.hold(6)
    assert not other.has_room
    large.release(100)
    assert large.has_room and other.has_room
    other.release(16)
    assert (memory.held_bytes, memory._counted_bytes) == (0, 0)


def test_who_does_not_wait_any_more_lets_the_next_one_go_on() -> None:
    async def main() -> None:
        memory, told = FairMemory(10), []
        memory.hold("a", 10)
        memory.hold("c", 3)
        gone, next_one = partial(told.append, "gone"), partial(told.append, "next")
        memory.wait("b", gone)
        memory.wait("b", next_one)
        memory.withdraw("b", gone)
        assert not told
        memory.release("a", 10)
        assert told == ["next"]
        assert memory.has_room_for("b")

    asyncio.run(main())
