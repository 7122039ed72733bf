"""The jobs' patience by a clock that only its pauses move, so that no test waits."""

from dataclasses import dataclass

from bmq_spark.patience import Patience

TRIES = 18
"""So often a question is asked within the jobs' patience, where each answer comes at once."""


@dataclass
class Moved:
    """A clock."""

    now_s: float = 1000.0

    def clock_s(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


def hurried(clock: Moved | None = None) -> Patience:
    clock = clock or Moved()
    return Patience(clock_s=clock.clock_s, sleep=clock.sleep)
