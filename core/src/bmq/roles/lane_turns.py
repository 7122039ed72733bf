"""What proxies and coordinators ask of the controller about lanes whose messages go on to the base where nobody in the
lane consumes them (docs/decisions/0052).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bmq.errors import BmqError
from bmq.metadata.records import Whose
from bmq.values import TopicId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLease:
    """For so long from the call on its caller may let the lane's clients consume these topics, once its image covers
    `position` and wherever the turn is the lane's there.
    """

    lease_ms: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconsumed:
    """What a leader says of a topic that nobody has consumed lately. The same again: nobody came meanwhile."""

    epoch: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTurn:
    """The turn that is to follow the one of this `generation`.

    The lane's, after what closes: `begin` is how far the base got, as the owner of its partition says. The base's:
    `begin` is what the lane's groups have committed, collected after `since` was said.
    """

    tp: TopicPartition
    generation: int
    whose: Whose
    begin: int
    since: Unconsumed | None = None


class LaneControl(Protocol):
    """Each method raises ControllerUnavailable."""

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        """Somebody in a lane consumes these topics of its: the base's turns end."""

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        """For each topic, in order: what is to be said of it when its next turn is proposed; None: somebody consumes
        it.
        """

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        """Begins turns. For each, in order: None, or why it does not begin."""
