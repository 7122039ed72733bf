"""Brokers while partitions are being given out: how full each is, and which comes next. Mutable; lives for one
decision.

Heaps with entries that may be out of date, so that a choice costs the logarithm of the number of brokers: an entry
counts only while it says what is true of its broker.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bmq.values import NodeId
from bmq_controller.machine.balance_zones import Spread


class Part(NamedTuple):
    """A partition that may move: its bytes per second first, so that sorting goes by it; the number of its topic in the
    plan; its own.
    """

    bytes_per_s: int
    topic: int
    partition: int


class Seat:
    """A broker: what it has, and which of it may move for the sake of balance."""

    __slots__ = ("_parts", "_sorted", "accepting", "bytes_per_s", "count", "draining", "node_id", "pool", "zone")

    def __init__(
        self,
        node_id: NodeId,
        *,
        zone: int,
        pool: str,
        accepting: bool = True,
        draining: bool = False,
        count: int = 0,
        bytes_per_s: int = 0,
    ) -> None:
        self.node_id = node_id
        self.zone = zone
        self.pool = pool
        self.accepting = accepting
        self.draining = draining
        self.count = count
        self.bytes_per_s = bytes_per_s
        self._parts: list[Part] = []
        self._sorted = True

    def offering(self) -> Callable[[Part], None]:
        """To be called with each partition of the broker that may move, before anything is asked of them."""
        self._sorted = False
        return self._parts.append

    @property
    def parts(self) -> list[Part]:
        """What may move, the quietest first. Not to be changed by the caller."""
        if not self._sorted:
            self._parts.sort()
            self._sorted = True
        return self._parts

    def offers(self, part: Part) -> bool:
        """Whether this partition may (still) move."""
        at = bisect_left(self.parts, part)
        return at < len(self.parts) and self.parts[at] == part

    def withdraw(self, part: Part) -> None:
        """This partition may not move any more."""
        parts = self.parts
        at = bisect_left(parts, part)
        assert parts[at] == part, "only what was offered can be withdrawn"
        parts.pop(at)

    def add(self, bytes_per_s: int) -> None:
        self.count += 1
        self.bytes_per_s += bytes_per_s

    def remove(self, bytes_per_s: int) -> None:
        assert self.count > 0, f"broker {self.node_id} has no partitions, and one fewer"
        self.count -= 1
        self.bytes_per_s -= bytes_per_s


class Ranking:
    """Brokers by a key that changes, the lowest first (and of equal ones the lowest id)."""

    def __init__(self, seats: Iterable[Seat], key: Callable[[Seat], float]) -> None:
        self._key = key
        self._dropped: set[NodeId] = set()
        self._heap = [(key(seat), seat.node_id, seat) for seat in seats]
        heapq.heapify(self._heap)

    def first(self) -> Seat | None:
        """None where all were dropped."""
        while self._heap:
            value, node_id, seat = self._heap[0]
            if node_id not in self._dropped and self._key(seat) == value:
                return seat
            heapq.heappop(self._heap)
        return None

    def changed(self, seat: Seat) -> None:
        """To be called for each broker that gave or got something."""
        if seat.node_id not in self._dropped:
            heapq.heappush(self._heap, (self._key(seat), seat.node_id, seat))

    def drop(self, seat: Seat) -> None:
        """It does not come again."""
        self._dropped.add(seat.node_id)


class Seats:
    """Gives each partition to the emptiest broker that takes any, in the zone where its topic wants it."""

    def __init__(self, seats: Iterable[Seat], *, mean_count: float, mean_bytes_per_s: float) -> None:
        """The means are what one broker will have in the end: a broker is as full as the sum of its two shares of
        them.
        """
        self._mean_count = max(1.0, mean_count)
        self._mean_bytes_per_s = mean_bytes_per_s
        zones: dict[int, list[Seat]] = {}
        for seat in seats:
            if seat.accepting:
                zones.setdefault(seat.zone, []).append(seat)
        self._rankings = {zone: Ranking(members, self._fill) for zone, members in zones.items()}
        self.zones = sorted(zones)
        """The zones that have a broker that takes partitions."""

    def pick(self, spread: Spread | None) -> Seat | None:
        """The broker that the next partition of a topic belongs on. None where no broker takes any. Nothing is counted
        yet.
        """
        return self._emptiest(self.zones if spread is None else spread.wanting(self.zones))

    def pick_in(self, zone: int) -> Seat | None:
        """The same within one zone."""
        return self._emptiest([zone] if zone in self._rankings else [])

    def changed(self, seat: Seat) -> None:
        """To be called for each broker of the pool that gave or got something."""
        if seat.accepting:
            self._rankings[seat.zone].changed(seat)

    def _emptiest(self, zones: Iterable[int]) -> Seat | None:
        found = [seat for zone in zones if (seat := self._rankings[zone].first()) is not None]
        return min(found, key=lambda seat: (self._fill(seat), seat.node_id), default=None)

    def _fill(self, seat: Seat) -> float:
        share = seat.count / self._mean_count
        return share + seat.bytes_per_s / self._mean_bytes_per_s if self._mean_bytes_per_s > 0 else share
