"""What takes long is made once for all who ask meanwhile, and has a share of the time."""

import asyncio

import pytest

from bmq.fairness.made_for_all import REST_S_MAX, MadeForAll


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_asked_before_it_began_shares_it_and_who_asks_later_has_a_newer_one() -> None:
    async def test() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        begun: list[int] = []

        async def make() -> int:
            number = len(begun)
            begun.append(number)
            await gates[number].wait()
            return number

        one = MadeForAll(make, name="it", rest=0)
        first = [asyncio.ensure_future(one.get()) for _ in range(5)]
        await turns()
        assert begun == [0]
        later = [asyncio.ensure_future(one.get()) for _ in range(5)]
        await turns()
        assert begun == [0], "one at a time"
        first[0].cancel()
        gates[0].set()
        assert await asyncio.gather(*first[1:]) == [0] * 4, "who gives up takes it from nobody"
        await turns()
        assert begun == [0, 1]
        gates[1].set()
        assert await asyncio.gather(*later) == [1] * 5

    asyncio.run(test())


def test_what_fails_is_told_to_all_and_tried_anew() -> None:
    async def test() -> None:
        tries = 0

        async def make() -> str:
            nonlocal tries
            tries += 1
            await asyncio.sleep(0)
            if tries == 1:
                raise OSError("away")
            return "made"

        one = MadeForAll(make, name="it", rest=0)
        found = await asyncio.gather(one.get(), one.get(), return_exceptions=True)
        assert [str(error) for error in found] == ["away", "away"]
        assert await one.get() == "made"

    asyncio.run(test())


def test_it_rests_for_several_times_of_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        now_s, slept_s, fails = 100.0, list[float](), False
        loop = asyncio.get_running_loop()
        real = asyncio.sleep

        async def make() -> None:
            nonlocal now_s
            now_s += 2
            if fails:
                raise OSError("away")

        async def sleep(time_s: float) -> None:
            nonlocal now_s
            slept_s.append(time_s)
            now_s += time_s
            await real(0)

        one = MadeForAll(make, name="it", rest=4)
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: now_s)
            patched.setattr(asyncio, "sleep", sleep)
            await one.get()
            assert slept_s == []
            await one.get()
            assert slept_s == [REST_S_MAX], "and no longer"
            now_s += 100
            await one.get()
            assert slept_s == [REST_S_MAX]
            now_s, fails = now_s + 100, True
            for _ in range(2):
                with pytest.raises(OSError, match="away"):
                    await one.get()
            assert slept_s == [REST_S_MAX], "what failed has taken nothing from others"

    asyncio.run(test())
