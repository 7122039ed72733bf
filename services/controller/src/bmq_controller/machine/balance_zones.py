"""How many of a topic's partitions each zone should have. Pure.

A zone's share is its part of the brokers, so spreading over zones and evening out brokers want the same. Each zone has
at least its share of a topic's partitions rounded down and at most rounded up: the loss of a zone costs a topic that
zone's share, and a client finds partitions in each zone. Of a topic with many partitions a quarter more or less is
allowed, which leaves room for evening out.
"""

from collections.abc import Iterable, Sequence

_SLACK_PARTS = 4


class Zones:
    """The zones of one pool of brokers, by their number in the order of their names."""

    def __init__(self, racks: Iterable[tuple[str, bool]]) -> None:
        """`racks` has an item for each broker: its rack, and whether it counts for its zone's share (a draining one
        does not).
        """
        brokers: dict[str, int] = {}
        for rack, counts in racks:
            brokers[rack] = brokers.get(rack, 0) + counts
        self.names = sorted(brokers)
        self._sizes = [brokers[name] for name in self.names]
        self._total = sum(self._sizes)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._limits: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, rack: str) -> int:
        return self._numbers[rack]

    def limits(self, partitions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The (fewest, most) of a topic's `partitions` that each zone should have."""
        found = self._limits.get(partitions)
        if found is None:
            floors, caps = [], []
            for size in self._sizes:
                floor, rest = divmod(partitions * size, self._total) if self._total else (0, 0)
                slack = floor // _SLACK_PARTS
                floors.append(floor - slack)
                caps.append(floor + (rest > 0) + slack)
            found = self._limits[partitions] = (tuple(floors), tuple(caps))
        return found

    def spread(self, partitions: int, zones: Iterable[int]) -> "Spread":
        """The spread of a topic of `partitions` partitions, of which one is in each of `zones` (which may name a zone
        more than once).
        """
        counts = [0] * len(self.names)
        for zone in zones:
            counts[zone] += 1
        return Spread(counts, *self.limits(partitions))


class Spread:
    """Over which zones a topic is spread. Lives for one decision and changes with it."""

    __slots__ = ("_caps", "_counts", "_floors")

    def __init__(self, counts: list[int], floors: tuple[int, ...], caps: tuple[int, ...]) -> None:
        self._counts = counts
        self._floors = floors
        self._caps = caps

    def count(self, zone: int) -> int:
        return self._counts[zone]

    def most(self, zone: int) -> int:
        return self._caps[zone]

    def fewest(self, zone: int) -> int:
        return self._floors[zone]

    def enter(self, zone: int) -> None:
        self._counts[zone] += 1

    def leave(self, zone: int) -> None:
        self._counts[zone] -= 1

    def allows(self, source: int, target: int) -> bool:
        """Whether a partition may move without making the spread worse."""
        return source == target or (
            self._counts[target] < self._caps[target] and self._counts[source] > self._floors[source]
        )

    def violation(self) -> int:
        """By how many partitions zones have more than the most or less than the fewest."""
        return violation(self._counts, self._floors, self._caps)

    def wanting(self, zones: Sequence[int]) -> Sequence[int]:
        """Those of `zones` into which the next partition belongs: below the fewest, or else below the most, or else
        any.
        """
        below = [zone for zone in zones if self._counts[zone] < self._floors[zone]]
        return below or [zone for zone in zones if self._counts[zone] < self._caps[zone]] or zones

    def moves(self) -> list[tuple[int, int]]:
        """(from, to) of the moves that would mend it, those that mend most first."""
        zones = range(len(self._counts))
        over = sorted(zones, key=lambda zone: (self._caps[zone] - self._counts[zone], zone))
        under = sorted(zones, key=lambda zone: (self._counts[zone] - self._floors[zone], zone))
        return [(source, target) for source in over for target in under if self._mends(source, target)]

    def _mends(self, source: int, target: int) -> bool:
        if not self.allows(source, target) or source == target:
            return False
        return self._counts[source] > self._caps[source] or self._counts[target] < self._floors[target]


def violation(counts: Sequence[int], floors: Sequence[int], caps: Sequence[int]) -> int:
    """By how many partitions the counts are above their caps or below their floors, all zones together."""
    found = 0
    for count, floor, cap in zip(counts, floors, caps, strict=True):
        if count > cap:
            found += count - cap
        elif count < floor:
            found += floor - count
    return found
