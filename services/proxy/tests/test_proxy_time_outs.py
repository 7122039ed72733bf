"""Time-outs of many requests: each is told once at its time, or not at all; what is withdrawn is not kept."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_proxy.time_outs import WITHDRAWN_MAX, TimeOut, TimeOuts


class _Loop:
    """A loop whose time goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> Any:
        self._count += 1
        timer = (at_s, self._count, call)
        self.timers.append(timer)
        loop = self

        class Handle:
            def cancel(self) -> None:
                loop.timers.remove(timer)

        return Handle()

    def call_soon(self, call: Callable[[], None]) -> None:
        self.call_at(self.now_s, call)

    def until(self, at_s: float) -> None:
        while self.timers and min(self.timers)[0] <= at_s:
            timer = min(self.timers)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer[0])
            timer[2]()
        self.now_s = at_s


def _made() -> tuple[_Loop, TimeOuts]:
    loop = _Loop()
    return loop, TimeOuts(cast(asyncio.AbstractEventLoop, loop))


def held(time_outs: TimeOuts) -> int:
    """How many it has, withdrawn or not."""
    return sum(len(queue._times) for queue in time_outs._queues.values())


steps = st.lists(
    st.tuples(st.just("add"), st.sampled_from([0, 5, 20]))
    | st.tuples(st.just("cancel"), st.integers(0, 30))
    | st.tuples(st.just("pass"), st.sampled_from([0, 1, 5, 7, 30])),
    max_size=60,
)


@given(steps)
def test_each_is_told_once_at_its_time_unless_it_was_withdrawn(steps: list[tuple[str, int]]) -> None:
    loop, time_outs = _made()
    told: list[tuple[int, float]] = []
    due: dict[int, float] = {}
    made: list[TimeOut] = []
    wanted: list[tuple[int, float]] = []

    def passed(to_s: float) -> None:
        loop.until(to_s)
        for number, at_s in sorted(due.items(), key=lambda one: (one[1], one[0])):
            if at_s <= to_s:
                wanted.append((number, at_s))
                del due[number]

    for what, value in steps:
        if what == "add":
            number = len(made)
            due[number] = loop.now_s + value / 1000
            made.append(time_outs.add(value, lambda number=number: told.append((number, loop.now_s))))  # type: ignore[misc]
        elif what == "cancel" and value < len(made):
            made[value].cancel()
            due.pop(value, None)
        elif what == "pass":
            passed(loop.now_s + value / 1000)
        assert bool(loop.timers) == bool(due), "there is a timer while something is waited for"
    passed(1_000.0)
    assert sorted(told) == sorted(wanted)
    assert (held(time_outs), loop.timers) == (0, [])


def test_one_that_raises_takes_no_other_along_and_one_that_is_due_can_still_be_withdrawn() -> None:
    loop, time_outs = _made()
    told: list[str] = []

    def fails() -> None:
        told.append("fails")
        third.cancel()
        raise RuntimeError("a bug")

    time_outs.add(5, fails)
    time_outs.add(5, lambda: told.append("second"))
    third = time_outs.add(5, lambda: told.append("third"))
    with pytest.raises(RuntimeError, match="a bug"):
        loop.until(1.0)
    loop.until(2.0)
    assert (told, held(time_outs), loop.timers) == (["fails", "second"], 0, [])


def test_what_is_withdrawn_is_not_kept_behind_one_that_waits_long() -> None:
    loop, time_outs = _made()
    time_outs.add(30_000, lambda: None)
    for _ in range(10_000):
        time_outs.add(30_000, lambda: None).cancel()
    assert held(time_outs) <= 2 * WITHDRAWN_MAX + 2
    for length_ms in range(10_000):
        time_outs.add(length_ms, lambda: None).cancel()
    assert held(time_outs) <= 2 * WITHDRAWN_MAX + 2 and len(loop.timers) == 1
