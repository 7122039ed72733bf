"""What lanes hand over to a partition of the base: whose batches are taken, and how far each lane got. Pure.

A batch is one of the turn whose producer id it has (docs/decisions/0052). Only what this owner's image says decides,
and once that has a turn close nothing more of it is taken: so how far it got then is how far it got.
"""

from bmq.errors import InvalidBatch, NotReady, TurnIsOver
from bmq.metadata.image import Image, Turn
from bmq.metadata.records import Whose
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader


def check_handed_over(image: Image, tp: TopicPartition, header: BatchHeader, *, is_handed_over: bool) -> None:
    """A batch that is handed over, or has a producer id of such. Raises InvalidBatch where a client uses one, or a
    lane another one; TurnIsOver; NotReady where this node has yet to hear of the turn.
    """
    if not is_handed_over:
        raise InvalidBatch(
            f"producer id {header.producer_id}: those from 2^62 on are of lanes; use one that the cluster gave"
        )
    turn = _turn(image, tp, header.producer_id)
    if turn.whose is not Whose.BASE:
        raise TurnIsOver(f"{tp} takes nothing more of the turn with producer id {header.producer_id}: it closes")
    if header.producer_epoch != 0:
        raise InvalidBatch(f"a batch of a lane's with producer epoch {header.producer_epoch}, and there is 0 alone")


def is_closing(image: Image, tp: TopicPartition, producer_id: int) -> bool:
    """Whether nothing more is taken of that turn, as this node has heard. Raises TurnIsOver, NotReady, InvalidBatch."""
    return _turn(image, tp, producer_id).whose is Whose.CLOSING


def _turn(image: Image, tp: TopicPartition, producer_id: int) -> Turn:
    place = image.turn_ids.get(producer_id)
    if place is None:
        if producer_id >= image.next_turn_id:
            raise NotReady(f"this node has not heard of the turn with producer id {producer_id} yet")
        raise TurnIsOver(f"the turn with producer id {producer_id} is over")
    turn = image.turns[place]
    if (turn.base_topic_id, place.partition) != tp:
        raise InvalidBatch(f"the turn with producer id {producer_id} is not of {tp}")
    return turn
