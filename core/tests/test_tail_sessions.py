"""What an owner keeps of one who follows its tails: a session is bounded, read in turns, and leaves nothing behind."""

import asyncio
import gc
from typing import Any

import pytest
from internal_logs import MIB, LogOwner
from internal_under_test import tp

from bmq.errors import NotOwner, NotReady
from bmq.internal.calls.follow_calls import ChangeCall, PollCall, follow
from bmq.internal.limits import FOLLOWED_LOOK_S, FOLLOWED_LOOKED_AT, FOLLOWED_UNPOLLED_S
from bmq.internal.tails.tail_session import TailSession
from bmq.values import Offset
from bmq_sim.loop import run


def test_a_session_whose_client_polls_no_more_ends_with_its_tasks() -> None:
    async def main() -> None:
        owner = LogOwner()
        tasks: list[asyncio.Task[Any]] = []
        session = TailSession(owner, tasks.append)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        assert await session.poll(PollCall(1, MIB, 1000)) != []  # the facts
        with pytest.raises(NotReady, match="begins anew"):
            session.poll(PollCall(2, MIB, 1000))
        await asyncio.sleep(2 * FOLLOWED_UNPOLLED_S)
        assert all(task.done() for task in tasks)
        # a client that was only stopped must not think that it still follows
        with pytest.raises(NotReady, match="begins anew"):
            session.poll(PollCall(1, MIB, 1000))
        with pytest.raises(NotReady, match="begins anew"):
            session.change(ChangeCall(7, [], []))

    run(main())


def test_a_change_of_thousands_is_read_in_turns_and_leaves_no_garbage_behind() -> None:
    """What has been followed is freed where it is left: a collection of all garbage stops everybody, the longer the
    more there is.
    """

    async def main() -> None:
        owner = LogOwner()
        owner.write(tp(7))
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(number, tp(number), Offset(0)) for number in range(2_000)], []))
        reads, most = owner.reads, 0
        while session._due:
            await asyncio.sleep(0)
            most, reads = max(most, owner.reads - reads), owner.reads
        assert owner.reads == 2_000
        assert most <= FOLLOWED_LOOKED_AT
        assert [number for number, answer in await session.poll(PollCall(1, MIB, 0)) if answer.batches] == [7]
        gc.collect()
        session.change(ChangeCall(1, [], list(range(2_000))))
        [tails] = owner.followers
        assert not tails.watched
        await asyncio.sleep(0)
        assert gc.collect() < 100

    run(main())


def test_what_is_to_be_told_of_partitions_that_are_not_here_is_bounded_and_gone_with_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        monkeypatch.setattr("bmq.internal.limits.FOLLOWED_MAX", 1_000)
        monkeypatch.setattr("bmq.internal.tails.tail_session.NEWS_AT_ONCE", 100)
        owner = LogOwner()
        for number in range(2_000):
            owner.log(tp(number)).error = NotOwner("it is not here")
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(number, tp(number), Offset(0)) for number in range(900)], []))
        await asyncio.sleep(1)
        with pytest.raises(NotReady, match="1000 partitions"):
            session.change(ChangeCall(1, [follow(number, tp(number), Offset(0)) for number in range(900, 1_100)], []))
        assert len(await session.poll(PollCall(2, MIB, 0))) == 100
        session.change(ChangeCall(2, [follow(number, tp(number), Offset(0)) for number in range(900, 1_000)], []))
        session.close()
        assert not session._ready

    run(main())


def test_a_partition_cannot_be_followed_twice() -> None:
    async def main() -> None:
        session = TailSession(LogOwner(), lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        with pytest.raises(NotReady, match="already"):
            session.change(ChangeCall(1, [follow(2, tp(0), Offset(0))], []))
        session.change(ChangeCall(0, [follow(2, tp(0), Offset(0))], []))
        session.close()

    run(main())


def test_an_incarnation_that_ends_ends_what_is_followed() -> None:
    """Whoever follows is told, and asks anew: nothing of the next incarnation would be heard here."""

    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        await asyncio.sleep(1)
        await session.poll(PollCall(1, MIB, 0))
        waiting = asyncio.ensure_future(session.poll(PollCall(1, MIB, 60_000)))
        await asyncio.sleep(1)
        owner.bug = NotReady("this broker has stopped, or starts again")
        owner.changed()
        await asyncio.sleep(1)
        assert await waiting == []
        with pytest.raises(NotReady, match="begins anew"):
            session.poll(PollCall(1, MIB, 0))
        session.change(ChangeCall(0, [follow(1, tp(0), Offset(0))], []))
        owner.write(tp(0))
        await asyncio.sleep(1)
        assert len(await session.poll(PollCall(1, MIB, 0))) == 1
        session.close()

    run(main())


def test_a_poll_that_comes_as_its_session_ends_is_refused_at_once() -> None:
    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(1, tp(1), Offset(0))], []))
        await asyncio.sleep(0.01)
        owner.bug = NotReady("this broker has stopped, or starts again")
        owner.changed()
        polling = asyncio.ensure_future(session.poll(PollCall(1, MIB, 60_000)))
        async with asyncio.timeout(0.5):
            with pytest.raises(NotReady):
                await polling

    run(main())


def test_what_went_into_segments_while_there_was_no_room_can_be_followed_anew() -> None:
    async def main() -> None:
        owner = LogOwner()
        session = TailSession(owner, lambda _: None)
        session.change(ChangeCall(0, [follow(n, tp(n), Offset(0)) for n in range(18)], []))
        await asyncio.sleep(2 * FOLLOWED_LOOK_S)
        await session.poll(PollCall(1, 100 * MIB, 0))
        for n in range(17):
            owner.write(tp(n), size_bytes=MIB)
        await asyncio.sleep(0.01)
        owner.write(tp(17))
        owner.log(tp(17)).tail_start = 1
        await asyncio.sleep(4 * FOLLOWED_LOOK_S)
        told: set[int] = set()
        while 17 not in told:
            told |= {number for number, _ in await session.poll(PollCall(1, 4 * MIB, 0))}
            await asyncio.sleep(0)
        session.change(ChangeCall(1, [follow(99, tp(17), Offset(1))], []))  # it was left where its follower was told so
        session.close()

    run(main())
