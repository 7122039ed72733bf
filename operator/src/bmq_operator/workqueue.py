"""Which resource is due when. Each is worked on by one worker at a time; what becomes due meanwhile is looked at once
more, however often.

Clusters go first. What refers to a Cluster waits for its admin API, so that one that does not answer could have all
workers: each Cluster has a share of those, and what refers to Clusters leaves some to Clusters themselves, as they do
to it. Among Clusters as among what refers to them namespaces take turns (`turns`): who may write in one can make, or
name, any number of Clusters.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bmq_operator.metrics import QUEUE_DEPTH
from bmq_operator.turns import Share, Turns

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0
WORKERS: Final = 8
GOES_FIRST: Final = "Cluster"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A resource."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(slots=True)
class _Entry:
    due_at_s: float = 0.0
    """Since when it is in the queue."""
    queued: bool = False
    running: bool = False
    again: bool = False
    failures: int = 0
    timer: asyncio.TimerHandle | None = field(default=None)
    share: Share = ("", "")
    """Where it is in the queue, or whose worker it has."""


def _of_its_namespace(key: Key) -> Share:
    return key.namespace, ""


def _answers(share: Share) -> bool:
    return False


class WorkQueue:
    """The queue. Bounded by the number of resources: each is in it once at most."""

    def __init__(
        self,
        *,
        workers: int = WORKERS,
        share_of: Callable[[Key], Share] = _of_its_namespace,
        silent: Callable[[Share], bool] = _answers,
    ) -> None:
        """`share_of`: of a resource that refers to a Cluster. `silent`: whether that does not answer; one worker at a
        time is enough to find out that it does."""
        self._loop = asyncio.get_running_loop()
        self._share_of = share_of
        self._entries: dict[Key, _Entry] = {}
        each_max = max(1, workers // 2)
        most = max(1, workers - workers // 4)
        self._clusters: Turns[Key] = Turns(most=most, each_max=each_max, silent=_answers)
        self._others: Turns[Key] = Turns(most=most, each_max=each_max, silent=silent)
        self._more = asyncio.Event()

    def __len__(self) -> int:
        return len(self._clusters) + len(self._others)

    def add(self, key: Key) -> None:
        """It is due now."""
        entry = self._entries.setdefault(key, _Entry())
        self._stop_timer(entry)
        if entry.running:
            entry.again = True
        elif not entry.queued:
            entry.queued = True
            entry.due_at_s = self._loop.time()
            entry.share = _of_its_namespace(key) if key.kind == GOES_FIRST else self._share_of(key)
            self._turns(key).add(key.namespace, entry.share, key)
            self._more.set()
            QUEUE_DEPTH.set(len(self))

    def add_after(self, key: Key, delay_s: float) -> None:
        """It is due in a while, unless it becomes due before: the sooner counts."""
        entry = self._entries.setdefault(key, _Entry())
        if entry.queued or entry.again:
            return
        at_s = self._loop.time() + delay_s
        if entry.timer is not None and entry.timer.when() <= at_s:
            return
        self._stop_timer(entry)
        entry.timer = self._loop.call_at(at_s, self.add, key)

    async def take(self) -> tuple[Key, float]:
        """The next one, and how long it waited, in seconds. `done`, `failed` or `forget` is to follow."""
        while (key := self._next()) is None:
            self._more.clear()
            await self._more.wait()
        QUEUE_DEPTH.set(len(self))
        entry = self._entries[key]
        entry.queued, entry.running = False, True
        return key, self._loop.time() - entry.due_at_s

    def _next(self) -> Key | None:
        found = self._clusters.take()
        return self._others.take() if found is None else found

    def _turns(self, key: Key) -> Turns[Key]:
        return self._clusters if key.kind == GOES_FIRST else self._others

    def done(self, key: Key, *, again_after_s: float | None = None) -> None:
        """It was looked at, and nothing failed."""
        entry = self._entries[key]
        entry.failures = 0
        self._release(key, entry)
        if again_after_s is not None:
            self.add_after(key, again_after_s)

    def failed(self, key: Key, *, jitter: float = 0.5) -> float:
        """It is looked at again later, each time twice as late; the delay in seconds. `jitter` is from [0, 1)."""
        entry = self._entries[key]
        entry.failures += 1
        delay_s: float = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(entry.failures - 1, 16)) * (0.75 + jitter / 2)
        self._release(key, entry)
        self.add_after(key, delay_s)
        return delay_s

    def failures(self, key: Key) -> int:
        """How many looks at it failed since the last one that did not."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.failures

    def forget(self, key: Key) -> None:
        """It is gone."""
        entry = self._entries[key]
        again = entry.again
        self._stop_timer(entry)
        self._give_back(key, entry)
        del self._entries[key]
        if again:
            self.add(key)

    def _release(self, key: Key, entry: _Entry) -> None:
        entry.running = False
        self._give_back(key, entry)
        if entry.again:
            entry.again = False
            self.add(key)

    def _give_back(self, key: Key, entry: _Entry) -> None:
        """Its worker; somebody may have waited for that."""
        self._turns(key).give_back(key.namespace, entry.share)
        self._more.set()

    def _stop_timer(self, entry: _Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
