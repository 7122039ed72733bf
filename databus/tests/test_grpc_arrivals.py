"""Requests that come: few at a time, and slow ones hold up nobody."""

import asyncio

import pytest
from tests.waiting import until_async

from bmq_databus.grpc import arrivals
from bmq_databus.grpc.arrivals import AT_ONCE, Arrivals
from bmq_databus.grpc.errors import TooSlow
from bmq_databus.requests.room import TooMuchAtOnce


async def never() -> bytes:
    await asyncio.Event().wait()
    return b""


async def at_once() -> bytes:
    return b"all of it"


def test_a_slow_one_has_its_time_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "WITHIN_S", 0.3)

    async def main() -> None:
        coming = Arrivals()
        slow = [asyncio.ensure_future(coming.whole(never, party=f"{n}")) for n in range(AT_ONCE)]
        found = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(one) for one in found} == {TooSlow}
        assert await coming.whole(at_once, party="other") == b"all of it"

    asyncio.run(main())


def test_slow_ones_give_way_where_others_wait_and_only_so_many() -> None:
    async def main() -> None:
        coming = Arrivals()
        slow = [asyncio.ensure_future(coming.whole(never, party="slow")) for _ in range(AT_ONCE)]
        await asyncio.sleep(0)
        assert await asyncio.gather(*(coming.whole(at_once, party=f"{n}") for n in range(3))) == [b"all of it"] * 3
        over = [one for one in slow if one.done()]
        assert 1 <= len(over) <= 3
        assert all(isinstance(one.exception(), TooMuchAtOnce) for one in over)
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())


def test_one_that_begins_while_others_wait_has_little_time_too() -> None:
    """However many slow ones come, whoever is not slow waits for a few of them."""

    async def main() -> None:
        coming = Arrivals()
        slow = [asyncio.ensure_future(coming.whole(never, party="slow")) for _ in range(20 * AT_ONCE)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(coming.whole(at_once, party="modest"), 5) == b"all of it"
        await until_async(lambda: all(one.done() for one in slow[:AT_ONCE]), "the first slow ones gave way")
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())


def test_who_leaves_gives_back_its_place() -> None:
    async def main() -> None:
        coming = Arrivals()
        for _ in range(3):
            slow = [asyncio.ensure_future(coming.whole(never, party="slow")) for _ in range(2 * AT_ONCE)]
            await asyncio.sleep(0)
            for one in slow:
                one.cancel()
            await asyncio.gather(*slow, return_exceptions=True)
        assert await coming.whole(at_once, party="other") == b"all of it"

    asyncio.run(main())
