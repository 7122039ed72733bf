"""The state of a plan in the making: pools of brokers with what they own, and the moves so far. Mutable; lives for one
plan.

Built in one pass over the partitions; every later step costs what it touches. A partition moves at most once in a plan.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from bmq.values import NO_NODE, NodeId, TopicPartition
from bmq_controller.machine.balance_model import (
    BalanceSettings,
    BrokerLoad,
    ClusterLoad,
    Move,
    MoveKind,
    Thresholds,
    TopicLoad,
)
from bmq_controller.machine.balance_seats import Part, Seat, Seats
from bmq_controller.machine.balance_zones import Spread, Zones, violation

_KIND_ORDER = list(MoveKind)


@dataclass(slots=True)
class Round:
    """What all pools share: the partitions, and how many more of them may move."""

    topics: Sequence[TopicLoad]
    settings: BalanceSettings
    seats: dict[NodeId, Seat]
    budget: int
    under_way: int
    """Moves of earlier rounds."""
    now_ms: int
    moves: list[Move] = field(default_factory=list)


@dataclass(slots=True)
class Homeless:
    """A partition that has to go: `seat` is its broker, None where it has none."""

    part: Part
    kind: MoveKind
    seat: Seat | None

    @property
    def urgency(self) -> tuple[int, int, int, int]:
        """What has no owner cannot be written to. Then the busiest first: the quiet ones even out what these leave
        uneven.
        """
        return (_KIND_ORDER.index(self.kind), -self.part.bytes_per_s, self.part.topic, self.part.partition)


class Pool:
    """One pool: its brokers and the topics that belong on them."""

    def __init__(self, name: str, zones: Zones, shared: Round, *, active: bool) -> None:
        self.name = name
        self.zones = zones
        self.round = shared
        self.active = active
        """It is being evened out, so the thresholds to stop at count."""
        self.evened = False
        """A move of this plan evens it out."""
        self.seats: list[Seat] = []
        self.topics: list[int] = []
        """The numbers of the topics that belong here."""
        self.homeless: list[Homeless] = []
        self.partitions = 0
        """How many belong here, wherever they are."""
        self.bytes_per_s = 0
        self.crowded = 0
        """By how many partitions the spreads of topics over zones are wrong."""
        self.uneven_topics: list[int] = []
        """Topics whose spread is wrong."""
        self.stuck: list[Seat] = []
        """Brokers that are too busy and have nothing that another could take."""
        self.homes: dict[NodeId, Seat] = {}
        """The brokers whose partitions of this pool may stay."""
        self._spreads: dict[int, Spread] = {}
        self._offered = False

    @property
    def accepting(self) -> list[Seat]:
        """The brokers that take part in balancing: they may give, and take."""
        return [seat for seat in self.seats if seat.accepting]

    @property
    def thresholds(self) -> Thresholds:
        return self.round.settings.stop if self.active else self.round.settings.start

    def emptiest(self) -> Seats:
        """The brokers to give homeless partitions to."""
        count = max(1, len(self.accepting))
        return Seats(self.seats, mean_count=self.partitions / count, mean_bytes_per_s=self.bytes_per_s / count)

    def spread(self, topic: int) -> Spread | None:
        """The topic's spread over zones; None where it cannot be wrong."""
        partitions = len(self.round.topics[topic].owners)
        if partitions == 1 or len(self.zones) == 1:
            return None
        found = self._spreads.get(topic)
        if found is None:
            found = self._spreads[topic] = self.zones.spread(partitions, self._zones_of(self.round.topics[topic]))
        return found

    def allows(self, topic: int, source: int, target: int) -> bool:
        """Whether a partition of the topic may change from one zone to another for the sake of balance."""
        if source == target:
            return True
        spread = self.spread(topic)
        return spread is None or spread.allows(source, target)

    def check_spreads(self) -> None:
        """Finds the topics whose spread over zones is wrong. One pass over the pool's partitions."""
        if len(self.zones) == 1 or not self.accepting:
            return
        zone_of = {seat.node_id: seat.zone for seat in self.seats}
        topics, empty = self.round.topics, [0] * len(self.zones)
        # Most topics have few partitions, and there are few ways to spread them.
        known: dict[tuple[int, ...], int] = {}
        for number in self.topics:
            topic = topics[number]
            partitions = len(topic.owners)
            if partitions == 1:
                continue
            counts = empty.copy()
            if topic.moving:
                for zone in self._zones_of(topic):
                    counts[zone] += 1
            else:
                for owner in topic.owners:
                    if owner in zone_of:
                        counts[zone_of[owner]] += 1
            key = (partitions, *counts)
            wrong = known.get(key)
            if wrong is None:
                wrong = known[key] = violation(counts, *self.zones.limits(partitions))
            if wrong:
                self.crowded += wrong
                self.uneven_topics.append(number)

    def offer(self) -> None:
        """Says at each broker what may move for the sake of balance. One pass over the pool's partitions, made only
        where that is needed.
        """
        if self._offered:
            return
        self._offered = True
        offering = {seat.node_id: seat.offering() for seat in self.accepting}
        topics, rested_ms = self.round.topics, self.round.now_ms - self.round.settings.rest_ms
        for number in self.topics:
            topic = topics[number]
            held = _held(topic, rested_ms=rested_ms)
            for index, owner in enumerate(topic.owners):
                offer = offering.get(owner)
                if offer is not None and index not in held:
                    offer(Part(topic.bytes_per_s[index], number, index))

    def give(self, homeless: Homeless, target: Seat, reason: str) -> None:
        """Moves a partition that has to go. The target and the spread count it already."""
        if homeless.seat is not None:
            homeless.seat.remove(homeless.part.bytes_per_s)
        self._note(homeless.part, homeless.seat, target, homeless.kind, reason)

    def move(self, part: Part, source: Seat, target: Seat, kind: MoveKind, reason: str) -> None:
        """Moves a partition that may move."""
        source.withdraw(part)
        source.remove(part.bytes_per_s)
        target.add(part.bytes_per_s)
        if source.zone != target.zone:
            spread = self.spread(part.topic)
            if spread is not None:
                before = spread.violation()
                spread.leave(source.zone)
                spread.enter(target.zone)
                self.crowded += spread.violation() - before
        self._note(part, source, target, kind, reason)

    def _note(self, part: Part, source: Seat | None, target: Seat, kind: MoveKind, reason: str) -> None:
        topic = self.round.topics[part.topic]
        self.round.budget -= 1
        self.round.moves.append(
            Move(
                TopicPartition(topic.topic_id, part.partition),
                topic.name,
                NO_NODE if source is None else source.node_id,
                target.node_id,
                kind,
                part.bytes_per_s,
                reason,
            )
        )

    def _zones_of(self, topic: TopicLoad) -> Iterable[int]:
        seats = self.round.seats
        for index, owner in enumerate(topic.owners):
            seat = seats.get(topic.moving.get(index, owner)) or seats.get(owner)
            if seat is not None and seat.pool == self.name:
                yield seat.zone


def _held(topic: TopicLoad, *, rested_ms: int) -> Collection[int]:
    """The partitions that may not move now: those under way, and those that rest."""
    if not topic.moving and not topic.since_ms:
        return ()
    return {*topic.moving, *(index for index, since_ms in topic.since_ms.items() if since_ms > rested_ms)}


def build(cluster: ClusterLoad, settings: BalanceSettings) -> tuple[Round, list[Pool]]:
    """The state before the first move. One pass over the partitions; the order of brokers and topics does not
    matter.
    """
    # Sorting by the number: comparing UUIDs themselves costs several times as much.
    topics = sorted(cluster.topics, key=lambda topic: topic.topic_id.int)
    under_way = sum(len(topic.moving) for topic in topics)
    shared = Round(topics, settings, {}, max(0, settings.moves_max - under_way), under_way, cluster.now_ms)
    pools = _seat(sorted(cluster.brokers, key=lambda broker: broker.node_id), shared, cluster.balancing)
    for number, topic in enumerate(topics):
        pool = pools.get(topic.pool)
        if pool is None:
            pool = pools[topic.pool] = Pool(topic.pool, Zones([]), shared, active=False)
        _own(pool, number, topic)
    return shared, [pools[name] for name in sorted(pools)]


def _seat(brokers: Sequence[BrokerLoad], shared: Round, balancing: frozenset[str]) -> dict[str, Pool]:
    members: dict[str, list[BrokerLoad]] = {}
    for broker in brokers:
        members.setdefault(broker.pool, []).append(broker)
    pools = {}
    for name, mine in members.items():
        zones = Zones((broker.rack, not broker.draining) for broker in mine)
        pool = pools[name] = Pool(name, zones, shared, active=name in balancing)
        for broker in mine:
            seat = Seat(
                broker.node_id,
                zone=zones.number(broker.rack),
                pool=name,
                accepting=not (broker.cordoned or broker.draining),
                draining=broker.draining,
            )
            pool.seats.append(seat)
            if not broker.draining:
                pool.homes[broker.node_id] = seat
            shared.seats[broker.node_id] = seat
    return pools


def _own(pool: Pool, number: int, topic: TopicLoad) -> None:
    """Counts a topic's partitions at their brokers. This loop runs for every partition of the cluster, so it does
    little.
    """
    pool.topics.append(number)
    pool.partitions += len(topic.owners)
    pool.bytes_per_s += sum(topic.bytes_per_s)
    homes, moving = pool.homes, topic.moving
    for index, (owner, bytes_per_s) in enumerate(zip(topic.owners, topic.bytes_per_s, strict=True)):
        seat = homes.get(owner)
        if seat is None or index in moving:
            _own_elsewhere(pool, Part(bytes_per_s, number, index), owner, moving.get(index))
        else:
            seat.count += 1
            seat.bytes_per_s += bytes_per_s


def _own_elsewhere(pool: Pool, part: Part, owner: NodeId, target: NodeId | None) -> None:
    """Counts a partition that is under way, or that has to go."""
    seats = pool.round.seats
    seat = seats.get(owner)
    if target is not None:
        seat = seats.get(target) or seat
    elif seat is not None:
        pool.homeless.append(Homeless(part, MoveKind.DRAIN if seat.draining else MoveKind.PIN, seat))
    elif owner == NO_NODE:
        pool.homeless.append(Homeless(part, MoveKind.UNOWNED, None))
    if seat is not None:
        seat.add(part.bytes_per_s)
