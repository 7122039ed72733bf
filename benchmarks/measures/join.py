"""A broker that joins a cluster under uneven load: how evenly bytes spread half a minute after its process was started,
and how soon they did.
"""

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any, Final

import uvloop

from benchmarks import topics
from benchmarks.clients.writer import SteadyWriter
from benchmarks.nodes import Cluster
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.watch import Watch, watching
from bmq.metadata.records import PartitionChange
from bmq.values import TopicPartition
from bmq_node.configuration.values import Role

RECORDS_PER_S: Final[Mapping[str, int]] = {"quiet": 360, "busy": 450}
"""By topic, over all of its partitions."""
PARTITIONS: Final[Mapping[str, int]] = {"quiet": 36, "busy": 12}
JOINS: Final = 103
REST_S: Final = 62
"""Partitions rest for a minute where they were made."""
WARM_S: Final = 20
WITHIN_S: Final = 30
WINDOW_S: Final = 10
EVEN: Final = 0.1
MIB: Final = 1 << 20


def measure(plan: Plan) -> Iterator[Row]:
    """Rows of one cluster a round."""
    high: list[float] = []
    low: list[float] = []
    took: list[float] = []
    moves = 0
    for turn in range(plan.rounds):
        with Cluster(plan.folder("bmq"), "1c3b1p", options=("--balance-interval-ms", "1000")) as cluster:
            cluster.nodes[JOINS].end(signal.SIGTERM)
            for topic, partitions in PARTITIONS.items():
                topics.create(cluster, topic, partitions=partitions, retention_bytes=4 * MIB)
            plan.say(f"join: round {turn + 1}, the topics rest for a minute")
            uvloop.run(asyncio.sleep(REST_S))
            with ExitStack() as writers:
                for topic, per_s in RECORDS_PER_S.items():
                    writers.enter_context(SteadyWriter(cluster.address, topic, range(PARTITIONS[topic]), per_s=per_s))
                shares, even_s, moved = uvloop.run(_joined(cluster))
        high.append(max(shares))
        low.append(min(shares))
        took.append(even_s)
        moves += moved
        plan.say(
            f"  {', '.join(f'{share:.2f}' for share in shares)} of the mean; even after {even_s:.1f} s, {moved} moves"
        )
    loads = " and ".join(
        f"{PARTITIONS[topic]} partitions with {per_s} records/s" for topic, per_s in RECORDS_PER_S.items()
    )
    setting = f"2 brokers and 1 that joins; {loads}"
    shared: dict[str, Any] = {"topic": "join", "setting": setting, "target_of": "bmq", "quick": plan.quick}
    window = f"{WINDOW_S} s from {WITHIN_S} s after its start"
    yield Row(
        measure=f"bytes of the busiest of 3 brokers ÷ the mean, {window}",
        unit="×",
        bmq=high,
        target=1 + EVEN,
        at_least=False,
        **shared,
    )
    yield Row(
        measure=f"bytes of the least busy of 3 brokers ÷ the mean, {window}",
        unit="×",
        bmq=low,
        target=1 - EVEN,
        at_least=True,
        **shared,
    )
    yield Row(
        measure="from the start of its process until all brokers are within 10 % of the mean for good",
        unit="s",
        bmq=took,
        target=WITHIN_S,
        at_least=False,
        beside=f"{moves / plan.rounds:.0f} moves",
        **shared,
    )


async def _joined(cluster: Cluster) -> tuple[list[float], float, int]:
    """What each broker then takes as a share of the mean, when the owners had become even for good, and how many
    partitions changed hands.
    """
    async with watching(cluster.store) as watch:
        await asyncio.sleep(WARM_S)
        began_s = perf_counter()
        uneven_s = [0.0]
        unsubscribe = watch.feed.subscribe(
            lambda _, __: uneven_s.append(perf_counter() - began_s) if not _is_even(watch) else None
        )
        await asyncio.to_thread(cluster.start_again, JOINS)
        await asyncio.sleep(began_s + WITHIN_S - perf_counter())
        before = await asyncio.to_thread(_appended, cluster)
        await asyncio.sleep(WINDOW_S)
        after = await asyncio.to_thread(_appended, cluster)
        unsubscribe()
        assert _is_even(watch) or uneven_s[-1] > 0
        moved = sum(isinstance(record, PartitionChange) for at_s, record in watch.seen if at_s >= began_s)
    written = [after[node_id] - before[node_id] for node_id in after]
    mean = sum(written) / len(written)
    return [bytes_written / mean for bytes_written in written], uneven_s[-1], moved


def _is_even(watch: Watch) -> bool:
    """By who owns what, and what is written to it."""
    taken = {node_id: 0.0 for node_id, node in watch.image.nodes.items() if Role.BROKER in node.roles}
    for topic, partitions in PARTITIONS.items():
        for index in range(partitions):
            owner = watch.meta(TopicPartition(watch.image.topic_ids[topic], index)).node_id
            if owner in taken:
                taken[owner] += RECORDS_PER_S[topic] / partitions
    mean = sum(RECORDS_PER_S.values()) / len(taken)
    return JOINS in taken and all(abs(records - mean) <= EVEN * mean for records in taken.values())


def _appended(cluster: Cluster) -> dict[int, float]:
    return {node.plan.node_id: node.metrics()["bmq_appended_bytes_total"] for node in cluster.of(Role.BROKER)}
