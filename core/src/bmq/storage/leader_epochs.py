"""A partition's history of leader epochs: at which offset each epoch that wrote records began (KIP-101, KIP-320). Pure.

Used by the manifest for what is in segments and by the owner for what is in memory besides.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple


class EpochStart(NamedTuple):
    """The first record of `epoch` has `start_offset`."""

    epoch: int
    start_offset: int


EpochHistory = tuple[EpochStart, ...]
"""Both fields ascend strictly: an epoch that wrote nothing is left out."""


def with_epoch(history: EpochHistory, epoch: int, start_offset: int) -> EpochHistory:
    """The history once `epoch` begins at `start_offset`; unchanged where it is the newest already. Epochs never go back
    (an assertion).

    Epochs that would have begun at or above `start_offset` wrote nothing, and go.
    """
    if history and history[-1].epoch == epoch:
        return history
    assert not history or history[-1].epoch < epoch, f"leader epoch {epoch} follows {history[-1].epoch}"
    return (*(each for each in history if each.start_offset < start_offset), EpochStart(epoch, start_offset))


def cut_below(history: EpochHistory, log_start: int) -> EpochHistory:
    """The history without what ended at or below `log_start`; the epoch that it cuts begins there."""
    kept = bisect_right(history, log_start, key=_start_offset_of) - 1
    if kept < 0 or history[kept].start_offset == log_start:
        return history[max(kept, 0) :]
    return (EpochStart(history[kept].epoch, log_start), *history[kept + 1 :])


def epoch_end(history: EpochHistory, epoch: int, *, log_end: int) -> tuple[int, int]:
    """(largest epoch at or below `epoch`, the offset where it ends), as OffsetForLeaderEpoch answers; (-1, -1) for one
    above the newest.

    Below the oldest known epoch it is `epoch` itself, which ends where the oldest begins.
    """
    above = bisect_right(history, epoch, key=_epoch_of)
    if above == len(history):
        return (epoch, log_end) if history and history[-1].epoch == epoch else (-1, -1)
    found = history[above - 1].epoch if above else epoch
    return found, history[above].start_offset


def ascends(history: EpochHistory) -> bool:
    """Whether it is a history at all."""
    return all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(history))


def _epoch_of(each: EpochStart) -> int:
    return each.epoch


def _start_offset_of(each: EpochStart) -> int:
    return each.start_offset
