"""The balancer: from brokers, partitions and their loads to the next few moves, each with its reason. Pure.

A round plans, in this order and as far as its bound goes: partitions that may not stay where they are, topics too much
in one zone, brokers that take too many or too few bytes per second, brokers that own too many or too few partitions.
Planning anew from what the last round came to leads, with loads that stay the same, to a round without moves, and noise
below the thresholds leaves it one: docs/decisions/0009-balance.md.

It looks at every partition (200,000 of them: some tenths of a second), so it belongs into a thread and not on the event
loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bmq.values import NodeId
from bmq_controller.machine.balance_duties import mend_spreads, rehouse
from bmq_controller.machine.balance_evening import EvenBytes, EvenCounts
from bmq_controller.machine.balance_model import BalanceSettings, BrokerShare, ClusterLoad, Imbalance, MoveKind, Plan
from bmq_controller.machine.balance_pools import Pool, Round, build

_STUCK_NAMED_MAX = 5
"""How many brokers that nothing helps are named."""
_EVENING = (MoveKind.BYTES, MoveKind.COUNT)


def plan(cluster: ClusterLoad, settings: BalanceSettings) -> Plan:
    """The next round. Deterministic: the same cluster gives the same plan, in whatever order its brokers and topics
    come.
    """
    shared, pools = build(cluster, settings)
    for pool in pools:
        pool.check_spreads()
    before = _imbalance(pools)
    owned = {node_id: (seat.count, seat.bytes_per_s) for node_id, seat in shared.seats.items()}
    problems = rehouse(shared, pools)
    for pool in pools:
        mend_spreads(pool)
    for pool in pools:
        EvenBytes(pool).run()
        EvenCounts(pool).run()
        problems.extend(_stuck(pool))
    rehoused = sum(move.kind not in (*_EVENING, MoveKind.ZONE) for move in shared.moves)
    after = _imbalance(pools)
    return Plan(
        moves=tuple(shared.moves),
        problems=tuple(problems),
        before=before,
        after=replace(after, misplaced=after.misplaced - rehoused),
        brokers=_shares(cluster, shared, owned),
        balancing=frozenset(pool.name for pool in pools if _goes_on(pool, cluster)),
    )


def _goes_on(pool: Pool, cluster: ClusterLoad) -> bool:
    """Whether the next round is to even this pool out as far as `BalanceSettings.stop`."""
    waits = pool.round.budget == 0 or pool.round.under_way > 0
    return pool.evened or (waits and pool.name in cluster.balancing)


def _imbalance(pools: Sequence[Pool]) -> Imbalance:
    worst = Imbalance()
    for pool in pools:
        seats = pool.accepting
        bytes_low, bytes_high = _extremes([seat.bytes_per_s for seat in seats])
        low, high = _extremes([seat.count for seat in seats])
        worst = Imbalance(
            bytes_high=max(worst.bytes_high, bytes_high),
            bytes_low=min(worst.bytes_low, bytes_low),
            partitions_high=max(worst.partitions_high, high),
            partitions_low=min(worst.partitions_low, low),
            misplaced=worst.misplaced + len(pool.homeless),
            crowded=worst.crowded + pool.crowded,
        )
    return worst


def _extremes(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest as shares of the mean."""
    mean = sum(values) / len(values) if values else 0.0
    return (min(values) / mean, max(values) / mean) if mean > 0 else (1.0, 1.0)


def _shares(cluster: ClusterLoad, shared: Round, owned: Mapping[NodeId, tuple[int, int]]) -> tuple[BrokerShare, ...]:
    shares = []
    for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
        seat = shared.seats[broker.node_id]
        count, bytes_per_s = owned[broker.node_id]
        shares.append(
            BrokerShare(
                broker.node_id,
                broker.rack,
                broker.pool,
                partitions_before=count,
                partitions_after=seat.count,
                bytes_per_s_before=bytes_per_s,
                bytes_per_s_after=seat.bytes_per_s,
            )
        )
    return tuple(shares)


def _stuck(pool: Pool) -> list[str]:
    """Brokers that one partition alone makes too busy."""
    problems: list[str] = []
    mean = sum(seat.bytes_per_s for seat in pool.accepting) / max(1, len(pool.accepting))
    for seat in pool.stuck[:_STUCK_NAMED_MAX]:
        busiest = seat.parts[-1] if seat.parts else None
        if busiest is not None and busiest.bytes_per_s > mean:
            name = pool.round.topics[busiest.topic].name
            problems.append(
                f"partition {busiest.partition} of {name} alone takes {busiest.bytes_per_s / mean:.0%} of a "
                f"broker's mean bytes per second, which no move can even out: give {name} more partitions"
            )
    return problems
