"""Gives the base the turn where nobody in a lane consumes any more: finds out what the lane's groups have committed,
and proposes that as the beginning. Where the lane is nested in another one, the turn is that one's, which gets a topic
of its own for what there is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import structlog

from bmq.errors import NotReady, OffsetOutOfRange
from bmq.fairness.grouping import in_groups
from bmq.metadata.image import Image, Lane, Topic
from bmq.metadata.records import Whose
from bmq.naming.lanes import lane_of, name_in_lane, stored_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.controller import Metadata
from bmq.roles.lane_turns import LaneControl, NextTurn, Unconsumed
from bmq.roles.owner import LANE_OFFSETS, Caller, Owner
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.fetch.answers import Read
from bmq_proxy.fetch.reader import FetchReader

TOPICS_AT_ONCE: Final = 100
COORDINATORS_AT_ONCE: Final = 8
PATIENCE_S: Final = 10.0

_log = structlog.get_logger("bmq.lanes")


MakeTopics = Callable[[Collection[str]], Awaitable[object]]
"""Makes topics of the lane's own that this one is nested in, by the names that its clients use, as a first write would:
as far as they can be had now."""


def may_go_on(image: Image, topic: Topic) -> list[TopicPartition]:
    """The partitions of a lane's topic of which it is the lane's turn, and that may go on: to the topic that there is,
    or to one that is made for them in the lane that this one is nested in.
    """
    target = image.goes_on_to(topic)
    if target is None and (lane := image.lanes.get(lane_of(topic.name))) is not None and lane.parent in image.lanes:
        target = image.beneath(lane, name_in_lane(topic.name))
    count = 0 if target is None else min(len(topic.partitions), len(target.partitions))
    tps = (TopicPartition(topic.topic_id, index) for index in range(count))
    return [tp for tp in tps if image.turn(tp).whose is Whose.LANE]


class IdleTopics:
    """One lane's."""

    def __init__(
        self,
        lane: Lane,
        *,
        control: LaneControl,
        metadata: Metadata,
        owner_for: Callable[[TopicPartition], Owner],
        reader: FetchReader,
        goes_on_at: Callable[[TopicPartition], int],
        make: MakeTopics,
    ) -> None:
        """`goes_on_at`: below it a partition has nothing that could go on."""
        self._lane = lane
        self._control = control
        self._metadata = metadata
        self._owner_for = owner_for
        self._reader = reader
        self._goes_on_at = goes_on_at
        self._make = make

    async def give_away(self, topics: Sequence[Topic]) -> None:
        """The turns of those of the lane's topics that nobody consumes. Raises BmqError, TimeoutError."""
        for some in in_groups(topics, TOPICS_AT_ONCE):
            since = await self._control.unconsumed([topic.topic_id for topic in some])
            idle = [(topic, one) for topic, one in zip(some, since, strict=True) if one is not None]
            image = self._metadata.image
            missing = [name_in_lane(topic.name) for topic, _ in idle if image.goes_on_to(topic) is None]
            if missing and self._lane.parent:  # of the base no lane makes a topic
                await self._make(missing)
                image = self._metadata.image
            # what nothing could be made for costs no question: it is looked at again
            if idle := [(topic, one) for topic, one in idle if image.goes_on_to(topic) is not None]:
                await self._propose(idle)

    async def _propose(self, idle: Sequence[tuple[Topic, Unconsumed]]) -> None:
        committed = await self._committed([topic for topic, _ in idle])
        image = self._metadata.image
        wanted = [
            (tp, since, committed[topic.name][tp.partition])
            for topic, since in idle
            if topic.name in committed
            for tp in may_go_on(image, topic)
        ]
        reads = [Read(tp=tp, offset=0, max_bytes=0) for tp, _, _ in wanted]
        turns = [
            NextTurn(
                tp=tp,
                generation=image.turn(tp).generation,
                whose=Whose.BASE,
                begin=max(offset, found.log_start, self._goes_on_at(tp)),
                since=since,
            )
            for (tp, since, offset), found in zip(wanted, await self._reader.ends(reads), strict=True)
            if found.error is None or isinstance(found.error, OffsetOutOfRange)  # where its beginning was deleted
        ]
        if turns:
            refused = await self._control.turned(turns)
            begun = sum(one is None for one in refused)
            if begun:
                _log.info("nobody in a lane consumes: its messages go on", lane=self._lane.name, partitions=begun)

    async def _committed(self, topics: Sequence[Topic]) -> dict[str, list[int]]:
        """What all groups of the lane have committed at most, by topic and partition, -1: nothing. Topics that members
        of a group consume are left out.
        """
        committed = {topic.name: [-1] * len(topic.partitions) for topic in topics}
        offsets = self._metadata.image.topic(CONSUMER_OFFSETS)
        left = iter(() if offsets is None else range(len(offsets.partitions)))
        asked = [{"name": topic.name, "topic_id": topic.topic_id} for topic in topics]

        async def ask() -> None:
            for index in left:
                assert offsets is not None
                for said in await self._said(TopicPartition(offsets.topic_id, index), asked):
                    if said["has_members"]:
                        committed.pop(said["name"], None)
                    for partition, offset in said["committed"]:
                        known = committed.get(said["name"], [])
                        if partition < len(known):
                            known[partition] = max(known[partition], offset)

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(ask() for _ in range(COORDINATORS_AT_ONCE)))
        return committed

    async def _said(self, tp: TopicPartition, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        request = Message(prefix=stored_group(self._lane.name, self._lane.number, ""), topics=asked)
        caller = Caller(client_id="", client_host="")
        answer = await self._owner_for(tp).group_call(tp.partition, LANE_OFFSETS, request, caller)
        fields = answer if isinstance(answer, dict) else vars(answer)
        if fields["error_code"] != ErrorCode.none:
            raise NotReady(f"coordinator {tp.partition} does not say what the groups of lane {self._lane.name} have")
        return [one if isinstance(one, dict) else vars(one) for one in fields["topics"]]
