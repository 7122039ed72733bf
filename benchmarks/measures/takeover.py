"""How long the cluster is without a leading controller when the one is killed, over MinIO; and that nobody who writes
notices.
"""

import asyncio
from collections.abc import Iterator
from time import perf_counter

import uvloop

from benchmarks import topics
from benchmarks.clients.writer import SteadyWriter
from benchmarks.nodes import Cluster, over_minio
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.watch import Watch, insisting, watching
from bmq.metadata.records import LeaderElected
from bmq.values import NodeId

MIB = 1 << 20
PER_S = 200


def measure(plan: Plan) -> Iterator[Row]:
    """Three rows, of one cluster."""
    led: list[float] = []
    served: list[float] = []
    stood_still: list[float] = []
    with over_minio(plan, "2c1b1p") as cluster:
        topics.create(cluster, "written", partitions=1, retention_bytes=64 * MIB)
        uvloop.run(_kills(plan, cluster, led, served, stood_still))
    shared = {
        "topic": "takeover",
        "setting": "1 standby, over MinIO",
        "unit": "s",
        "target_of": "bmq",
        "at_least": False,
        "quick": plan.quick,
    }
    yield Row(measure="a standby leads after kill −9 of the leading controller", bmq=led, target=3, **shared)  # type: ignore[arg-type]
    yield Row(measure="it has committed a change of the metadata", bmq=served, target=3, **shared)  # type: ignore[arg-type]
    yield Row(
        measure="writes stand still meanwhile", bmq=stood_still, beside=f"{PER_S} records/s by librdkafka", **shared
    )  # type: ignore[arg-type]


async def _kills(plan: Plan, cluster: Cluster, led: list[float], served: list[float], stood_still: list[float]) -> None:
    async with watching(cluster.store) as watch:
        with SteadyWriter(cluster.address, "written", [0], per_s=PER_S) as writer:
            for turn in range(plan.kills):
                await _until_stood_by(watch)
                leader = watch.image.controller_id
                plan.say(f"takeover: round {turn + 1}, controller {leader}")
                cordoned = not watch.image.cordoned
                killed_s = perf_counter()
                cluster.kill(leader)
                await watch.until(lambda image, leader=leader: image.controller_id != leader)  # type: ignore[misc]
                led.append(next(at_s for at_s, _ in watch.records(LeaderElected, after_s=killed_s)) - killed_s)
                await insisting(lambda leader=leader, cordoned=cordoned: watch.control.cordon(NodeId(leader), cordoned))  # type: ignore[misc]
                served.append(perf_counter() - killed_s)
                await asyncio.sleep(1)
                stood_still.append(writer.stood_still_s(0, since_s=killed_s))
                plan.say(
                    f"  led after {led[-1]:.2f} s, a change committed after {served[-1]:.2f} s; writes stood still "
                    f"{stood_still[-1] * 1000:.0f} ms"
                )
                cluster.start_again(leader)
        assert not writer.failed, writer.failed[0]


async def _until_stood_by(watch: Watch) -> None:
    """Both controllers are registered, and have been for as long as it takes to follow."""
    await watch.until(lambda image: sum("controller" in node.roles for node in image.nodes.values()) == 2)
    await asyncio.sleep(3)
