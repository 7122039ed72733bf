"""Values that are read once for all who ask at about the same time."""

import asyncio
import traceback

import pytest

from bmq_admin.errors import AdminUnreachable, TimedOut
from bmq_operator.rivals import Rival
from bmq_operator.sharing import FRESH_S, FRESH_S_MAX, STALE, Shared
from bmq_operator.takers import REMEMBERED_S, Takers


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


def test_a_failure_that_is_told_again_keeps_nothing_of_who_read_and_who_asked() -> None:
    async def run() -> None:
        async def read() -> int:
            raise AdminUnreachable("nobody answers")

        async def ask() -> int:
            return await shared.get("a", read)

        shared: Shared[int] = Shared(most=1)
        for _ in range(10):
            with pytest.raises(AdminUnreachable) as told:
                await ask()
            names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(told.value.__traceback__)]
            assert "read" not in names and names.count("ask") == 1

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


@pytest.mark.parametrize(
    ("error", "took_s"), [(TimedOut("http://bmq"), 2 * FRESH_S), (OSError("no answer"), 4 * FRESH_S)]
)
def test_a_failure_that_took_long_is_that_of_all_who_waited_for_it(error: Exception, took_s: float) -> None:
    async def run() -> None:
        reads, now_s = 0, 0.0

        async def read() -> int:
            nonlocal reads, now_s
            reads += 1
            await asyncio.sleep(0)
            now_s += took_s
            raise error

        shared: Shared[int] = Shared(most=2, now_s=lambda: now_s)
        found = await asyncio.gather(*(shared.get("a", read) for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [type(error)] * 5
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


class Slow:
    """What takes so long to read, by a clock that goes on only then."""

    def __init__(self, lasts_s: float) -> None:
        self.lasts_s, self.now_s, self.under_way, self.reads = lasts_s, 100.0, 0, 0
        self.shared: Shared[int] = Shared(most=2, now_s=lambda: self.now_s)

    async def read(self) -> int:
        self.reads += 1
        self.under_way += 1
        assert self.under_way == 1, "one at a time"
        for _ in range(10):
            await asyncio.sleep(0)
            self.now_s += self.lasts_s / 10
        self.under_way -= 1
        return self.reads

    def ask(self, *, since_s: float = float("-inf")) -> "asyncio.Task[int]":
        return asyncio.create_task(self.shared.get("a", self.read, since_s=since_s))


async def _begun(tasks: int = 1) -> None:
    for _ in range(tasks + 2):
        await asyncio.sleep(0)


@pytest.mark.parametrize("lasts_s", [4 * FRESH_S, 50 * FRESH_S])
def test_however_many_wait_for_what_takes_long_to_read_it_is_read_twice_at_most(lasts_s: float) -> None:
    async def run() -> None:
        slow = Slow(lasts_s)
        first = slow.ask()
        await _begun()
        slow.now_s += FRESH_S_MAX
        waiting = [slow.ask() for _ in range(50)]
        assert [await first, *await asyncio.gather(*waiting)] == [1] + 50 * [2]
        assert await slow.ask() == (2 if lasts_s < 50 * FRESH_S else 3), "a slow one is used for as long as it took"

    asyncio.run(run())


def test_while_a_value_is_read_anew_the_one_before_counts_for_who_may_do_with_it() -> None:
    async def run() -> None:
        slow = Slow(4 * FRESH_S)
        assert await slow.ask() == 1
        slow.now_s += 4 * FRESH_S
        reader = slow.ask()
        await _begun()
        others = [slow.ask() for _ in range(20)]
        newer = slow.ask(since_s=slow.now_s)
        assert await asyncio.gather(*others) == [1] * 20, "nobody waits but who reads"
        assert not reader.done() and await reader == 2
        assert await newer == 3
        slow.now_s += FRESH_S_MAX
        reader = slow.ask()
        await _begun()
        slow.now_s += STALE * FRESH_S_MAX
        assert await slow.ask() == 5, "and not for ever"
        assert await reader == 4

    asyncio.run(run())


def test_what_is_written_into_is_that_which_is_read_anew() -> None:
    async def run() -> None:
        slow = Slow(1.0)
        slow.shared = Shared(most=1, waits=True, now_s=lambda: slow.now_s)
        assert await slow.ask() == 1
        slow.now_s += FRESH_S
        assert await asyncio.gather(*(slow.ask() for _ in range(5))) == [2] * 5

    asyncio.run(run())


def test_who_needs_what_is_new_shares_the_next_read_with_all_who_do() -> None:
    async def run() -> None:
        slow = Slow(1.0)
        first = slow.ask()
        await _begun()
        slow.now_s += 0.1
        new = [slow.ask(since_s=slow.now_s) for _ in range(50)]
        old = slow.ask()
        assert [await first, *await asyncio.gather(*new)] == [1] + 50 * [2]
        assert await old == 2 and slow.reads == 2

    asyncio.run(run())


def test_what_is_forgotten_while_it_is_read_is_read_anew_for_those_who_ask_afterwards_alone() -> None:
    async def run() -> None:
        slow = Slow(1.0)
        before = [slow.ask() for _ in range(3)]
        await _begun(3)
        slow.shared.forget("a")
        after = [slow.ask() for _ in range(3)]
        assert await asyncio.gather(*before) == [1] * 3
        assert await asyncio.gather(*after) == [2] * 3

    asyncio.run(run())


def test_who_reads_and_is_broken_off_breaks_off_nobody_else() -> None:
    async def run() -> None:
        slow = Slow(1.0)
        first, second = slow.ask(), slow.ask()
        await _begun(2)
        first.cancel()
        slow.under_way = 0
        assert await second == 2
        assert first.cancelled()

    asyncio.run(run())


def test_who_took_a_thing_while_a_slow_list_was_read_counts_whoever_took_another_since() -> None:
    takers = Takers[str](kept_s=20.0)
    mine = Rival(kind="Topic", namespace="shop", name="a", uid="uid-a", created="", owned=True)
    takers.take("orders", mine, now_s=1.0)
    takers.take("other", mine, now_s=100.0)
    rivals: dict[str, Rival] = {}
    takers.add_to(rivals, "orders", read_s=0.5)
    assert rivals == {"uid-a": mine}
    takers.take("more", mine, now_s=2.0 + REMEMBERED_S)
    assert list(takers._taken) == ["other", "more"]
