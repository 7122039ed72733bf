"""Deletes the lanes whose time to live is over, and counts their topics: the leader's, for as long as it leads.

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
from bmq.naming.lanes import lane_of
from bmq_controller import metrics
from bmq_controller.machine.lanes import expired

LOOK_S: Final = 1.0

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

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._tell()
            if self._image().lanes:
                await self.look()

    def _tell(self) -> None:
        """How many topics each lane has. A look at all names, where they have changed."""
        image = self._image()
        if image.topic_ids is self._told.topic_ids and image.lanes is self._told.lanes:
            return
        for gone in self._told.lanes.keys() - image.lanes.keys():
            metrics.LANE_TOPICS.remove(gone)
        self._told = image
        if image.lanes:
            counts = Counter(map(lane_of, image.topic_ids))
            for name in image.lanes:
                metrics.LANE_TOPICS.labels(name).set(counts[name])

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
