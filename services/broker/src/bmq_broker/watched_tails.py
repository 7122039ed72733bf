"""Tails as whoever follows them sees them: told of each change, read at once."""

from collections.abc import Callable

from bmq.fairness.waiters import Changed, Waiters
from bmq.roles.owner import TailAnswer, TailRequest
from bmq.values import TopicPartition


class WatchedTails:
    """Implements Tails: one follower's."""

    def __init__(self, waiters: Waiters, read: Callable[[TailRequest], TailAnswer], changed: Changed) -> None:
        self._waiters = waiters
        self._changed = changed
        self.read = read
        """Answers with what is there from memory, at once; the first batch comes whole."""

    def watch(self, tp: TopicPartition) -> None:
        """From now on the follower is told each time that something about the partition changed."""
        self._waiters.watch(tp, self._changed)

    def leave(self, tp: TopicPartition) -> None:
        """The follower is told of the partition no more."""
        self._waiters.leave(tp, self._changed)
