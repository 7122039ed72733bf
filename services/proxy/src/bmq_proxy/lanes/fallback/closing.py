"""Ends the base's turns that close: asks the owner of the base's partition how far it got, and has the lane's begin."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Final

import structlog

from bmq.errors import BmqError, NotReady
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Turn
from bmq.metadata.records import Whose
from bmq.roles.controller import Metadata
from bmq.roles.lane_turns import LaneControl, NextTurn
from bmq.roles.owner import Owner
from bmq.storage.durable import cancelled
from bmq.values import TopicId, TopicPartition

AT_ONCE: Final = 16
ROUND_MAX: Final = 64
"""Partitions that are asked for before what was found is told: whoever waits for one does not wait for all of a topic
with thousands."""
PATIENCE_S: Final = 5.0
ASKED_AGAIN_S: Final = 0.1
COMPLAIN_EVERY_S: Final = 10.0

_log = structlog.get_logger("bmq.lanes")


class _InTurn:
    """Partitions, one of each topic after the other: so a topic with thousands of them holds up no other one."""

    def __init__(self) -> None:
        self._topics: dict[TopicId, dict[TopicPartition, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def add(self, tp: TopicPartition) -> None:
        """Once, however often."""
        self._topics.setdefault(tp.topic_id, {})[tp] = None

    def take(self, count: int) -> list[TopicPartition]:
        """The next ones, at most so many."""
        taken: list[TopicPartition] = []
        while self._topics and len(taken) < count:
            topic_id, of_topic = next(iter(self._topics.items()))
            del self._topics[topic_id]
            tp = next(iter(of_topic))
            del of_topic[tp]
            taken.append(tp)
            if of_topic:
                self._topics[topic_id] = of_topic  # behind all others
        return taken


class Closings:
    """One proxy's."""

    def __init__(self, control: LaneControl, metadata: Metadata, owner_for: Callable[[TopicPartition], Owner]) -> None:
        self._control = control
        self._metadata = metadata
        self._owner_for = owner_for
        self._wanted = _InTurn()
        self._task: asyncio.Task[None] | None = None
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    def begin(self, tps: Collection[TopicPartition]) -> None:
        """Ends these, each as soon as it can be."""
        for tp in tps:
            self._wanted.add(tp)
        if self._wanted and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ends of the base's turns")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Ends what is under way; whoever consumes there next begins it anew."""
        if self._task is not None:
            await cancelled([self._task])

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "ends of turns", "exception": error})

    async def _run(self) -> None:
        while self._wanted:
            left = iter(self._wanted.take(ROUND_MAX))
            found: list[NextTurn] = []
            again: list[TopicPartition] = []
            await asyncio.gather(*(self._ask(left, found, again) for _ in range(AT_ONCE)))
            if found:
                try:
                    await self._control.turned(found)
                except BmqError as error:
                    self._complain(found[0].tp, error)
                    again += [one.tp for one in found]
            for tp in again:
                self._wanted.add(tp)
            if again:
                await asyncio.sleep(ASKED_AGAIN_S)

    async def _ask(self, left: Iterator[TopicPartition], found: list[NextTurn], again: list[TopicPartition]) -> None:
        for tp in left:
            turn = self._metadata.image.turn(tp)
            if turn.whose is not Whose.CLOSING:
                continue
            if (count := await self._how_far(tp, turn)) is None:
                again.append(tp)
            else:
                begin = turn.begin + count
                found.append(NextTurn(tp=tp, generation=turn.generation, whose=Whose.LANE, begin=begin))

    async def _how_far(self, tp: TopicPartition, turn: Turn) -> int | None:
        """How many messages the base has of the turn; None: nobody can say yet."""
        image = self._metadata.image
        base = None if turn.base_topic_id is None else image.topics.get(turn.base_topic_id)
        if base is None or tp.partition >= len(base.partitions):
            return 0  # the topic is deleted, with what it had
        base_tp = TopicPartition(base.topic_id, tp.partition)
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await self._owner_for(base_tp).handed_over(base_tp, turn.producer_id)
        except (BmqError, TimeoutError) as error:
            if not isinstance(error, NotReady):
                self._complain(tp, error)
            return None
        return found.count if found.is_final else None

    def _complain(self, tp: TopicPartition, error: BaseException) -> None:
        left_out = self._complaints.due("closing", now=asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning(
                "consumers in a lane wait for the base's partition to say how far it got",
                partition=str(tp),
                error=str(error) or "no answer in time",
                left_out=left_out,
            )
