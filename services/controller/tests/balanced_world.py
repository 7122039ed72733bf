"""A cluster as the balancer sees it, which does what it is told; and what must hold of every plan, checked the slow and
obvious way.
"""

from dataclasses import dataclass, field, replace
from math import ceil, floor
from uuid import UUID

import pytest

from bmq.values import NO_NODE, NodeId, TopicId, TopicPartition
from bmq_controller.machine.balance import plan
from bmq_controller.machine.balance_model import (
    BalanceSettings,
    BrokerLoad,
    ClusterLoad,
    Imbalance,
    Move,
    MoveKind,
    Plan,
    TopicLoad,
)

MUST = (MoveKind.UNOWNED, MoveKind.DRAIN, MoveKind.PIN)
"""Moves for which no partition is left to rest."""


@dataclass
class WorldTopic:
    """A topic, mutable."""

    name: str
    owners: list[int]
    loads: list[int]
    pool: str = ""
    topic_id: TopicId = TopicId(UUID(int=0))


@dataclass
class World:
    """Brokers and topics, and a clock. A move takes `rounds_per_move` rounds."""

    settings: BalanceSettings = field(default_factory=BalanceSettings)
    brokers: dict[int, BrokerLoad] = field(default_factory=dict)
    topics: list[WorldTopic] = field(default_factory=list)
    rounds_per_move: int = 0
    now_ms: int = 1_000_000
    balancing: frozenset[str] = frozenset()
    since_ms: dict[TopicPartition, int] = field(default_factory=dict)
    moving: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Where to, and in how many rounds it is there."""

    def broker(
        self, node_id: int, *, rack: str = "", pool: str = "", cordoned: bool = False, draining: bool = False
    ) -> None:
        self.brokers[node_id] = BrokerLoad(
            node_id=NodeId(node_id), rack=rack, pool=pool, cordoned=cordoned, draining=draining
        )

    def change(self, node_id: int, *, cordoned: bool = False, draining: bool = False) -> None:
        self.brokers[node_id] = replace(self.brokers[node_id], cordoned=cordoned, draining=draining)

    def topic(self, name: str, owners: list[int], loads: list[int] | None = None, *, pool: str = "") -> WorldTopic:
        topic = WorldTopic(name, owners, loads or [0] * len(owners), pool, TopicId(UUID(int=len(self.topics) + 1)))
        self.topics.append(topic)
        return topic

    def load(self) -> ClusterLoad:
        return ClusterLoad(
            brokers=list(self.brokers.values()),
            topics=[
                TopicLoad(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    owners=[NodeId(owner) for owner in topic.owners],
                    bytes_per_s=topic.loads,
                    moving={
                        tp.partition: NodeId(to) for tp, (to, _) in self.moving.items() if tp.topic_id == topic.topic_id
                    },
                    since_ms={tp.partition: at for tp, at in self.since_ms.items() if tp.topic_id == topic.topic_id},
                    pool=topic.pool,
                )
                for topic in self.topics
            ],
            now_ms=self.now_ms,
            balancing=self.balancing,
        )

    def plan(self) -> Plan:
        """Checked, and nothing done of it."""
        planned = plan(self.load(), self.settings)
        self._check(planned)
        return planned

    def round(self) -> Plan:
        """Plans, checks, begins the moves, ends those that are due, and lets a second pass."""
        planned = self.plan()
        self.balancing = planned.balancing
        for move in planned.moves:
            self.moving[move.tp] = (move.target, self.rounds_per_move)
        for tp, (target, left) in list(self.moving.items()):
            if left == 0:
                self._of(tp).owners[tp.partition] = target
                self.since_ms[tp] = self.now_ms
                del self.moving[tp]
            else:
                self.moving[tp] = (target, left - 1)
        self.now_ms += 1_000
        return planned

    def settle(self, *, rounds_max: int) -> int:
        """Rounds until nothing more is planned or rests. Returns the number of moves; fails where it does not come to
        an end.
        """
        moves = 0
        for _ in range(rounds_max):
            waited = bool(self.moving)
            planned = self.round()
            moves += len(planned.moves)
            if not planned.moves and not waited and not planned.balancing:
                if all(self.now_ms - at >= self.settings.rest_ms for at in self.since_ms.values()):
                    return moves
                self.now_ms += self.settings.rest_ms
        raise AssertionError(f"{moves} moves in {rounds_max} rounds and no end")

    def bytes_of(self, node_id: int) -> int:
        return sum(
            load
            for topic in self.topics
            for owner, load in zip(topic.owners, topic.loads, strict=True)
            if owner == node_id
        )

    def count_of(self, node_id: int) -> int:
        return sum(topic.owners.count(node_id) for topic in self.topics)

    def evenness(self, pool: str = "") -> tuple[float, float]:
        """The lowest and the highest bytes per second of the brokers that take partitions, as shares of the mean."""
        loads = [self.bytes_of(node_id) for node_id in self._accepting(pool)]
        mean = sum(loads) / len(loads)
        return (min(loads) / mean, max(loads) / mean) if mean else (1.0, 1.0)

    def zones(self, topic: WorldTopic) -> dict[str, int]:
        found: dict[str, int] = {}
        for owner in topic.owners:
            rack = self.brokers[owner].rack
            found[rack] = found.get(rack, 0) + 1
        return found

    def crowded(self) -> int:
        """By how many partitions zones are above or below their share, from the definition."""
        return sum(
            self._crowded(topic) for topic in self.topics if len(topic.owners) > 1 and self._accepting(topic.pool)
        )

    def misplaced(self) -> list[tuple[str, int]]:
        return [
            (topic.name, index)
            for topic in self.topics
            for index, owner in enumerate(topic.owners)
            if self._homeless(topic, owner)
        ]

    def _homeless(self, topic: WorldTopic, owner: int) -> bool:
        if owner not in self.brokers:
            return owner == NO_NODE
        return self.brokers[owner].draining or self.brokers[owner].pool != topic.pool

    def _crowded(self, topic: WorldTopic) -> int:
        mine = [broker for broker in self.brokers.values() if broker.pool == topic.pool]
        racks = {broker.rack for broker in mine}
        if len(racks) < 2:
            return 0
        total = sum(not broker.draining for broker in mine)
        wrong = 0
        for rack in racks:
            share = sum(not broker.draining for broker in mine if broker.rack == rack) * len(topic.owners) / total
            slack = floor(share + 1e-9) // 4
            there = sum(
                1
                for owner in topic.owners
                if owner in self.brokers and self.brokers[owner].rack == rack and self._of_pool(owner, topic)
            )
            wrong += max(0, there - (ceil(share - 1e-9) + slack), floor(share + 1e-9) - slack - there)
        return wrong

    def _of_pool(self, owner: int, topic: WorldTopic) -> bool:
        return self.brokers[owner].pool == topic.pool

    def _accepting(self, pool: str) -> list[int]:
        return [
            broker.node_id
            for broker in self.brokers.values()
            if broker.pool == pool and not broker.cordoned and not broker.draining
        ]

    def _of(self, tp: TopicPartition) -> WorldTopic:
        return next(topic for topic in self.topics if topic.topic_id == tp.topic_id)

    def _check(self, planned: Plan) -> None:
        assert len(planned.moves) + len(self.moving) <= max(self.settings.moves_max, len(self.moving)), (
            "moves are bounded, with those under way"
        )
        assert len({move.tp for move in planned.moves}) == len(planned.moves), "a partition moves once a round"
        for move in planned.moves:
            self._check_move(move)
        then = self._done(planned)
        must = [move for move in planned.moves if move.kind in MUST]
        if not must:
            assert then.crowded() <= self._as_moving().crowded(), (
                "what is evened out never spoils the spread over zones"
            )
        assert planned.after.crowded == then.crowded()
        assert planned.before.crowded == self._as_moving().crowded()
        assert planned.after.misplaced == planned.before.misplaced - len(must)
        for share in planned.brokers:
            assert share.partitions_after == then.count_of(share.node_id)
            assert share.bytes_per_s_after == then.bytes_of(share.node_id)
        self._check_imbalance(planned.after, then)

    def _check_move(self, move: Move) -> None:
        topic = self._of(move.tp)
        target = self.brokers[move.target]
        assert move.source == topic.owners[move.tp.partition] != move.target
        assert move.tp not in self.moving
        assert not target.cordoned, "a cordoned broker gets nothing"
        assert not target.draining, "a draining broker gets nothing"
        assert target.pool == topic.pool, "a topic only goes to brokers of its pool"
        assert move.topic == topic.name
        assert move.reason
        assert (move.kind is MoveKind.UNOWNED) == (move.source == NO_NODE)
        if move.kind not in MUST:
            assert not self.brokers[move.source].cordoned, "a cordoned broker keeps what it has"
            since = self.since_ms.get(move.tp, 0)
            assert self.now_ms - since >= self.settings.rest_ms, "a partition rests after it moved"

    def _check_imbalance(self, stated: Imbalance, world: "World") -> None:
        pools = {broker.pool for broker in self.brokers.values()}
        spreads = [world.evenness(pool) for pool in pools if world._accepting(pool)]
        assert stated.bytes_low == pytest.approx(min([1.0, *(low for low, _ in spreads)]))
        assert stated.bytes_high == pytest.approx(max([1.0, *(high for _, high in spreads)]))

    def _as_moving(self) -> "World":
        """With what is under way counted where it goes to."""
        return self._with({tp: to for tp, (to, _) in self.moving.items() if to in self.brokers})

    def _done(self, planned: Plan) -> "World":
        return self._with(
            {tp: to for tp, (to, _) in self.moving.items() if to in self.brokers}
            | {move.tp: move.target for move in planned.moves}
        )

    def _with(self, places: dict[TopicPartition, int]) -> "World":
        topics = [replace(topic, owners=list(topic.owners)) for topic in self.topics]
        then = World(settings=self.settings, brokers=self.brokers, topics=topics)
        for tp, target in places.items():
            then._of(tp).owners[tp.partition] = target
        return then
