"""Whose turn it is to have a worker: namespaces take turns, and in each the shares that there are. Who may write in one
namespace can make any number of shares, and is one of those who take turns all the same. Knows no time.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

Share: TypeAlias = tuple[str, str]
"""Whose share of the workers a resource takes: namespace and name of the Cluster that it refers to."""
T = TypeVar("T")
Counted = TypeVar("Counted")


class Turns(Generic[T]):
    """What is due, and how many workers are at it: no more than `most` in all, `each_max` for one namespace, and for
    one share as many, or one where it is `silent`."""

    def __init__(self, *, most: int, each_max: int, silent: Callable[[Share], bool]) -> None:
        self._most, self._each_max, self._silent = most, each_max, silent
        self._ready: OrderedDict[str, OrderedDict[Share, deque[T]]] = OrderedDict()
        """By namespace and share; of both the one whose turn is next first."""
        self._due = 0
        """How many there are."""
        self._running: Counter[Share] = Counter()
        self._running_in: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._due

    def add(self, namespace: str, share: Share, one: T) -> None:
        """It is due."""
        self._ready.setdefault(namespace, OrderedDict()).setdefault(share, deque()).append(one)
        self._due += 1

    def take(self) -> T | None:
        """Whose turn it is, and has a worker until `give_back`; None: nobody's who has anything due may have another
        one."""
        if (found := self._next()) is None:
            return None
        namespace, share = found
        shares = self._ready.pop(namespace)
        due = shares.pop(share)
        one = due.popleft()
        if due:
            shares[share] = due  # behind the others
        if shares:
            self._ready[namespace] = shares
        self._due -= 1
        self._running[share] += 1
        self._running_in[namespace] += 1
        return one

    def give_back(self, namespace: str, share: Share) -> None:
        """Its worker."""
        _count_down(self._running, share)
        _count_down(self._running_in, namespace)

    def _next(self) -> tuple[str, Share] | None:
        if self._running_in.total() >= self._most:
            return None
        for namespace, shares in self._ready.items():
            if self._running_in[namespace] < self._each_max:
                for share in shares:
                    if self._running[share] < (1 if self._silent(share) else self._each_max):
                        return namespace, share
        return None


def _count_down(counter: Counter[Counted], one: Counted) -> None:
    counter[one] -= 1
    if not counter[one]:
        del counter[one]
