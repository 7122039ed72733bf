"""What has waited for too long, of much that waits equally long: one timer of the loop for all of it."""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from itertools import takewhile
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Overdue(Generic[T]):
    """Items by when they came, the first ones first."""

    def __init__(self, after_s: float | None, tell: Callable[[list[T]], None]) -> None:
        """`tell` gets those that have waited for `after_s` (None: none ever has), which do not wait any more."""
        self._after_s = after_s
        self._tell = tell
        self._since_s: dict[T, float] = {}
        self._timer: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def __iter__(self) -> Iterator[T]:
        return iter(self._since_s)

    def add(self, item: T) -> None:
        """It waits from now on, or still."""
        self._since_s.setdefault(item, asyncio.get_running_loop().time())
        self._arm()

    def discard(self, item: T) -> None:
        """It waits no more."""
        self._since_s.pop(item, None)

    def clear(self) -> list[T]:
        """Nothing waits any more; what did."""
        waited, self._since_s = list(self._since_s), {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waited

    def _arm(self) -> None:
        if self._timer is None and self._after_s is not None and self._since_s:
            since_s = next(iter(self._since_s.values()))
            self._timer = asyncio.get_running_loop().call_at(since_s + self._after_s, self._look)

    def _look(self) -> None:
        self._timer = None
        after_s, now_s = self._after_s, asyncio.get_running_loop().time()
        assert after_s is not None
        # By the very sum that the timer was set to: a difference may be rounded to just before it, for ever.
        late = [item for item, _ in takewhile(lambda one: one[1] + after_s <= now_s, self._since_s.items())]
        for item in late:
            del self._since_s[item]
        self._arm()
        self._tell(late)
