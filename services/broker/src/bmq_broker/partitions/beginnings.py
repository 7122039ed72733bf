"""Batches of idempotent producers of which what precedes them is not there: in Kafka they are refused for good, or
taken at once where nobody knows the producer, as it may have been forgotten. Where batches are parted among lanes
(docs/decisions/0057), what is missing may be on its way by another proxy, and parts of it with a lane: so they wait for
it. Pure.
"""

from typing import Any, Final, NamedTuple

from bmq.errors import NotYetNext
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader
from bmq_broker.partitions.producers import SEQUENCES

PATIENCE_S: Final = 20.0
"""Most of what a proxy takes to write to a lane that is not ready, or a client to send again what was refused. A
producer that was forgotten, after days of silence, waits for it once."""
ASKED_S: Final = 60.0
"""Twice what a proxy tries for: then its client asks again."""
AWAY_S: Final = 10.0
"""Who has not come for so long waits no more."""
REMEMBERED_MAX: Final = 10_000
"""So many producers are remembered of each kind. Beyond it the next ones are answered as Kafka answers: whoever fills
this keeps nobody waiting for ever."""


class _Asked(NamedTuple):
    epoch: int
    sequence: int
    at_s: float


class _Waiting(NamedTuple):
    """`sequence` is the first of those that wait, `since_s` when one of them first came."""

    epoch: int
    sequence: int
    since_s: float
    at_s: float


class Beginnings:
    """One broker's."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[TopicPartition, int], _Waiting] = {}
        """By partition and producer; those first that have not come for longest."""
        self._asked: dict[tuple[TopicPartition, int], _Asked] = {}
        """What its proxy was told is the first one; its parts may be on their way to lanes."""

    def asked(self, tp: TopicPartition, header: BatchHeader, *, now_s: float) -> None:
        """A proxy was told that this batch is the next one, of a producer that is not known."""
        asked = _Asked(header.producer_epoch, header.base_sequence, now_s)
        _remember(self._asked, (tp, header.producer_id), asked, over_s=now_s - ASKED_S)

    def check(self, tp: TopicPartition, header: BatchHeader, *, is_known: bool, now_s: float) -> None:
        """What precedes a batch is not there. Raises NotYetNext until it has waited, behind what is numbered below it
        and waits too, and where another one was asked for of a producer that is not known.
        """
        key = tp, header.producer_id
        epoch, sequence = header.producer_epoch, header.base_sequence
        what = f"{tp}: sequence {sequence} of producer {header.producer_id}"
        asked = None if is_known else self._asked.get(key)
        if asked is not None and asked.epoch == epoch and now_s - asked.at_s < ASKED_S:
            if asked.sequence == sequence:
                return
            raise NotYetNext(f"{what}: {asked.sequence} is on its way, and is to come first")
        waits = self._waiting.get(key)
        if waits is None or waits.epoch != epoch or now_s - waits.at_s > AWAY_S:
            waits = _Waiting(epoch, sequence, now_s, now_s)
        elif (sequence - waits.sequence) % SEQUENCES > SEQUENCES // 2:
            waits = _Waiting(epoch, sequence, waits.since_s, now_s)
        elif sequence != waits.sequence:
            raise NotYetNext(f"{what}: {waits.sequence} waits, and is to come first")
        is_there = _remember(self._waiting, key, waits._replace(at_s=now_s), over_s=now_s - AWAY_S)
        if is_there and now_s - waits.since_s < PATIENCE_S:
            raise NotYetNext(f"{what}: what precedes it is not here, and may be on its way: send it again")


def _remember(remembered: dict[Any, Any], key: tuple[TopicPartition, int], one: Any, *, over_s: float) -> bool:
    """Whether there is room, once those are gone that are over."""
    is_new = remembered.pop(key, None) is None
    while len(remembered) >= REMEMBERED_MAX and remembered[first := next(iter(remembered))].at_s <= over_s:
        del remembered[first]
    if is_new and len(remembered) >= REMEMBERED_MAX:
        return False
    remembered[key] = one
    return True
