"""How often clients and administrators may have one partition moved: each move ends what waits at its owner, and nobody
is to keep a partition on the way for ever. Pure.

What drains, balances or replaces brokers moves partitions by itself, and is not counted.
"""

from typing import Final

from bmq.errors import QuotaExceeded
from bmq.metadata.image import Image
from bmq.values import TopicPartition
from bmq_controller.machine.limits import Limits

_LOOKED_THROUGH_FROM: Final = 1_000


class AskedMoves:
    """A bucket of moves for each partition. A leader that begins knows of none; times are seconds of its loop."""

    def __init__(self, limits: Limits) -> None:
        self._burst = limits.moves_burst
        self._per_s = limits.moves_per_hour / 3_600
        self._left: dict[TopicPartition, tuple[float, float]] = {}
        """What a partition had left, and when."""
        self._looked_through_at = _LOOKED_THROUGH_FROM

    def take(self, tp: TopicPartition, now_s: float) -> None:
        """A move of the partition begins. Raises QuotaExceeded, with the time to wait; then nothing is taken."""
        left = self._now(tp, now_s)
        if left < 1:
            wait_s = (1 - left) / self._per_s
            raise QuotaExceeded(
                f"partition {tp} was moved partition_moves_burst = {self._burst} times lately, and may be again "
                f"partition_moves_per_hour = {self._per_s * 3_600:.0f} times: try again in {wait_s:.0f} s, or raise "
                "these limits on all controllers",
                wait_s=wait_s,
            )
        self._left[tp] = left - 1, now_s

    def forget(self, image: Image, now_s: float) -> None:
        """Now and then lets go of partitions that are not there any more, or have all of it again."""
        if len(self._left) < self._looked_through_at:
            return
        self._left = {
            tp: left
            for tp, left in self._left.items()
            if image.partition(tp) is not None and self._now(tp, now_s) < self._burst
        }
        self._looked_through_at = max(_LOOKED_THROUGH_FROM, 2 * len(self._left))

    def _now(self, tp: TopicPartition, now_s: float) -> float:
        known = self._left.get(tp)
        if known is None:
            return self._burst
        left, at_s = known
        return min(self._burst, left + (now_s - at_s) * self._per_s)
