"""Leases under which a node lets the clients of lanes consume."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from bmq.errors import BmqError, ControllerUnavailable
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.image import Image
from bmq.roles.lane_leases import LaneLeases
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.values import TopicId
from bmq_sim.loop import on_virtual_time

ONE, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))


class Control:
    """Gives leases of three seconds, after `takes_s`; refuses while `refuses`."""

    def __init__(self) -> None:
        self.asked: list[list[TopicId]] = []
        self.takes_s = 0.0
        self.refuses = False
        self.position = 0

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        self.asked.append(list(topic_ids))
        await asyncio.sleep(self.takes_s)
        if self.refuses:
            raise ControllerUnavailable("nobody leads")
        return LaneLease(lease_ms=3_000, position=self.position)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        raise NotImplementedError

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        raise NotImplementedError


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_lease_counts_from_before_it_was_asked_for_and_lapses_where_nobody_consumes() -> None:
    async def test() -> None:
        control, feed = Control(), MetadataFeed()
        control.takes_s = 0.5
        leases = LaneLeases(control, feed)
        assert not leases.holds(ONE)
        began_s = now_s()
        assert await leases.hold([ONE, OTHER], began_s + 5)
        assert control.asked == [[ONE, OTHER]], "one call for all that are wanted"
        await asyncio.sleep(began_s + 2.9 - now_s())
        assert leases.holds(ONE)
        await asyncio.sleep(began_s + 3.1 - now_s())
        assert not leases.holds(ONE), "three seconds after the call began, and not after its answer"
        assert len(control.asked) == 1
        await leases.close()

    on_virtual_time(test)()


def test_who_goes_on_has_it_renewed_before_it_is_over() -> None:
    async def test() -> None:
        control, feed = Control(), MetadataFeed()
        control.takes_s = 0.2
        leases = LaneLeases(control, feed)
        assert await leases.hold([ONE], now_s() + 5)
        for _ in range(40):
            await asyncio.sleep(0.5)
            assert await leases.hold([ONE], now_s()), "without waiting"
        assert 10 <= len(control.asked) <= 25
        await leases.close()

    on_virtual_time(test)()


def test_there_is_none_before_the_image_has_what_the_leader_had() -> None:
    async def test() -> None:
        control, feed = Control(), MetadataFeed()
        control.position = 7
        leases = LaneLeases(control, feed)
        assert not await leases.hold([ONE], now_s() + 1)
        feed.publish(Image(position=7))
        assert await leases.hold([ONE], now_s() + 1)
        await leases.close()

    on_virtual_time(test)()


def test_who_waits_while_nobody_leads_is_told_at_its_time_and_goes_on_once_somebody_does() -> None:
    async def test() -> None:
        control, feed = Control(), MetadataFeed()
        control.refuses = True
        leases = LaneLeases(control, feed)
        began_s = now_s()
        assert not await leases.hold([ONE], began_s + 2)
        assert now_s() - began_s == 2
        assert len(control.asked) < 12, "it is asked again with pauses"
        waiting = asyncio.get_running_loop().create_task(leases.hold([ONE], now_s() + 10))
        await asyncio.sleep(1)
        control.refuses = False
        assert await waiting
        assert now_s() - began_s < 4
        await leases.close()

    on_virtual_time(test)()
