"""Under what a node lets the clients of lanes that fall back consume: leases of the leading controller, by topic.

Asked for when somebody consumes, all that are wanted in one call, and asked for anew while somebody goes on; what
nobody consumes any more lapses by itself. A lease counts from before it was asked for, so it is over here before the
leader takes it for over.
"""

import asyncio
from collections.abc import Collection
from itertools import islice
from typing import Final

import structlog

from bmq.errors import BmqError
from bmq.fairness.crowd import Crowd
from bmq.fairness.log_limit import RateLimited
from bmq.roles.controller import Metadata
from bmq.roles.lane_turns import LaneControl
from bmq.storage.durable import cancelled
from bmq.values import TopicId

TOPICS_AT_ONCE: Final = 1_000
ASKED_AGAIN_S: Final = 0.25
"""After a call that failed."""
COMPLAIN_EVERY_S: Final = 10.0
_KEPT_FROM: Final = 1_000

_log = structlog.get_logger("bmq.lanes")


class LaneLeases:
    """One node's, or one role's of it."""

    def __init__(self, control: LaneControl, metadata: Metadata) -> None:
        self._control = control
        self._metadata = metadata
        self._until_s: dict[TopicId, float] = {}
        self._renewed_s: dict[TopicId, float] = {}
        self._wanted: dict[TopicId, None] = {}
        self._waiting = Crowd()
        self._asking: asyncio.Task[None] | None = None
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._looked_through_at = _KEPT_FROM
        self._is_closed = False

    def holds(self, topic_id: TopicId) -> bool:
        """Whether this node may let the topic be consumed now, where its image says that the turn is the lane's."""
        return self._until_s.get(topic_id, float("-inf")) > asyncio.get_running_loop().time()

    async def hold(self, topic_ids: Collection[TopicId], until_s: float) -> bool:
        """Somebody consumes these topics: whether there is a lease for each, which is waited for until then."""
        loop = asyncio.get_running_loop()
        while True:
            self._want(topic_ids)
            if all(map(self.holds, topic_ids)):
                return True
            left_s = until_s - loop.time()
            if left_s <= 0 or self._is_closed:
                return False
            try:
                async with asyncio.timeout(left_s):
                    await self._waiting.wait()
            except TimeoutError:
                return False

    async def close(self) -> None:
        """Asks for none any more."""
        self._is_closed = True
        if self._asking is not None:
            await cancelled([self._asking])
        self._waiting.wake()

    def _want(self, topic_ids: Collection[TopicId]) -> None:
        now_s = asyncio.get_running_loop().time()
        for topic_id in topic_ids:
            if self._renewed_s.get(topic_id, float("-inf")) <= now_s:
                self._wanted[topic_id] = None
        self._begin()

    def _begin(self) -> None:
        if self._wanted and self._asking is None and not self._is_closed:
            self._asking = asyncio.get_running_loop().create_task(self._ask(), name="leases of lanes' topics")
            self._asking.add_done_callback(self._asked)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "leases of lanes", "exception": error})
        self._begin()  # what was wanted since it looked last

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted:
            topic_ids = list(islice(self._wanted, TOPICS_AT_ONCE))
            began_s = loop.time()
            try:
                lease = await self._control.consumed(topic_ids)
                await self._metadata.wait_for(lease.position)
            except BmqError as error:
                if (left_out := self._complaints.due("refused", now=loop.time())) is not None:
                    _log.warning("consumers in lanes wait for the controller", error=str(error), left_out=left_out)
                self._wanted.clear()
                self._waiting.wake()  # they look at their time, and who still waits wants it again
                await asyncio.sleep(ASKED_AGAIN_S)
                continue
            lease_s = lease.lease_ms / 1000
            for topic_id in topic_ids:
                self._until_s[topic_id] = began_s + lease_s
                self._renewed_s[topic_id] = began_s + lease_s / 3
                self._wanted.pop(topic_id, None)
            self._forget()
            self._waiting.wake()

    def _forget(self) -> None:
        if len(self._until_s) < self._looked_through_at:
            return
        self._until_s = {topic_id: until_s for topic_id, until_s in self._until_s.items() if self.holds(topic_id)}
        self._renewed_s = {topic_id: self._renewed_s[topic_id] for topic_id in self._until_s}
        self._looked_through_at = max(_KEPT_FROM, 2 * len(self._until_s))
