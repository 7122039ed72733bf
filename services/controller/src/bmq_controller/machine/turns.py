"""Whose turn what is in a partition of a lane's topic is: how one ends and the next begins (docs/decisions/0052). Pure.

What is decided here rests on who is there (`presence`) and on what owners and coordinators said; that they said it of
this turn is told by its generation.
"""

from collections.abc import Callable, Collection, Sequence

from bmq.errors import BmqError, InvalidRequest, TurnIsOver, UnknownTopic
from bmq.metadata.image import Image, Topic, Turn
from bmq.metadata.records import LaneTurned, Whose
from bmq.roles.lane_turns import NextTurn, Unconsumed
from bmq.values import TopicId, TopicPartition
from bmq_controller.machine.decision import Decision

IsAbsent = Callable[[TopicId, Unconsumed], bool]
"""Whether nobody has consumed the topic since that was said of it, nor does now."""


def consumed(image: Image, topic_ids: Collection[TopicId]) -> Decision[None]:
    """Somebody in the lane consumes these topics: what is the base's is to end. Topics that are gone, or have nothing
    that could be the base's, are passed over.
    """
    records: list[LaneTurned] = []
    for topic_id in topic_ids:
        topic = image.topics.get(topic_id)
        if topic is None:
            continue
        for index in range(len(topic.partitions)):
            tp = TopicPartition(topic_id, index)
            turn = image.turn(tp)
            if turn.whose is Whose.BASE:
                records.append(
                    LaneTurned(
                        topic_id=topic_id,
                        partition=index,
                        generation=turn.generation + 1,
                        whose=Whose.CLOSING,
                        begin=turn.begin,
                        producer_id=turn.producer_id,
                        base_topic_id=turn.base_topic_id,
                    )
                )
    return Decision(None, tuple(records))


def turned(image: Image, wanted: Sequence[NextTurn], *, is_absent: IsAbsent) -> Decision[list[BmqError | None]]:
    """The next turn of each; for each in order None, or why it does not begin."""
    results: list[BmqError | None] = []
    records: list[LaneTurned] = []
    seen: set[TopicPartition] = set()
    next_id = image.next_turn_id
    for one in wanted:
        try:
            if one.tp in seen:
                raise InvalidRequest(f"{one.tp} is named twice")
            seen.add(one.tp)
            record = _next(image, one, is_absent=is_absent, producer_id=next_id)
        except BmqError as error:
            results.append(error)
            continue
        results.append(None)
        records.append(record)
        next_id += record.whose is Whose.BASE
    return Decision(results, tuple(records))


def _check_falls_back(image: Image, topic: Topic) -> None:
    if not image.falls_back(topic.name):
        raise InvalidRequest(f"what is in {topic.name[:80]!r} goes on to nobody: it is of no lane with a fallback")


def _next(image: Image, one: NextTurn, *, is_absent: IsAbsent, producer_id: int) -> LaneTurned:
    topic = image.topics.get(one.tp.topic_id)
    if topic is None or not 0 <= one.tp.partition < len(topic.partitions):
        raise UnknownTopic(f"there is no partition {one.tp}")
    turn = image.turn(one.tp)
    if turn.generation != one.generation:
        raise TurnIsOver(f"turn {one.generation} of {one.tp} is over: there were {turn.generation} before this one")
    if one.whose is Whose.LANE:
        return _the_lanes(one, turn)
    if one.whose is not Whose.BASE or turn.whose is not Whose.LANE:
        raise InvalidRequest(f"the turn of {one.tp} is the {turn.whose}'s: the {one.whose}'s does not follow")
    _check_falls_back(image, topic)
    base = image.goes_on_to(topic)
    if base is None or one.tp.partition >= len(base.partitions):
        raise UnknownTopic(f"what is in partition {one.tp.partition} of {topic.name!r} goes on to no partition")
    if one.since is None or not is_absent(one.tp.topic_id, one.since):
        raise TurnIsOver(f"somebody in the lane consumes {topic.name!r}, or did lately")
    return LaneTurned(
        topic_id=one.tp.topic_id,
        partition=one.tp.partition,
        generation=turn.generation + 1,
        whose=Whose.BASE,
        begin=max(turn.begin, one.begin),
        producer_id=producer_id,
        base_topic_id=base.topic_id,
    )


def _the_lanes(one: NextTurn, turn: Turn) -> LaneTurned:
    if turn.whose is not Whose.CLOSING:
        raise InvalidRequest(f"the turn of {one.tp} is the {turn.whose}'s: it does not close")
    if one.begin < turn.begin:
        raise InvalidRequest(f"the turn of {one.tp} that closes began at {turn.begin}, and cannot end at {one.begin}")
    return LaneTurned(
        topic_id=one.tp.topic_id,
        partition=one.tp.partition,
        generation=turn.generation + 1,
        whose=Whose.LANE,
        begin=one.begin,
    )
