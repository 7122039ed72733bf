"""Offsets that groups commit in lanes that fall back to the base: only in the lane's turn, and not below its beginning.

The group's coordinator takes them under a lease of its own. So what it has is complete when somebody collects it for
the base's turn: whatever comes later waits until the leader has heard of it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from bmq.metadata.records import Whose
from bmq.roles.controller import Metadata
from bmq.roles.lane_leases import LaneLeases
from bmq.values import TopicId, TopicPartition
from bmq_broker.coordinators.groups.requests import NewOffset, Refusal

PATIENCE_S: Final = 5.0
"""So long a commit waits for the lane's turn; then the client is told to try again."""


class LaneCommits:
    """One broker's."""

    def __init__(self, metadata: Metadata, leases: LaneLeases) -> None:
        self._metadata = metadata
        self._leases = leases

    async def wait(self, topic_ids: Iterable[TopicId]) -> None:
        """Until offsets of these topics may be committed, or patience is over."""
        image = self._metadata.image
        if not image.lanes:
            return
        falling = {one for one in topic_ids if (topic := image.topics.get(one)) and image.falls_back(topic.name)}
        if falling:
            await self._leases.hold(falling, asyncio.get_running_loop().time() + PATIENCE_S)

    def refusal(self, new: NewOffset, *, had: Callable[[], int], is_member: bool) -> Refusal | None:
        """Why the offset cannot be taken now; None: it can. `had`: what the group has committed, -1: nothing; asked for
        in lanes that fall back alone.

        At the beginning itself a member commits that it has yet to read anything: while its group has members the turn
        stays the lane's. Of a consumer without membership it may as well be what it read in an earlier turn.
        """
        if new.topic_id is None or not self._falls_back(new.topic_id):
            return None
        turn = self._metadata.image.turn(TopicPartition(new.topic_id, new.partition))
        if turn.whose is not Whose.LANE or not self._leases.holds(new.topic_id):
            return Refusal.NOT_THE_LANES_TURN
        is_over = new.offset == turn.begin and turn.begin > 0 and not is_member and had() < turn.begin
        return Refusal.ILLEGAL_GENERATION if is_over or new.offset < turn.begin else None

    def begin(self, topic_id: TopicId, partition: int) -> int:
        """Where a group begins at least, whatever it has committed; -1: where it likes to."""
        if not self._falls_back(topic_id):
            return -1
        return self._metadata.image.turn(TopicPartition(topic_id, partition)).begin

    def _falls_back(self, topic_id: TopicId) -> bool:
        image = self._metadata.image
        topic = image.topics.get(topic_id) if image.lanes else None
        return topic is not None and image.falls_back(topic.name)
