"""Whether a lane's clients may consume now: the lane's turn, under a lease of this proxy's."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from bmq.metadata.image import Image
from bmq.metadata.records import Whose
from bmq.roles.controller import Metadata
from bmq.roles.lane_leases import LaneLeases
from bmq.values import TopicPartition

Nudge = Callable[[Collection[TopicPartition]], None]
"""Told of partitions whose turn closes while somebody waits for them."""


class LaneTurns:
    """One proxy's."""

    def __init__(self, metadata: Metadata, leases: LaneLeases, nudge: Nudge) -> None:
        self._metadata = metadata
        self._leases = leases
        self._nudge = nudge

    def begin(self, tp: TopicPartition) -> int | None:
        """Where the turn begins in which its clients may consume the partition now; None: they may not."""
        turn = self._metadata.image.turn(tp)
        return turn.begin if turn.whose is Whose.LANE and self._leases.holds(tp.topic_id) else None

    async def wait(self, tps: Sequence[TopicPartition], until_s: float) -> dict[TopicPartition, int]:
        """Where the turn begins of those that the lane's clients may consume; waits until it is one of them, or until
        then. The others are left out.
        """
        loop = asyncio.get_running_loop()
        topic_ids = {tp.topic_id for tp in tps}
        while True:
            changed: asyncio.Future[None] = loop.create_future()
            unsubscribe = self._metadata.subscribe(partial(_settle, changed))
            try:
                await self._leases.hold(topic_ids, until_s)
                image = self._metadata.image
                ready = {tp: begin for tp in tps if (begin := self.begin(tp)) is not None}
                left_s = until_s - loop.time()
                if ready or left_s <= 0:
                    return ready
                self._nudge([tp for tp in tps if image.turn(tp).whose is Whose.CLOSING])
                await asyncio.wait((changed,), timeout=left_s)
            finally:
                unsubscribe()


def _settle(changed: "asyncio.Future[None]", _old: Image, _new: Image) -> None:
    if not changed.done():
        changed.set_result(None)
