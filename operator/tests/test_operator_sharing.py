"""Values that are read once for all who ask at about the same time."""

import asyncio

import pytest

from bmq_admin.errors import AdminUnreachable, TimedOut
from bmq_operator.sharing import FRESH_S, Shared


def test_who_asks_while_it_is_read_waits_for_that_answer_failures_too() -> None:
    async def run() -> None:
        reads = 0

        async def read() -> int:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            if reads == 2:
                raise AdminUnreachable("nobody answers")
            return reads

        shared: Shared[int] = Shared(most=2)
        assert await asyncio.gather(*(shared.get("a", read) for _ in range(5))) == [1] * 5
        shared.forget("a")
        found = await asyncio.gather(*(shared.get("a", read) for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [AdminUnreachable] * 5
        assert reads == 2

    asyncio.run(run())


def test_what_could_not_be_read_for_another_reason_is_read_by_the_next_one() -> None:
    async def run() -> None:
        answers: list[object] = [OSError("away"), "new"]

        async def read() -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        shared: Shared[object] = Shared(most=2)
        with pytest.raises(OSError, match="away"):
            await shared.get("a", read)
        assert await shared.get("a", read) == "new"

    asyncio.run(run())


def test_only_so_many_are_remembered() -> None:
    async def run() -> None:
        async def read() -> int:
            return 1

        shared: Shared[int] = Shared(most=2)
        for key in "abcd":
            await shared.get(key, read)
        assert len(shared._slots) == 2

    asyncio.run(run())


def test_a_failure_that_took_long_is_that_of_all_who_waited_for_it() -> None:
    async def run() -> None:
        reads, now_s = 0, 0.0

        async def read() -> int:
            nonlocal reads, now_s
            reads += 1
            await asyncio.sleep(0)
            now_s += 2 * FRESH_S
            raise TimedOut("http://bmq")

        shared: Shared[int] = Shared(most=2, now_s=lambda: now_s)
        found = await asyncio.gather(*(shared.get("a", read) for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [TimedOut] * 5
        assert reads == 1

    asyncio.run(run())


def test_what_is_not_fresh_any_more_is_not_kept() -> None:
    async def run() -> None:
        now_s = 0.0

        async def read() -> int:
            return 1

        shared: Shared[int] = Shared(most=100, now_s=lambda: now_s)
        for key in range(50):
            await shared.get(key, read)
        assert len(shared._slots) == 50
        now_s = FRESH_S
        await shared.get("new", read)
        assert list(shared._slots) == ["new"]

    asyncio.run(run())
