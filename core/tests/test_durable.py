"""create_once and hedging, on a store whose every reply is scripted."""

import asyncio
from collections.abc import Iterator

import pytest
from scripted_store import ScriptedStore, SeededRng, run

from bmq.errors import Conflict, NotApplied, StoreUnavailable, UnknownOutcome
from bmq.storage.durable import Backoff, LatencyWindow, TroubleLog, create_once, together, when_available
from bmq.storage.envelope import encode_envelope
from bmq.values import Nonce

KEY = "some/key"
OURS = Nonce(b"o" * 16)
THEIRS = Nonce(b"t" * 16)


def object_of(nonce: Nonce) -> bytes:
    return encode_envelope(magic=b"bmqL", version=1, nonce=nonce) + b"rest"


async def create(
    store: ScriptedStore, *, latency: LatencyWindow | None = None, deadline_s: float | None = None
) -> None:
    await create_once(
        store, KEY, [object_of(OURS)], nonce=OURS, rng=SeededRng(), latency=latency, deadline_s=deadline_s
    )


def failing(*errors: type[Exception] | None) -> ScriptedStore:
    """The first creates fail like this, without being applied."""
    store = ScriptedStore()
    left: Iterator[type[Exception] | None] = iter(errors)

    async def script(key: str) -> None:
        if (error := next(left, None)) is not None:
            raise error(key)

    store.script = script
    return store


def losing_replies(count: int) -> ScriptedStore:
    """The first creates are applied, but nobody hears of it."""
    store = ScriptedStore()
    left = iter(range(count))

    async def after(key: str) -> None:
        if next(left, None) is not None:
            raise UnknownOutcome(key)

    store.after = after
    return store


def test_a_create_that_was_not_applied_is_sent_until_it_is() -> None:
    store = failing(*[NotApplied] * 40)
    run(create(store))
    assert len(store.done("send")) == 41
    assert store.objects[KEY] == object_of(OURS)


def test_a_lost_reply_is_settled_by_the_own_nonce() -> None:
    store = losing_replies(1)
    run(create(store))
    assert store.log == [("send", KEY), ("create", KEY), ("send", KEY), ("conflict", KEY)]


def test_the_third_unknown_outcome_is_raised() -> None:
    store = failing(*[UnknownOutcome] * 3)
    with pytest.raises(UnknownOutcome):
        run(create(store))
    assert len(store.done("send")) == 3


def test_not_applied_does_not_count_towards_the_three_unknown_outcomes() -> None:
    store = failing(UnknownOutcome, NotApplied, NotApplied, NotApplied, UnknownOutcome)
    run(create(store))
    assert KEY in store.objects


@pytest.mark.parametrize("theirs", [object_of(THEIRS), b"", b"not an object of bmq at all"])
def test_another_object_under_the_key_is_a_conflict(theirs: bytes) -> None:
    store = ScriptedStore(objects={KEY: theirs})
    with pytest.raises(Conflict):
        run(create(store))


def test_a_conflict_with_nothing_there_is_sent_again_three_times_at_most() -> None:
    store = failing(Conflict, Conflict)
    run(create(store))
    assert KEY in store.objects
    with pytest.raises(UnknownOutcome):
        run(create(failing(Conflict, Conflict, Conflict)))


def test_at_the_deadline_the_outcome_is_raised_and_unknown_wins_over_not_applied() -> None:
    async def until(store: ScriptedStore) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + 5
        try:
            await create(store, deadline_s=deadline_s)
        finally:
            assert loop.time() == deadline_s

    with pytest.raises(NotApplied):
        run(until(failing(*[NotApplied] * 100)))
    with pytest.raises(UnknownOutcome):
        run(until(failing(UnknownOutcome, *[NotApplied] * 100)))


def warm(seconds: float = 0.1) -> LatencyWindow:
    """The p95 is `seconds`, the median a quarter of it."""
    latency = LatencyWindow()
    for n in range(128):
        latency.record(seconds if n % 16 == 0 else seconds / 4)
    return latency


def test_where_creates_all_take_about_the_same_only_one_of_twice_the_median_is_hedged() -> None:
    latency = LatencyWindow()
    assert latency.hedge_after_s() is None
    for n in range(128):
        latency.record(0.1 if n % 16 == 0 else 0.09)
    assert latency.hedge_after_s() == pytest.approx(0.18)
    for _ in range(128):
        latency.record(0.001)
    assert latency.hedge_after_s() == pytest.approx(0.02)


def stalling(*delays_s: float) -> ScriptedStore:
    """The first creates take this long before they are applied."""
    store = ScriptedStore()
    left = iter(delays_s)

    async def script(key: str) -> None:
        await asyncio.sleep(next(left, 0.0))

    store.script = script
    return store


def test_a_slow_create_is_sent_a_second_time_and_the_first_success_wins() -> None:
    async def main() -> None:
        store = stalling(60.0, 0.01)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await create(store, latency=warm())
        assert loop.time() - began_s == pytest.approx(0.11)
        assert len(store.done("send")) == 2
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("create")]

    run(main())


def test_a_fast_create_is_sent_once_and_so_is_one_without_enough_history() -> None:
    store = stalling(0.05)
    run(create(store, latency=warm()))
    assert len(store.done("send")) == 1
    store = stalling(60.0)
    run(create(store, latency=LatencyWindow()))
    assert len(store.done("send")) == 1


def test_the_hedge_meets_the_first_ones_object_and_that_is_success() -> None:
    async def main() -> None:
        store = ScriptedStore()

        async def after(key: str) -> None:
            await asyncio.sleep(60)

        store.after = after  # applied at once, the reply comes late
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await create(store, latency=warm())
        assert store.log == [("send", KEY), ("create", KEY), ("send", KEY), ("conflict", KEY)]
        assert loop.time() - began_s < 1

    run(main())


def test_a_store_that_is_slow_for_all_is_not_sent_everything_twice() -> None:
    async def main() -> int:
        latency = warm(0.1)
        sends = 0
        for _ in range(100):
            store = stalling(1.0, 1.0)
            await create(store, latency=latency)
            sends += len(store.done("send"))
        return sends

    assert 100 < run(main()) < 125


def test_one_failure_of_a_hedged_create_waits_for_the_other() -> None:
    store = ScriptedStore()
    sent = iter([(0.5, None), (0.01, NotApplied)])

    async def script(key: str) -> None:
        delay_s, error = next(sent)
        await asyncio.sleep(delay_s)
        if error is not None:
            raise error(key)

    store.script = script
    run(create(store, latency=warm()))
    assert len(store.done("send")) == 2


def test_cancelling_a_hedged_create_leaves_no_task_behind() -> None:
    async def main() -> None:
        task = asyncio.get_running_loop().create_task(create(stalling(60.0, 60.0), latency=warm()))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_an_unavailable_store_is_waited_for() -> None:
    async def main() -> None:
        heard: list[str] = []
        left = iter(range(10))

        async def operation() -> str:
            if next(left, None) is not None:
                raise StoreUnavailable("down")
            return "here"

        assert (
            await when_available(operation, rng=SeededRng(), trouble=lambda error: heard.append(str(error))) == "here"
        )
        assert heard == ["down"] * 10

    run(main())


def test_waits_grow_to_two_seconds_and_no_further() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        backoff = Backoff(SeededRng())
        waits = []
        for _ in range(12):
            before_s = loop.time()
            await backoff.wait()
            waits.append(loop.time() - before_s)
        return waits

    waits = run(main())
    assert 0.025 <= waits[0] <= 0.05
    assert all(1.0 <= wait <= 2.0 for wait in waits[-5:])


def test_trouble_is_logged_at_most_once_in_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    class Down(StoreUnavailable):
        """Logged by no other test."""

    async def main() -> None:
        logs = [TroubleLog("create something"), TroubleLog("create something else")]
        for n in range(100):
            logs[n % 2](Down("down"))
            await asyncio.sleep(0.19)

    run(main())
    lines = [line for line in capsys.readouterr().out.splitlines() if "down" in line]
    assert len(lines) == 2
    assert "unsaid=52" in lines[1]


def test_the_first_failure_of_several_operations_ends_the_others() -> None:
    async def main() -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise StoreUnavailable("one of them")

        async def wait() -> None:
            await asyncio.sleep(3600)

        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(StoreUnavailable):
            await together([wait(), fail(), wait()])
        assert loop.time() - began_s == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
