"""Who of lanes' topics has had a consumer lately, as far as this leader was told. Pure; times are seconds of its loop.

A leader that begins knows of nobody, and takes everybody for present from the first time that it is asked: so no turn
is given away before what an earlier one let people consume under is over.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from bmq.metadata.image import Image
from bmq.roles.lane_turns import Unconsumed
from bmq.values import TopicId

_LOOKED_THROUGH_FROM: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a leader knows of a topic's consumers, for who looks at it. `consumed_s_ago` None: it was told of none."""

    consumed_s_ago: float | None
    is_absent: bool
    """Whether nobody was there for so long that the next turn may be the base's."""


class Presence:
    """A leader's memory of it."""

    def __init__(self, epoch: int, *, grace_s: float) -> None:
        """`grace_s`: after so long without a word nobody is there any more."""
        self._epoch = epoch
        self._grace_s = grace_s
        self._told: dict[TopicId, tuple[int, float]] = {}
        """How often somebody was told to be there, and when last."""
        self._looked_through_at = _LOOKED_THROUGH_FROM

    def tell(self, topic_ids: Collection[TopicId], now_s: float) -> None:
        """Somebody consumes these topics."""
        for topic_id in topic_ids:
            count, _ = self._told.get(topic_id, (0, now_s))
            self._told[topic_id] = count + 1, now_s

    def unconsumed(self, topic_id: TopicId, now_s: float) -> Unconsumed | None:
        """What may be said later for that nobody came since; None: somebody is there, or may be."""
        count, last_s = self._told.setdefault(topic_id, (0, now_s))
        return Unconsumed(epoch=self._epoch, count=count) if now_s - last_s >= self._grace_s else None

    def is_absent(self, topic_id: TopicId, since: Unconsumed, now_s: float) -> bool:
        """Whether nobody has consumed it since that was said."""
        return self.unconsumed(topic_id, now_s) == since

    def seen(self, topic_id: TopicId, now_s: float) -> Seen:
        """As it is now; looking at it changes nothing."""
        count, last_s = self._told.get(topic_id, (0, now_s))
        return Seen(
            consumed_s_ago=now_s - last_s if count else None,
            is_absent=now_s - last_s >= self._grace_s,
        )

    def forget(self, image: Image) -> None:
        """Now and then lets go of topics that are not there any more."""
        if len(self._told) < self._looked_through_at:
            return
        self._told = {topic_id: told for topic_id, told in self._told.items() if topic_id in image.topics}
        self._looked_through_at = max(_LOOKED_THROUGH_FROM, 2 * len(self._told))
