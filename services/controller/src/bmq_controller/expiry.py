"""Deletes the lanes whose time to live is over, and counts their topics and turns: the leader's, as long as it leads.

A lane's age is told by wall clocks, so one that is doubtful deletes nothing: before a deletion this node's clock is
compared with the store's, and what is over is decided by what it shows afterwards, in the turn in which it is trusted.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.metadata.records import Whose
from bmq.naming.lanes import lane_of
from bmq_controller import metrics
from bmq_controller.machine.lanes import expired

LOOK_S: Final = 1.0
TURNS_TOLD_EVERY_S: Final = 5.0

_log = structlog.get_logger(__name__)


class LaneExpiry:
    """Looks once a second; costs a request to the store only where something is due."""

    def __init__(
        self,
        *,
        guard: ClockGuard,
        image: Callable[[], Image],
        delete: Callable[[], Awaitable[list[str]]],
    ) -> None:
        """`delete` commits the deletion of what is over by a time that is trusted when it decides, and says what that
        was.
        """
        self._guard = guard
        self._image = image
        self._delete = delete
        self._doubtful = False
        self._told = Image()
        self._turns_told = Image()
        self._turns_from_s = float("-inf")

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._tell()
            if self._image().lanes:
                await self.look()

    async def _tell(self) -> None:
        """How many topics each lane has, and whose turn it is of their partitions. A look at all names and turns, where
        they have changed.
        """
        image, told = self._image(), self._told
        if image.topic_ids is not told.topic_ids or image.lanes is not told.lanes:
            for gone in told.lanes.keys() - image.lanes.keys():
                metrics.forget_lane(gone, list(Whose))
            self._told = image
            counts = Counter(map(lane_of, image.topic_ids)) if image.lanes else Counter()
            for name in image.lanes:
                metrics.LANE_TOPICS.labels(name).set(counts[name])
        await self._tell_turns(image)

    async def _tell_turns(self, image: Image) -> None:
        """Beside the loop, and seldom: there may be very many."""
        told, now_s = self._turns_told, asyncio.get_running_loop().time()
        falling = [name for name, lane in image.lanes.items() if lane.falls_back]
        is_told = image.turns is told.turns and image.topic_ids is told.topic_ids and image.lanes is told.lanes
        if is_told or not falling or now_s < self._turns_from_s:
            return
        self._turns_told, self._turns_from_s = image, now_s + TURNS_TOLD_EVERY_S
        whose = await asyncio.get_running_loop().run_in_executor(None, count_turns, image)
        for name in falling:
            if name in self._image().lanes:
                metrics.tell_turns(name, {turn.value: whose[name, turn] for turn in Whose})

    async def look(self) -> None:
        """Deletes what is over now, where the clock can be trusted."""
        try:
            if self._guard.skew_ms is None:
                await self._guard.check()  # so that a jump from now on is noticed, over a folder too
            if not expired(self._image(), self._guard.now_ms()) or await self.is_doubtful():
                return
            for name in await self._delete():
                _log.info("lane deleted: its time to live is over", lane=name)
        except BmqError as error:
            _log.warning("lanes whose time is over stay for now", error=str(error))

    async def is_doubtful(self) -> bool:
        """Whether this node's clock cannot be trusted, by a comparison with the store's made now. Raises StoreError."""
        await self._guard.check()
        doubtful = not self._guard.trusted
        if doubtful and not self._doubtful:
            _log.error(
                "clock is not trusted: no lane is deleted by time; set this machine's clock (NTP)",
                skew_ms=self._guard.skew_ms,
            )
        self._doubtful = doubtful
        return doubtful


def count_turns(image: Image) -> Counter[tuple[str, Whose]]:
    """How many partitions of each lane that falls back are whose turn. O(topics + turns)."""
    found: Counter[tuple[str, Whose]] = Counter()
    falling = {name for name, lane in image.lanes.items() if lane.falls_back}
    for stored, topic_id in image.topic_ids.items():
        if (lane := lane_of(stored)) in falling:
            found[lane, Whose.LANE] += len(image.topics[topic_id].partitions)
    by_topic = Counter((tp.topic_id, image.turns[tp].whose) for tp in image.turn_ids.values())
    for (topic_id, whose), count in by_topic.items():
        lane = lane_of(image.topics[topic_id].name)
        found[lane, Whose.LANE] -= count
        found[lane, whose] += count
    return found
