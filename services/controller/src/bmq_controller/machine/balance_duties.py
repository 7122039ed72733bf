"""What has to move whatever it costs: partitions that may not stay where they are, and topics that are too much in one
zone. Pure.

Both come before any evening out and are never undone by it: it keeps partitions in their pools and topics within the
limits of their zones.
"""

import heapq
from collections.abc import Mapping, Sequence

from bmq_controller.machine.balance_model import SHARED_POOL, MoveKind
from bmq_controller.machine.balance_pools import Homeless, Pool, Round
from bmq_controller.machine.balance_seats import Part, Seat, Seats
from bmq_controller.machine.pools import brokers_of

_NAMED_MAX = 3
"""How many topics a sentence names."""


def rehouse(shared: Round, pools: Sequence[Pool]) -> list[str]:
    """Gives partitions that have to go to the emptiest brokers of their pools. Returns what cannot be done, in
    words.
    """
    problems: list[str] = []
    due: list[tuple[tuple[int, int, int, int], str, Homeless, Pool]] = []
    seats: dict[str, Seats] = {}
    for pool in pools:
        if not pool.homeless:
            continue
        if pool.accepting:
            seats[pool.name] = pool.emptiest()
            due.extend((homeless.urgency, pool.name, homeless, pool) for homeless in pool.homeless)
        else:
            problems.append(_nowhere(pool))
    for _, _, homeless, pool in heapq.nsmallest(shared.budget, due, key=lambda item: item[:2]):
        _rehouse(pool, homeless, seats)
    return problems


def mend_spreads(pool: Pool) -> None:
    """Moves partitions of topics that have too many in one zone or too few in another, as far as the round allows."""
    if not pool.uneven_topics or pool.round.budget == 0:
        return
    pool.offer()
    seats = pool.emptiest()
    for topic in pool.uneven_topics:
        while pool.round.budget > 0 and _mend(pool, topic, seats):
            pass


def _rehouse(pool: Pool, homeless: Homeless, seats: Mapping[str, Seats]) -> None:
    part, leaves = homeless.part, homeless.seat
    spread = pool.spread(part.topic)
    before = 0 if spread is None else spread.violation()
    if spread is not None and leaves is not None and leaves.pool == pool.name:
        spread.leave(leaves.zone)
    target = seats[pool.name].pick(spread)
    assert target is not None, "pools in which no broker takes partitions were set aside"
    target.add(part.bytes_per_s)
    if spread is not None:
        spread.enter(target.zone)
        pool.crowded += spread.violation() - before
    pool.give(homeless, target, _why(pool, homeless))
    for seat in (target, leaves):
        if seat is not None and seat.pool in seats:
            seats[seat.pool].changed(seat)


def _why(pool: Pool, homeless: Homeless) -> str:
    if homeless.seat is None:
        return "it has no owner"
    if homeless.kind is MoveKind.DRAIN:
        return f"broker {homeless.seat.node_id} drains"
    topic = pool.round.topics[homeless.part.topic].name
    return (
        f"{topic} belongs on {brokers_of(pool.name)}, and broker {homeless.seat.node_id} is one of "
        f"{brokers_of(homeless.seat.pool)}"
    )


def _nowhere(pool: Pool) -> str:
    names = sorted({pool.round.topics[homeless.part.topic].name for homeless in pool.homeless})
    named = ", ".join(names[:_NAMED_MAX]) + (
        f" and {len(names) - _NAMED_MAX} more topics" if len(names) > _NAMED_MAX else ""
    )
    count = len(pool.homeless)
    partitions = f"{count} partition{'s' * (count > 1)} of {named}"
    pinned = "" if pool.name == SHARED_POOL else ", or take the pin away"
    return (
        f"{partitions} cannot be placed: none of {brokers_of(pool.name)} takes partitions: start or uncordon "
        f"one there{pinned}"
    )


def _mend(pool: Pool, topic: int, seats: Seats) -> bool:
    """One move that mends the topic's spread. False: there is none (left)."""
    spread = pool.spread(topic)
    if spread is None:
        return False
    for source, target in spread.moves():
        taker = seats.pick_in(target)
        found = None if taker is None else _busiest(pool, topic, source)
        if taker is None or found is None:
            continue
        part, giver = found
        load = pool.round.topics[topic]
        total = len(load.owners)
        if spread.count(source) > spread.most(source):
            should = (
                f"{_zone(pool, source)} has {spread.count(source)} of the {total} partitions of {load.name}, "
                f"its share is {spread.most(source)}"
            )
        else:
            should = (
                f"{_zone(pool, target)} has {spread.count(target)} of the {total} partitions of {load.name}, "
                f"its share is {spread.fewest(target)}"
            )
        pool.move(part, giver, taker, MoveKind.ZONE, should)
        seats.changed(giver)
        seats.changed(taker)
        return True
    return False


def _zone(pool: Pool, zone: int) -> str:
    return f"zone {pool.zones.names[zone]}" if pool.zones.names[zone] else "the zone without a name"


def _busiest(pool: Pool, topic: int, zone: int) -> tuple[Part, Seat] | None:
    """The partition of the topic that may move and whose broker is the busiest of the zone."""
    load = pool.round.topics[topic]
    best: tuple[Part, Seat] | None = None
    for index, owner in enumerate(load.owners):
        seat = pool.round.seats.get(owner)
        if (
            seat is None
            or seat.pool != pool.name
            or seat.zone != zone
            or (best is not None and seat.bytes_per_s <= best[1].bytes_per_s)
        ):
            continue
        part = Part(load.bytes_per_s[index], topic, index)
        if seat.offers(part):
            best = (part, seat)
    return best
