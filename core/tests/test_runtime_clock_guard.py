"""A node whose clock and the store's are more than 60 s apart deletes nothing by time, and says so once."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from typing_extensions import Buffer

from bmq.clocks.clock_guard import ClockGuard
from bmq.clocks.store_clock import skew_of
from bmq.ports import ObjectMeta
from bmq.values import NodeId
from bmq_sim.clock import EPOCH_MS, SimClock, SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import NodeStore, SimStore

DAY_MS = 86_400_000


class Jumping(NodeStore):
    """The wall clock jumps while the store works on a request."""

    def __init__(
        self, store: SimStore, clock: SimClock, *, at: str, by_ms: int, back: bool = False, slow_s: float = 0.2
    ) -> None:
        super().__init__(store, "n")
        self._clock = clock
        self._at = at
        self._by_ms = by_ms
        self._back = back
        self._slow_s = slow_s
        self.jumps = 1

    async def _jump(self, request: str) -> None:
        await asyncio.sleep(self._slow_s)
        if request == self._at and self.jumps:
            self.jumps -= 1
            self._clock.skew_ms += self._by_ms
        elif self._back and self._clock.skew_ms:
            self._clock.skew_ms = 0

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._jump("create")
        await super().create(key, parts)
        await asyncio.sleep(self._slow_s)

    async def head(self, key: str) -> ObjectMeta:
        await self._jump("head")
        return await super().head(key)

    async def delete(self, key: str) -> None:
        await self._jump("delete")
        await super().delete(key)


def guard(store: SimStore, clock: SimClock) -> ClockGuard:
    return ClockGuard(store.for_node("n"), clock, SimRng(1), node_id=NodeId(7))


@on_virtual_time
async def test_before_the_first_comparison_nothing_is_trusted() -> None:
    watched = guard(SimStore(), SimClock())
    assert (watched.trusted, watched.skew_ms) == (False, None)


@pytest.mark.parametrize(
    ("skew_ms", "trusted"),
    [(0, True), (59_000, True), (-59_000, True), (62_000, False), (-62_000, False), (3_600_000, False)],
)
@on_virtual_time
async def test_a_clock_is_trusted_within_a_minute_of_the_stores(skew_ms: int, trusted: bool) -> None:
    store = SimStore()
    watched = guard(store, SimClock(skew_ms=skew_ms))
    await watched.check()
    assert watched.trusted is trusted
    assert watched.skew_ms is not None
    assert abs(watched.skew_ms + skew_ms) <= 2000
    assert store.keys() == []


@pytest.mark.parametrize("skew_ms", [30_000, 3_600_000, -86_400_000 * 900])
@on_virtual_time
async def test_what_is_stored_is_the_stores_time_where_the_clock_is_known_to_be_wrong(skew_ms: int) -> None:
    right, clock = SimClock(), SimClock(skew_ms=skew_ms)
    watched = guard(SimStore(), clock)
    assert watched.now_ms() == clock.now_ms(), "nothing is known yet"
    await watched.check()
    own = abs(skew_ms) <= 60_000
    assert abs(watched.now_ms() - (clock if own else right).now_ms()) <= 2_000
    await asyncio.sleep(20)
    assert abs(watched.now_ms() - (clock if own else right).now_ms()) <= 2_000
    clock.skew_ms = 7_200_000  # between two comparisons
    assert abs(watched.now_ms() - right.now_ms()) <= (32_000 if own else 2_000)
    clock.skew_ms = 0
    await watched.check()
    assert watched.now_ms() == right.now_ms()


@on_virtual_time
async def test_each_minute_it_is_compared_again_and_each_change_is_said_once() -> None:
    store, clock = SimStore(), SimClock()
    watched = guard(store, clock)
    anothers = "clock/0000000007/meta/log/00000000000000000000"
    for key in (f"clock/0000000007/{SimRng(9).uuid()}", anothers):  # the first: left by a killed process
        await store.for_node("n").create(key, [b""])
    task = asyncio.create_task(watched.run())
    with capture_logs() as lines:
        await asyncio.sleep(30)
        assert (watched.trusted, lines) == (True, [])
        clock.skew_ms = 3_600_000
        assert not watched.trusted  # a jump is noticed at once, not at the next comparison
        await asyncio.sleep(300)
        assert not watched.trusted
        assert [line["log_level"] for line in lines] == ["error"]
        assert "nothing is deleted by time" in lines[0]["event"]
        clock.skew_ms = 0
        await asyncio.sleep(120)
        assert watched.trusted
        assert [line["log_level"] for line in lines] == ["error", "info"]
    assert store.keys() == [anothers]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("by_ms", [30 * DAY_MS, -30 * DAY_MS, 70_000])
@on_virtual_time
async def test_a_clock_that_jumps_and_the_stores_with_it_is_trusted_after_a_day_or_where_it_goes_back(
    by_ms: int,
) -> None:
    """A folder's clock is this machine's."""
    store, clock = SimStore(), SimClock()
    watched = guard(store, clock)
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(30)
    with capture_logs() as lines:
        for _ in range(2):
            clock.skew_ms = store.clock_offset_ms = by_ms
            assert not watched.trusted
            await asyncio.sleep(1_000)
            assert (watched.trusted, watched.differs) == (False, False)
            assert abs(watched.now_ms() - SimClock(skew_ms=max(0, by_ms)).now_ms()) <= 2_000, (
                "the later one: what it is given to is kept for longer"
            )
            clock.skew_ms = store.clock_offset_ms = 0
            await asyncio.sleep(100)
            assert watched.trusted, "back where it was"
        assert [line["event"].partition(":")[0] for line in lines] == [
            "clock jumped, and the store's with it",
            "clock agrees with the store's again",
        ] * 2
        clock.skew_ms = store.clock_offset_ms = by_ms
        await asyncio.sleep(23 * 3_600)
        assert not watched.trusted
        await asyncio.sleep(3_700)
        assert watched.trusted_now_ms() == watched.now_ms() == clock.now_ms(), "a day is enough"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_virtual_time
async def test_each_further_jump_begins_the_day_anew() -> None:
    store, clock = SimStore(), SimClock()
    watched = guard(store, clock)
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(30)
    for number in range(1, 6):
        clock.skew_ms = store.clock_offset_ms = number * DAY_MS
        await asyncio.sleep(20 * 3_600)
        assert not watched.trusted
    await asyncio.sleep(5 * 3_600)
    assert watched.trusted
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_virtual_time
async def test_a_store_whose_own_clock_jumps_has_neither_data_deleted_nor_its_time_stored() -> None:
    store, clock = SimStore(), SimClock()
    watched = guard(store, clock)
    await watched.check()
    store.clock_offset_ms = DAY_MS
    await watched.check()
    assert (watched.trusted, watched.differs) == (False, True)
    assert watched.now_ms() == SimClock().now_ms()
    store.clock_offset_ms = 0
    await watched.check()
    assert watched.trusted


@on_virtual_time
async def test_a_store_that_is_down_leaves_the_verdict_as_it_was() -> None:
    store = SimStore()
    watched = guard(store, SimClock())
    task = asyncio.create_task(watched.run())
    await asyncio.sleep(10)
    store.outage(200)
    with capture_logs() as lines:
        await asyncio.sleep(200)
        assert watched.trusted
        assert lines
        assert {line["event"] for line in lines} == {"clock not compared with the store's"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS, 70_000])
@pytest.mark.parametrize("at", ["create", "head", "delete"])
@on_virtual_time
async def test_a_clock_that_jumps_while_it_is_compared_is_not_trusted(at: str, by_ms: int) -> None:
    store, clock = SimStore(), SimClock()
    watched = ClockGuard(Jumping(store, clock, at=at, by_ms=by_ms), clock, SimRng(1), node_id=NodeId(7))
    await watched.check()
    assert (watched.trusted, watched.trusted_now_ms()) == (False, None)
    assert abs(watched.now_ms() - SimClock().now_ms()) <= 2_000, "the store has told the time"
    clock.skew_ms = 0
    assert watched.trusted
    assert store.keys() == []


@pytest.mark.parametrize("at", ["create", "head"])
@on_virtual_time
async def test_a_clock_that_is_set_right_while_it_is_compared_is_trusted_once_it_was_compared_again(at: str) -> None:
    clock = SimClock()
    watched = ClockGuard(
        Jumping(SimStore(), clock, at=at, by_ms=DAY_MS, back=True), clock, SimRng(1), node_id=NodeId(7)
    )
    await watched.check()
    assert watched.trusted_now_ms() == SimClock().now_ms()


@on_virtual_time
async def test_a_clock_that_jumps_in_each_comparison_leaves_the_verdict_as_it_was() -> None:
    clock = SimClock()
    store = Jumping(SimStore(), clock, at="create", by_ms=3_000)
    watched = ClockGuard(store, clock, SimRng(1), node_id=NodeId(7))
    store.jumps = 1_000
    with capture_logs() as lines:
        await watched.check()
    assert (watched.skew_ms, watched.trusted) == (None, False)
    assert "jumped meanwhile" in lines[0]["event"]


@on_virtual_time
async def test_a_create_of_a_minute_says_nothing_about_a_clock() -> None:
    clock = SimClock(skew_ms=-70_000)
    watched = ClockGuard(
        Jumping(SimStore(), clock, at="never", by_ms=0, slow_s=40), clock, SimRng(1), node_id=NodeId(7)
    )
    await watched.check()
    assert not watched.trusted


def test_the_skew_is_the_least_that_explains_the_time_of_the_object() -> None:
    now = EPOCH_MS
    assert skew_of(before_ms=now, after_ms=now + 10, modified_ms=now + 5) == 0
    assert skew_of(before_ms=now, after_ms=now + 10, modified_ms=now - 999) == 0  # rounded down to a second
    assert skew_of(before_ms=now, after_ms=now + 10, modified_ms=now - 1000) == -1
    assert skew_of(before_ms=now, after_ms=now + 10, modified_ms=now + 12) == 2
    assert skew_of(before_ms=now + 10, after_ms=now, modified_ms=now + 5) == 0  # our clock was set back meanwhile
