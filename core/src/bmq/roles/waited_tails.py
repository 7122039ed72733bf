"""What one who waits for more bytes of tails can still get."""

from collections.abc import Callable, Sequence

from bmq.fairness.waiters import Lacking
from bmq.roles.owner import TailAnswer, TailRequest
from bmq.wire.batch_headers import read_header


def lacking(
    requests: Sequence[TailRequest],
    answers: Sequence[TailAnswer],
    *,
    min_bytes: int,
    end: Callable[[TailAnswer], int] = lambda answer: answer.high_watermark,
) -> Lacking:
    """What they lack of `min_bytes`. A partition is full that has more than fits in the answers: that it grows brings
    nothing. `end`: up to where the answers are from, if they are not clipped.
    """
    full, size_bytes = [], 0
    for request, answer in zip(requests, answers, strict=True):
        size_bytes += answer.size_bytes + answer.unsent_bytes
        if answer.error is None and not answer.unsent_bytes and _read_to(request, answer) < end(answer):
            full.append(request.tp)
    return Lacking(min_bytes - size_bytes, full)


def _read_to(request: TailRequest, answer: TailAnswer) -> int:
    """The offset behind what was read."""
    return read_header(answer.batches[-1]).next_offset if answer.batches else request.offset
