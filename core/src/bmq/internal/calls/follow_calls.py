"""The headers of the calls that follow tails (docs/formats/internal-protocol.md). Pure."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final
from uuid import UUID

import msgspec

from bmq.errors import WireError
from bmq.internal.calls.owner_calls import Found, found_of, tail_answer
from bmq.internal.framing.frames import Frame, cut
from bmq.internal.framing.packing import Packed
from bmq.internal.framing.routes import Outgoing
from bmq.internal.limits import FOLLOWED_MAX
from bmq.roles.owner import TailAnswer
from bmq.values import Offset, TopicId, TopicPartition

KEPT_FRAME_BYTES: Final = 64 << 10
"""A frame of so many may be kept for whatever small part of it."""
COPIED_SHARE: Final = 8
"""From a larger one a batch is copied that is smaller than this share of it: who reads it may hold it for long, and
counts its own bytes alone."""

_Followed = msgspec.Meta(max_length=FOLLOWED_MAX)


class Follow(msgspec.Struct, frozen=True, array_like=True):
    """From `offset` on, which is within the tail or its end. `number` is what the client calls it from now on."""

    number: int
    topic_id: UUID
    partition: int
    offset: int

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(TopicId(self.topic_id), self.partition)


class ChangeCall(msgspec.Struct, frozen=True, array_like=True):
    """What is followed besides, and what no more. `changes_before`: how many of these calls this session has had; 0
    begins it anew.
    """

    changes_before: int
    follows: Annotated[list[Follow], _Followed]
    leaves: Annotated[list[int], _Followed]


class PollCall(msgspec.Struct, frozen=True, array_like=True):
    """Waits for news. `changes_before` as above: a session that lost some is not the client's any more."""

    changes_before: int
    max_bytes: int
    max_wait_ms: int


class News(msgspec.Struct, frozen=True, array_like=True):
    """What is new of one partition: what came behind what was told before, or facts that changed, or (error, or below
    the tail) the end of following it.
    """

    number: int
    found: Found


CHANGE_CALL: Final = Packed[ChangeCall](ChangeCall)
POLL_CALL: Final = Packed[PollCall](PollCall)
_NEWS: Final = Packed[list[News]](Annotated[list[News], _Followed])


def follow(number: int, tp: TopicPartition, offset: Offset) -> Follow:
    """One line of a ChangeCall."""
    return Follow(number, tp.topic_id, tp.partition, offset)


def encode_news(news: Sequence[tuple[int, TailAnswer]]) -> Outgoing:
    """The reply to a poll; batches are not copied."""
    found = [News(number, found_of(answer)) for number, answer in news]
    return Outgoing(_NEWS.encode(found), [batch for _, answer in news for batch in answer.batches])


def decode_news(frame: Frame, partition_of: Callable[[int], TopicPartition | None]) -> list[tuple[int, TailAnswer]]:
    """By number; of those that are not followed any more (None) nothing is told. Large batches are views of the frame.
    Raises WireError.
    """
    news = _NEWS.decode(frame.header)
    batches = cut(frame.attachments, [size_bytes for one in news for size_bytes in one.found.batch_bytes])
    whole = frame.attachments.nbytes
    if whole > KEPT_FRAME_BYTES:
        batches = [batch if batch.nbytes * COPIED_SHARE >= whole else memoryview(bytes(batch)) for batch in batches]
    told = []
    position = 0
    for one in news:
        count = len(one.found.batch_bytes)
        tp = partition_of(one.number)
        if tp is not None:
            told.append((one.number, tail_answer(tp, one.found, batches[position : position + count])))
        position += count
    if len({number for number, _ in told}) != len(told):
        raise WireError("news of one partition twice in one answer")
    return told
