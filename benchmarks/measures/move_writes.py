"""For how long a planned move stops the writes of a partition with a tail of 64 MiB, over MinIO; and whether moving a
coordinator rebalances.
"""

import asyncio
import threading
from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import uvloop
from confluent_kafka import Consumer, KafkaException
from tests.waiting import until_async

from benchmarks import topics
from benchmarks.clients.writer import Filler, SteadyWriter
from benchmarks.measures.latency import quantile_ms
from benchmarks.nodes import Cluster, over_minio
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.watch import Watch, watching
from bmq.metadata.records import PartitionChange, PartitionMoveBegun
from bmq.naming.group_partition import partition_of_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.values import NodeId, TopicPartition

MIB = 1 << 20
TAIL_BYTES = 61 * MIB
"""Just below the size at which a tail becomes a segment by itself."""
PER_S = 200
TOPIC, GROUP = "tail", "group"
SETTLE_S = 0.5
COMMITS_PER_S = 20


class Stop(NamedTuple):
    """One move. Seconds; `tail_bytes` is the tail when it began."""

    stood_still_s: float
    begun_s: float
    closed_s: float
    written_s: float
    tail_bytes: int


def measure(plan: Plan) -> Iterator[Row]:
    """Two rows, of one cluster."""
    with over_minio(plan, "1c2b1p") as cluster:
        topics.create(cluster, TOPIC, partitions=1, retention_bytes=256 * MIB)
        stops = uvloop.run(_tail_moves(plan, cluster, plan.moves))
        yield _stop_row(plan, stops)
        rebalances, gaps_s = uvloop.run(_coordinator_moves(plan, cluster, plan.moves // 2))
        yield Row(
            topic="move-writes",
            measure="rebalances by moves of a group's coordinator",
            setting=f"{plan.moves // 2} moves, a consumer that commits {COMMITS_PER_S} times a second, over MinIO",
            unit="",
            bmq=[float(rebalances)],
            target=0,
            target_of="bmq",
            at_least=False,
            beside=f"longest time of a commit at a move: p50 {quantile_ms(gaps_s, 0.5):.0f} ms, p99 "
            f"{quantile_ms(gaps_s, 0.99):.0f} ms",
            quick=plan.quick,
        )


def _stop_row(plan: Plan, stops: list[Stop]) -> Row:
    times = [one.stood_still_s for one in stops]
    closed_ms, written_ms = (median(getattr(one, name) for one in stops) * 1000 for name in ("closed_s", "written_s"))
    phases = f"closed after {closed_ms:.0f} ms, written again after {written_ms:.0f} ms"
    return Row(
        topic="move-writes",
        measure="writes stand still at a planned move, p99",
        setting=f"{len(stops)} moves with a tail of 64 MiB, {PER_S} records/s by librdkafka, over MinIO",
        unit="ms",
        bmq=[quantile_ms(times, 0.99)],
        target=300,
        target_of="bmq",
        at_least=False,
        beside=f"p50 {quantile_ms(times, 0.5):.0f} ms, longest {max(times) * 1000:.0f} ms; "
        f"tails of {median(one.tail_bytes for one in stops) / MIB:.0f} MiB; medians from the request on: {phases}",
        quick=plan.quick,
    )


async def _tail_moves(plan: Plan, cluster: Cluster, count: int) -> list[Stop]:
    plan.say(f"move-writes: {count} moves")
    stops: list[Stop] = []
    filler = Filler(cluster.address)
    async with watching(cluster.store) as watch:
        tp = watch.partition(TOPIC, 0)
        with SteadyWriter(cluster.address, TOPIC, [0], per_s=PER_S) as writer:
            for _ in range(count):
                tail_bytes = await _filled(watch, tp, filler)
                await asyncio.sleep(SETTLE_S)
                stops.append(await _moved(watch, tp, writer, tail_bytes))
                one = stops[-1]
                plan.say(
                    f"  stood still {one.stood_still_s * 1000:.0f} ms, begun {one.begun_s * 1000:.0f}, closed "
                    f"{one.closed_s * 1000:.0f}, written {one.written_s * 1000:.0f}; tail {tail_bytes / MIB:.0f} "
                    "MiB"
                )
        assert not writer.failed, f"{len(writer.failed)} records failed: {writer.failed[0]}"
    return stops


async def _moved(watch: Watch, tp: TopicPartition, writer: SteadyWriter, tail_bytes: int) -> Stop:
    target = NodeId(203 - watch.meta(tp).node_id)
    began_s = perf_counter()
    await watch.move(tp, target)
    there_s = perf_counter()
    written_s = await writer.until_written([0], since_s=there_s)
    await asyncio.sleep(SETTLE_S)
    begun_s = next(at_s for at_s, _ in watch.records(PartitionMoveBegun, after_s=began_s))
    closed_s = next(
        at_s for at_s, record in watch.records(PartitionChange, after_s=began_s) if record.node_id == target
    )
    return Stop(
        writer.stood_still_s(0, since_s=began_s), begun_s - began_s, closed_s - began_s, written_s - began_s, tail_bytes
    )


async def _filled(watch: Watch, tp: TopicPartition, filler: Filler) -> int:
    """Writes until the tail has the wanted size; how much it is."""
    deadline_s = perf_counter() + 60
    while True:
        tail_bytes = await watch.tail_bytes(tp)
        if TAIL_BYTES - MIB <= tail_bytes < 64 * MIB:
            return tail_bytes
        assert perf_counter() < deadline_s, f"the tail is of {tail_bytes} bytes"
        if tail_bytes < TAIL_BYTES:
            filler.fill(TOPIC, 0, TAIL_BYTES - tail_bytes)
        else:  # a little more, and it becomes a segment
            filler.fill(TOPIC, 0, MIB)
            await asyncio.sleep(0.3)


class _Member:
    """A group's only member, which commits all the time, in a thread of its own."""

    def __init__(self, address: str) -> None:
        self.rebalances = 0
        self.committed: list[tuple[float, float]] = []
        """(when it was sent, how long it took), in seconds."""
        self.failed: list[str] = []
        self._assigned = threading.Event()
        self._stop = threading.Event()
        config: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe([TOPIC], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)
        self._thread = threading.Thread(target=self._run, name="member")

    def __enter__(self) -> "_Member":
        self._thread.start()
        assert self._assigned.wait(30), "the consumer got no partitions"
        self.rebalances = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _changed(self, *_: object) -> None:
        self.rebalances += 1
        self._assigned.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(100, timeout=1 / COMMITS_PER_S)
            if not messages or not self._assigned.is_set():
                continue
            began_s = perf_counter()
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                self.failed.append(str(error))
            else:
                self.committed.append((began_s, perf_counter() - began_s))
        changes = self.rebalances
        self._consumer.close()
        self.rebalances = changes  # leaving is none


async def _coordinator_moves(plan: Plan, cluster: Cluster, count: int) -> tuple[int, list[float]]:
    """How often the member had to begin anew, and the longest time of a commit at each move."""
    plan.say(f"move-writes: {count} moves of a coordinator")
    longest: list[float] = []
    with SteadyWriter(cluster.address, TOPIC, [0], per_s=PER_S), _Member(cluster.address) as member:
        async with watching(cluster.store) as watch:
            coordinators = watch.image.topic(CONSUMER_OFFSETS)
            assert coordinators is not None
            tp = watch.partition(CONSUMER_OFFSETS, partition_of_group(GROUP, len(coordinators.partitions)))
            for _ in range(count):
                await asyncio.sleep(SETTLE_S)
                began_s = perf_counter()
                await watch.move(tp, NodeId(203 - watch.meta(tp).node_id))
                there_s = perf_counter()
                await until_async(
                    lambda: member.committed[-1][0] if member.committed else None,
                    "commits to go on",
                    holds=lambda at_s, there_s=there_s: at_s >= there_s,  # type: ignore[misc]
                    unless=lambda: member.failed,
                    shows=lambda: member.failed[:1],
                    every_s=0.02,
                )
                longest.append(max(took_s for at_s, took_s in member.committed if at_s + took_s >= began_s))
        plan.say(
            f"  {member.rebalances} rebalances, {len(member.committed)} commits, {len(member.failed)} failed "
            f"{member.failed[:1]}"
        )
        assert not member.failed, f"{len(member.failed)} commits failed: {member.failed[0]}"
        return member.rebalances, longest
