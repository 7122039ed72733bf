"""For how long nobody can write to the partitions of a broker that was killed, over MinIO: a few under constant writes,
and a thousand at once.

The time until the broker is missed (its lease runs out) is measured beside: what is promised is what comes after it.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import uvloop

from benchmarks import topics
from benchmarks.clients.bare import produce_frame, write_to_each
from benchmarks.clients.writer import Filler, SteadyWriter
from benchmarks.nodes import Cluster, over_minio
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.watch import Watch, watching
from bmq.metadata.records import FencingBegun, StreamSealed
from bmq.values import NodeId
from bmq_node.configuration.values import Role

MIB = 1 << 20
PARTITIONS = 12
MANY = 3000
"""Over three brokers."""
OF_ONE = 1000
PER_S = 400


class Failover(NamedTuple):
    """Seconds after the kill. `count` partitions had been the dead broker's; `stood_still_s` is the longest of any,
    between acknowledgements.
    """

    missed_s: float
    sealed_s: float
    written_s: float
    stood_still_s: float
    count: int


def measure(plan: Plan) -> Iterator[Row]:
    """Four rows, of one cluster."""
    with over_minio(plan, "1c3b1p") as cluster:
        topics.create(cluster, "few", partitions=PARTITIONS, retention_bytes=64 * MIB)
        few = uvloop.run(_few(plan, cluster, plan.kills))
        yield _row(
            plan,
            few,
            "writes stand still after kill −9 of a broker, beyond its detection",
            f"{PARTITIONS} partitions, {PER_S} records/s by librdkafka",
            1,
        )
        for number, what in (
            (signal.SIGKILL, "kill −9 and a start at once"),
            (signal.SIGTERM, "a clean stop and a start"),
        ):
            plan.say(f"failover: {what}")
            yield Row(
                topic="failover",
                measure=f"writes stand still at {what} of a broker",
                setting=f"{PARTITIONS} partitions, {PER_S} records/s by librdkafka, over MinIO",
                unit="s",
                bmq=uvloop.run(_restarts(plan, cluster, plan.kills, number)),
                quick=plan.quick,
            )
        topics.create(cluster, "many", partitions=MANY, retention_bytes=64 * MIB)
        many = uvloop.run(_many(plan, cluster, plan.kills))
        count = min(one.count for one in many)
        yield _row(
            plan,
            many,
            "all partitions of a killed broker take records elsewhere, beyond its detection",
            f"{count:,} partitions or more",
            3,
        )


def _row(plan: Plan, found: list[Failover], measure: str, setting: str, target_s: float) -> Row:
    missed = sorted(one.missed_s for one in found)
    standing = sorted(one.stood_still_s or one.written_s for one in found)
    return Row(
        topic="failover",
        measure=measure,
        setting=f"{setting}, over MinIO",
        unit="s",
        bmq=[(one.stood_still_s or one.written_s) - one.missed_s for one in found],
        target=target_s,
        target_of="bmq",
        at_least=False,
        beside=f"missed after {missed[0]:.1f} to {missed[-1]:.1f} s (lease 6 s); in all {standing[0]:.1f} to "
        f"{standing[-1]:.1f} s",
        quick=plan.quick,
    )


async def _few(plan: Plan, cluster: Cluster, kills: int) -> list[Failover]:
    found: list[Failover] = []
    async with watching(cluster.store) as watch:
        for turn in range(kills):
            victim, mine = _victim(watch, "few")
            plan.say(f"failover of {len(mine)} partitions: round {turn + 1}, broker {victim}")
            with SteadyWriter(cluster.address, "few", range(PARTITIONS), per_s=PER_S) as writer:
                await asyncio.sleep(2)
                killed_s = perf_counter()
                cluster.kill(victim)
                await watch.until(lambda _, victim=victim: not watch.owned("few", victim))
                there_s = perf_counter()
                written_s = await writer.until_written(mine, since_s=there_s)
                await asyncio.sleep(0.5)
                stood_still_s = max(writer.stood_still_s(index, since_s=killed_s) for index in mine)
            assert not writer.failed, f"{len(writer.failed)} records failed: {writer.failed[0]}"
            found.append(
                _failover(watch, victim, killed_s, written_s=written_s, stood_still_s=stood_still_s, count=len(mine))
            )
            _say(plan, found[-1])
            await _back(watch, cluster, victim)
    return found


async def _restarts(plan: Plan, cluster: Cluster, rounds: int, number: signal.Signals) -> list[float]:
    """The longest pause of any partition of a broker that ends so and is started again."""
    found: list[float] = []
    async with watching(cluster.store) as watch:
        for _ in range(rounds):
            victim, mine = _victim(watch, "few")
            epoch = watch.image.last_epochs[NodeId(victim)]
            with SteadyWriter(cluster.address, "few", range(PARTITIONS), per_s=PER_S) as writer:
                await asyncio.sleep(2)
                ended_s = perf_counter()
                await asyncio.to_thread(cluster.nodes[victim].end, number)
                cluster.nodes[victim].begin()
                await watch.until(lambda image, victim=victim, epoch=epoch: image.last_epochs[NodeId(victim)] > epoch)
                await writer.until_written(mine, since_s=perf_counter())
                await asyncio.sleep(0.5)
                found.append(max(writer.stood_still_s(index, since_s=ended_s) for index in mine))
            assert not writer.failed, f"{len(writer.failed)} records failed: {writer.failed[0]}"
            plan.say(f"  {len(mine)} partitions stood still {found[-1]:.2f} s")
            await asyncio.to_thread(cluster.nodes[victim].until_serving)
    return found


async def _many(plan: Plan, cluster: Cluster, kills: int) -> list[Failover]:
    found: list[Failover] = []
    frames = [produce_frame("many", index, records=1, record_bytes=1024, fill=os.urandom(509)) for index in range(MANY)]
    port = int(cluster.of(Role.PROXY)[0].kafka.rpartition(":")[2])
    async with watching(cluster.store) as watch:
        for turn in range(kills):
            plan.say(f"failover of a thousand partitions: round {turn + 1}, writing to all of them")
            await write_to_each(port, "many", enumerate(frames))
            Filler(cluster.address).fill("many", 0, 32 * MIB)  # what its heirs have to read besides
            victim, mine = _victim(watch, "many")
            assert len(mine) >= OF_ONE, f"broker {victim} has {len(mine)} partitions only"
            killed_s = perf_counter()
            cluster.kill(victim)
            written_s = await write_to_each(port, "many", ((index, frames[index]) for index in mine))
            found.append(_failover(watch, victim, killed_s, written_s=written_s, stood_still_s=0.0, count=len(mine)))
            _say(plan, found[-1])
            await _back(watch, cluster, victim)
    return found


def _victim(watch: Watch, topic: str) -> tuple[int, list[int]]:
    """The broker that owns most of the topic, and what it owns."""
    owned = {
        node_id: watch.owned(topic, node_id) for node_id, node in watch.image.nodes.items() if "broker" in node.roles
    }
    return max(owned.items(), key=lambda one: len(one[1]))


def _failover(
    watch: Watch, victim: int, killed_s: float, *, written_s: float, stood_still_s: float, count: int
) -> Failover:
    missed_s = next(at_s for at_s, record in watch.records(FencingBegun, after_s=killed_s) if record.node_id == victim)
    sealed_s = next(at_s for at_s, record in watch.records(StreamSealed, after_s=killed_s) if record.node_id == victim)
    return Failover(missed_s - killed_s, sealed_s - killed_s, written_s - killed_s, stood_still_s, count)


def _say(plan: Plan, one: Failover) -> None:
    plan.say(
        f"  {one.count} partitions: missed after {one.missed_s:.2f} s, sealed and with heirs after "
        f"{one.sealed_s:.2f} s, all written to after {one.written_s:.2f} s; stood still {one.stood_still_s:.2f} s"
    )


async def _back(watch: Watch, cluster: Cluster, node_id: int) -> None:
    """The broker comes back, without partitions: it will be the heir at the next kill."""
    cluster.start_again(node_id)
    await watch.until(lambda image: node_id in image.nodes)
