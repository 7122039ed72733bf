"""What of a lane waits to go on to the base, and for how long that has been so without a break: for the metrics, which
are told in a thread, so that sums are kept and nothing is looked through there. Pure.
"""

from collections.abc import Callable, Collection

from bmq.values import TopicPartition


class LaneWaits:
    """One lane's, as the proxy that looks after it knows."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._behind: dict[TopicPartition, tuple[int, float]] = {}
        """How many messages wait, and since when there were some, or it was not known."""
        self._records = 0
        self._oldest_s: float | None = None
        self._untold_s: float | None = None
        """Since when nobody says whether somebody in the lane consumes."""

    def records(self) -> int:
        """How many messages were seen to wait."""
        return self._records

    def seconds(self) -> float:
        """For how long there were always some, or nobody said whether there are; 0: it is known that none wait."""
        began = [at_s for at_s in (self._oldest_s, self._untold_s) if at_s is not None]
        return max(0.0, self._now_s() - min(began)) if began else 0.0

    def found(self, tp: TopicPartition, records: int) -> None:
        """So many wait there."""
        if records > 0:
            self._set(tp, records)
        elif (before := self._behind.pop(tp, None)) is not None:
            self._records -= before[0]

    def unknown(self, tp: TopicPartition) -> None:
        """It cannot be told how many wait there: as many as before, as far as is known."""
        self._set(tp, self._behind.get(tp, (0, 0.0))[0])

    def keep(self, tps: Collection[TopicPartition]) -> None:
        """It is the base's turn in these alone."""
        left = set(tps)
        self._behind = {tp: behind for tp, behind in self._behind.items() if tp in left}
        self._records = sum(records for records, _ in self._behind.values())
        self.settle()

    def settle(self) -> None:
        """Once all partitions were looked at: since when the first of those waits that still do."""
        self._oldest_s = min((since_s for _, since_s in self._behind.values()), default=None)

    def looked(self, *, is_told: bool) -> None:
        """Whether it could be told if somebody in the lane consumes."""
        if is_told:
            self._untold_s = None
        elif self._untold_s is None:
            self._untold_s = self._now_s()

    def _set(self, tp: TopicPartition, records: int) -> None:
        before, since_s = self._behind.get(tp, (0, self._now_s()))
        self._behind[tp] = records, since_s
        self._records += records - before
        if self._oldest_s is None:
            self._oldest_s = since_s
