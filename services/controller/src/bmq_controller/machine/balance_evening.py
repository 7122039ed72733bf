"""Evening out brokers: first the bytes per second that they take, then the partitions that they own. Pure.

Why it ends, and never goes back and forth (docs/decisions/0009-balance.md): each move makes something smaller that no
later one makes larger. Moves for bytes shrink the distances of brokers from the band around the mean; moves for counts
leave no broker further outside it.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from bmq_controller.machine.balance_model import MoveKind
from bmq_controller.machine.balance_pools import Pool
from bmq_controller.machine.balance_seats import Part, Ranking, Seat

_EXCHANGES_TRIED_MAX = 16
"""For how many brokers of a pool and round it is tried to exchange partitions where a single move does not help: that
search is the costly one."""


class Evening(ABC):
    """Goes from the fullest broker down, and looks for each what the emptiest of each zone could take."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._seats = pool.accepting
        total = sum(seat.bytes_per_s for seat in self._seats)
        self._level = total / max(1, len(self._seats))
        self._scale = max(self._level, pool.round.settings.quiet_bytes_per_s)
        stop = pool.round.settings.stop.bytes * self._scale
        self._low, self._high = self._level - stop, self._level + stop
        """The band in which a broker's bytes per second are even enough."""
        zones: dict[int, list[Seat]] = {}
        for seat in self._seats:
            zones.setdefault(seat.zone, []).append(seat)
        self._givers = Ranking(self._seats, lambda seat: -self._fill(seat))
        self._takers = {zone: Ranking(seats, self._fill) for zone, seats in zones.items()}

    def run(self) -> None:
        """Plans moves until the pool is even, or nothing helps, or the round is full."""
        while self._pool.round.budget > 0:
            giver = self._givers.first()
            if giver is None:
                return
            takers = [taker for taker in self._emptiest() if taker is not giver and self._uneven(giver, taker)]
            if not takers:
                return
            self._pool.offer()
            if not self._help(giver, takers):
                self._givers.drop(giver)

    def _emptiest(self) -> list[Seat]:
        found = [seat for ranking in self._takers.values() if (seat := ranking.first()) is not None]
        return sorted(found, key=lambda seat: (self._fill(seat), seat.node_id))

    def _move(self, part: Part, source: Seat, target: Seat, kind: MoveKind, reason: str) -> None:
        self._pool.move(part, source, target, kind, reason)
        self._pool.active = self._pool.evened = True
        for seat in (source, target):
            self._givers.changed(seat)
            self._takers[seat.zone].changed(seat)

    @abstractmethod
    def _fill(self, seat: Seat) -> float:
        """What is evened out."""

    @abstractmethod
    def _uneven(self, giver: Seat, taker: Seat) -> bool:
        """Whether one of the two is further from the mean than it may be."""

    @abstractmethod
    def _help(self, giver: Seat, takers: Sequence[Seat]) -> bool:
        """Moves something from the giver to one of the takers. False: nothing of it helps, and it is not asked
        again.
        """


class EvenBytes(Evening):
    """Bytes per second."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._exchanges_left = _EXCHANGES_TRIED_MAX

    def _fill(self, seat: Seat) -> float:
        return seat.bytes_per_s

    def _uneven(self, giver: Seat, taker: Seat) -> bool:
        allowed = self._pool.thresholds.bytes * self._scale
        return giver.bytes_per_s > self._level + allowed or taker.bytes_per_s < self._level - allowed

    def _help(self, giver: Seat, takers: Sequence[Seat]) -> bool:
        for taker in takers:
            part = self._fitting(giver, taker)
            if part is not None:
                self._move(part, giver, taker, MoveKind.BYTES, self._reason(giver, taker))
                return True
        if self._exchanges_left > 0 and self._pool.round.budget > 1:
            if any(self._exchange(giver, taker) for taker in takers):
                return True
            self._exchanges_left -= 1
        if giver.bytes_per_s > self._level + self._pool.thresholds.bytes * self._scale:
            self._pool.stuck.append(giver)
        return False

    def _ceiling(self, giver: Seat) -> float:
        """What the taker has to stay below, so that the two are not as uneven the other way round, nor after a little
        noise.
        """
        return giver.bytes_per_s - self._pool.thresholds.margin * max(giver.bytes_per_s, self._scale)

    def _worth(self, giver: Seat) -> float:
        """The least that is worth a move: as many such partitions as the broker has would have to make a difference."""
        return self._pool.thresholds.margin * self._scale / max(1, giver.count)

    def _fitting(self, giver: Seat, taker: Seat) -> Part | None:
        """The busiest partition that leaves both within the band, or else the quietest that still makes them more
        even.
        """
        parts = giver.parts
        limit = self._ceiling(giver) - taker.bytes_per_s
        worth = self._worth(giver)
        fit = min(limit, giver.bytes_per_s - self._low, self._high - taker.bytes_per_s)
        cut = bisect_left(parts, (fit,))
        for at in range(cut - 1, -1, -1):
            if parts[at].bytes_per_s < worth:
                break
            if self._pool.allows(parts[at].topic, giver.zone, taker.zone):
                return parts[at]
        for at in range(cut, len(parts)):
            if parts[at].bytes_per_s >= limit:
                break
            if parts[at].bytes_per_s >= worth and self._pool.allows(parts[at].topic, giver.zone, taker.zone):
                return parts[at]
        return None

    def _exchange(self, giver: Seat, taker: Seat) -> bool:
        """Moves a partition to the taker and a quieter one back, where all that the giver has is too much, or may not
        leave its zone alone.
        """
        half = (giver.bytes_per_s - taker.bytes_per_s) / 2
        quietest: dict[int, tuple[Part, Seat] | None] = {}
        best: tuple[float, Part, Part, Seat] | None = None
        for part in reversed(giver.parts):
            if part.bytes_per_s < self._worth(giver):
                break
            if self._pool.allows(part.topic, giver.zone, taker.zone):
                found = self._nearest(part.bytes_per_s - half, taker, giver.zone)
            else:
                if part.topic not in quietest:
                    quietest[part.topic] = _quietest(self._pool, part.topic, taker.zone)
                found = quietest[part.topic]
            if found is None:
                continue
            off = abs(part.bytes_per_s - found[0].bytes_per_s - half)
            if (best is None or off < best[0]) and self._exchange_helps(giver, taker, part, *found):
                best = (off, part, *found)
        if best is None:
            return False
        _, part, back, owner = best
        reason = self._reason(giver, taker)
        self._move(part, giver, taker, MoveKind.BYTES, reason)
        self._move(
            back,
            owner,
            giver,
            MoveKind.BYTES,
            f"takes the place of partition {part.partition} of {self._topic(part)}: {reason}",
        )
        return True

    def _nearest(self, wanted: float, taker: Seat, zone: int) -> tuple[Part, Seat] | None:
        """The taker's partition that is nearest to so many bytes per second, of those that may go to the giver's
        zone.
        """
        parts = taker.parts
        at = bisect_left(parts, (wanted,))
        near = [part for part in parts[max(0, at - 1) : at + 1] if self._pool.allows(part.topic, taker.zone, zone)]
        return min(((part, taker) for part in near), key=lambda found: abs(found[0].bytes_per_s - wanted), default=None)

    def _exchange_helps(self, giver: Seat, taker: Seat, part: Part, back: Part, owner: Seat) -> bool:
        gain = part.bytes_per_s - back.bytes_per_s
        changes = {giver: -gain, taker: part.bytes_per_s}
        changes[owner] = changes.get(owner, 0) - back.bytes_per_s
        # A gain that is small beside what is exchanged may be noise.
        least = max(self._worth(giver), self._pool.thresholds.margin * part.bytes_per_s)
        if gain < least or taker.bytes_per_s + changes[taker] >= self._ceiling(giver):
            return False
        return (
            sum(
                self._outside(seat.bytes_per_s + change) - self._outside(seat.bytes_per_s)
                for seat, change in changes.items()
            )
            < 0
        )

    def _outside(self, bytes_per_s: float) -> float:
        """The square of the distance from the band."""
        return max(0.0, bytes_per_s - self._high, self._low - bytes_per_s) ** 2

    def _reason(self, giver: Seat, taker: Seat) -> str:
        return (
            f"broker {giver.node_id} takes {giver.bytes_per_s / self._scale:.0%} of the mean bytes per second, "
            f"broker {taker.node_id} {taker.bytes_per_s / self._scale:.0%}"
        )

    def _topic(self, part: Part) -> str:
        return self._pool.round.topics[part.topic].name


class EvenCounts(Evening):
    """Numbers of partitions. Moves the quietest, as far as the bytes per second stay within their band."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._mean = sum(seat.count for seat in self._seats) / max(1, len(self._seats))

    def _fill(self, seat: Seat) -> float:
        return seat.count

    def _uneven(self, giver: Seat, taker: Seat) -> bool:
        allowed = self._pool.thresholds.counts * self._mean
        outside = giver.count > self._mean + allowed or taker.count < self._mean - allowed
        return outside and giver.count - taker.count >= 2

    def _help(self, giver: Seat, takers: Sequence[Seat]) -> bool:
        for taker in takers:
            part = self._quietest(giver, taker)
            if part is not None:
                reason = f"broker {giver.node_id} owns {giver.count} partitions, broker {taker.node_id} {taker.count}"
                self._move(part, giver, taker, MoveKind.COUNT, reason)
                return True
        # A taker that is too busy already must not hide the others of its zone.
        busy = [taker for taker in takers if giver.parts and not self._fits(giver.parts[0], None, taker)]
        for taker in busy:
            self._takers[taker.zone].drop(taker)
        return bool(busy)

    def _quietest(self, giver: Seat, taker: Seat) -> Part | None:
        for part in giver.parts:
            if not self._fits(part, giver, taker):
                return None
            if self._pool.allows(part.topic, giver.zone, taker.zone):
                return part
        return None

    def _fits(self, part: Part, giver: Seat | None, taker: Seat) -> bool:
        """Whether both stay within the band for bytes; well within it as long as nothing is to be evened out."""
        if part.bytes_per_s == 0:
            return True
        spare = 0.0 if self._pool.active else (self._high - self._level) / 2
        if giver is not None and giver.bytes_per_s - part.bytes_per_s < self._low + spare:
            return False
        return taker.bytes_per_s + part.bytes_per_s <= self._high - spare


def _quietest(pool: Pool, topic: int, zone: int) -> tuple[Part, Seat] | None:
    """The quietest partition of the topic in the zone that may move."""
    load = pool.round.topics[topic]
    parts: Iterable[Part] = sorted(
        Part(bytes_per_s, topic, index) for index, bytes_per_s in enumerate(load.bytes_per_s)
    )
    for part in parts:
        seat = pool.round.seats.get(load.owners[part.partition])
        if seat is not None and seat.pool == pool.name and seat.zone == zone and seat.offers(part):
            return part, seat
    return None
