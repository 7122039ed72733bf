"""So much wide work at a time, and of those who wait each address has its turn."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_proxy.admission import Admission, Admitted, ByAddress
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.calls import Call, Lease


def call(host: str, connection: int = 0) -> Call:
    lease = Lease(MemoryBudget(1_000), 1)
    return Call(
        api_key=3,
        version=1,
        correlation_id=1,
        client_id="",
        client_host=host,
        lease=lease,
        arrived=0.0,
        origin=connection,
    )


class Works:
    """Pieces of work that go on until they are let go."""

    def __init__(self, limit: int) -> None:
        self.admission = Admission(limit)
        self.under_way: list[str] = []
        self.held: dict[str, Admitted] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._let_go: dict[str, asyncio.Event] = {}

    def begin(self, name: str, size: int, *, host: str = "a", connection: int = 0) -> None:
        self._let_go[name] = asyncio.Event()

        async def work() -> None:
            async with self.admission.admitted(call(host, connection), size) as admitted:
                self.under_way.append(name)
                self.held[name] = admitted
                try:
                    await self._let_go[name].wait()
                finally:
                    self.under_way.remove(name)

        self.tasks[name] = asyncio.create_task(work())

    async def end(self, name: str) -> None:
        self._let_go[name].set()
        await self.tasks[name]
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[[Works], Awaitable[None]], limit: int = 10) -> None:
    async def main() -> None:
        works = Works(limit)
        await test(works)
        for task in works.tasks.values():
            task.cancel()
        await asyncio.gather(*works.tasks.values(), return_exceptions=True)
        assert works.admission._room.left == limit, "all of it came back"

    asyncio.run(main())


def test_no_more_is_under_way_than_fits() -> None:
    async def test(works: Works) -> None:
        works.begin("first", 4)
        works.begin("second", 3, host="b")
        works.begin("large", 5, host="c")
        works.begin("last", 1, host="d")
        await turns()
        assert works.under_way == ["first", "second"], "nobody passes the large one, which would wait for ever"
        await works.end("first")
        assert works.under_way == ["second", "large", "last"]

    run(test)


def test_one_that_is_larger_than_all_there_is_leaves_half_to_others() -> None:
    async def test(works: Works) -> None:
        works.begin("huge", 50, host="greedy", connection=1)
        works.begin("huge, too", 50, host="greedy", connection=2)
        works.begin("modest", 3, host="a")
        works.begin("another", 2, host="b")
        await turns()
        assert works.under_way == ["huge", "modest", "another"], "who waits for its own holds up nobody"
        await works.end("another")
        await works.end("huge")
        assert works.under_way == ["modest", "huge, too"]

    run(test)


def test_each_address_has_its_turn_however_many_connections_of_another_one_wait() -> None:
    async def test(works: Works) -> None:
        for number in range(50):
            works.begin(f"greedy {number}", 10, host="greedy", connection=number)
        works.begin("modest", 10, host="modest", connection=99)
        await turns()
        assert works.under_way == ["greedy 0", "modest"]
        works.begin("third", 10, host="third")
        await works.end("greedy 0")
        assert works.under_way == ["modest", "third"]
        await works.end("third")
        assert works.under_way == ["modest", "greedy 1"]

    run(test)


def test_an_address_has_no_more_than_it_leaves_however_long_it_keeps_that() -> None:
    async def test(works: Works) -> None:
        for number in range(10):
            works.begin(f"patient {number}", 1, host="patient", connection=number)
        await turns()
        assert works.under_way == [f"patient {number}" for number in range(5)]
        works.begin("other", 3, host="other")
        await turns()
        assert works.under_way[5:] == ["other"], "though some wait that came before it"
        works.begin("third", 1, host="third")
        await turns()
        assert works.under_way[6:] == ["third"]
        await works.end("patient 0")
        assert works.under_way == [*(f"patient {number}" for number in range(1, 5)), "other", "third"]
        await works.end("other")
        assert works.under_way[-1] == "patient 5"

    run(test)


def test_what_is_not_needed_is_another_ones_at_once() -> None:
    async def test(works: Works) -> None:
        works.begin("other", 4, host="a")
        works.begin("before it is decoded", 10, host="c")
        works.begin("next", 5, host="b")
        await turns()
        assert works.under_way == ["other", "before it is decoded"]
        works.held["before it is decoded"].keep(1)
        await turns()
        assert works.under_way == ["other", "before it is decoded", "next"]

    run(test)


@pytest.mark.parametrize("who", ["at work", "whose turn it is", "behind it"])
def test_who_gives_up_holds_up_nobody(who: str) -> None:
    async def test(works: Works) -> None:
        works.begin("beside", 3, host="z")
        works.begin("at work", 4, host="b")
        works.begin("whose turn it is", 5, host="c")
        works.begin("behind it", 5, host="d")
        await turns()
        assert works.under_way == ["beside", "at work"]
        works.tasks[who].cancel()
        await turns()
        left = [name for name in ("at work", "whose turn it is", "behind it") if name != who]
        for name in left:
            assert works.under_way == ["beside", name]
            await works.end(name)

    run(test)


def test_those_who_have_given_up_are_not_kept_until_their_turn_would_have_come() -> None:
    async def test(works: Works) -> None:
        works.begin("at work", 10)
        works.begin("whose turn it is", 10, host="b")
        await turns()
        for number in range(100):
            works.begin(f"gone {number}", 10, connection=number)
            await turns()
            works.tasks.pop(f"gone {number}").cancel()
            await turns()
        assert len(works.admission._waiting) <= 1
        await works.end("at work")
        await works.end("whose turn it is")

    run(test)


def test_each_address_has_so_much_at_a_time_and_holds_up_no_other_one() -> None:
    async def main() -> None:
        by_address, over, under_way = ByAddress(3), asyncio.Event(), list[str]()

        async def work(host: str) -> None:
            under_way.append(host)
            await over.wait()

        def begin(host: str, connection: int) -> "asyncio.Task[None]":
            return asyncio.create_task(by_address.run(call(host, connection), lambda: work(host)))

        tasks = [begin("greedy", number % 2) for number in range(10)]
        await turns()
        tasks += [begin("modest", 9)]
        await turns()
        assert under_way == ["greedy"] * 3 + ["modest"]
        for task in tasks[:5]:
            task.cancel()
        await turns()
        assert under_way == ["greedy"] * 3 + ["modest"] + ["greedy"] * 3
        over.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(under_way) == 9
        assert not by_address._places

    asyncio.run(main())


def test_what_is_small_passes_those_that_wait_for_much() -> None:
    async def test(works: Works) -> None:
        for host in ("a", "b"):
            works.begin(f"large of {host}", 250, host=host)
        works.begin("next", 400, host="c")
        works.begin("as large as there is room", 140, host="d")
        await turns()
        assert works.under_way == ["large of a", "large of b"]
        works.begin("small", 10, host="e")
        await turns()
        assert works.under_way[2:] == ["small"]
        for number in range(20):
            works.begin(f"small {number}", 10, host="f", connection=number)
        await turns()
        assert len(works.under_way[3:]) == 4, "as many as leave room for others"
        await works.end("small")
        await works.end("large of a")
        await works.end("large of b")
        assert "next" in works.under_way, "those that pass hold up nobody"
        assert "as large as there is room" in works.under_way

    run(test, limit=640)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from((1, 9, 20, 100, 400, 640, 900))), max_size=25))
def test_whoever_waits_is_let_in_once_all_that_was_let_in_is_over(asked: list[tuple[str, int]]) -> None:
    async def test(works: Works) -> None:
        for number, (host, size) in enumerate(asked):
            works.begin(f"{number}", size, host=host, connection=number % 3)
            if number % 4 == 3:
                works.tasks[f"{number - 1}"].cancel()
            await turns()
        for _ in asked:
            if works.under_way:
                await works.end(works.under_way[0])
        assert not works.under_way
        assert all(task.done() for task in works.tasks.values())

    run(test, limit=640)
