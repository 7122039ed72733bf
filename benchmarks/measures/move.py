"""How long it takes to move a partition of 10 GiB to another node: bmq, which copies nothing, against Kafka's
reassignment.
"""

import asyncio
from collections.abc import Iterator, Sequence
from os import environ, sync
from pathlib import Path
from statistics import median
from time import perf_counter

import uvloop
from confluent_kafka.admin import AdminClient
from tests.waiting import until

from benchmarks import topics
from benchmarks.clients import librdkafka
from benchmarks.clients.writer import SteadyWriter
from benchmarks.nodes import Cluster
from benchmarks.plan import GIB, RECORD_BYTES, Plan
from benchmarks.processes import run_client
from benchmarks.rows import Row
from benchmarks.servers import ROOT, Kafka, Minio, Server
from benchmarks.watch import watching
from bmq.values import NodeId

TOPIC = "moved"
BROKERS = (101, 102)
BACK_AND_FORTH = 10
"""Moves of bmq's in a round."""
POLL_S = 0.02


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each store of bmq's, with the same peer."""
    kafka_s = [_kafka(plan, turn) for turn in range(plan.rounds)]
    yield _row(plan, "a folder", _bmq(plan, plan.folder("bmq"), store=None), kafka_s)
    with Minio(plan.folder("minio")) as minio:
        environ.update(minio.environment)
        yield _row(plan, "MinIO", _bmq(plan, plan.folder("bmq"), store=minio.store_url("bench")), kafka_s)


def _row(plan: Plan, store: str, moves_s: list[float], kafka_s: list[float]) -> Row:
    rounds = [moves_s[at : at + BACK_AND_FORTH] for at in range(0, len(moves_s), BACK_AND_FORTH)]
    return Row(
        topic="move",
        measure="move of a partition to another node, until it is there and takes records",
        setting=f"{plan.move_bytes / GIB:g} GiB, over {store}",
        unit="s",
        bmq=[median(one) for one in rounds],
        peer_name="Kafka",
        peer=kafka_s,
        target=0.01,
        at_least=False,
        beside=f"bmq: median of {BACK_AND_FORTH} moves under 100 records/s, at most {max(moves_s):.2f} s; Kafka: "
        "no load, until the target is alone",
        quick=plan.quick,
    )


def _fill(plan: Plan, server: Server) -> None:
    plan.say(f"move: filling {server.name} with {plan.move_bytes / GIB:g} GiB")
    sizes = {
        "records": plan.move_bytes // RECORD_BYTES,
        "record_bytes": RECORD_BYTES,
        "batch_bytes": 256 << 10,
        "timeout_s": 1800,
    }
    librdkafka.produce(server, TOPIC, **sizes)
    sync()


def _bmq(plan: Plan, folder: Path, *, store: str | None) -> list[float]:
    with Cluster(folder, "1c2b1p", store=store) as cluster:
        topics.create(cluster, TOPIC, partitions=1, retention_bytes=-1)
        _fill(plan, cluster)
        found = uvloop.run(_moves(cluster, BACK_AND_FORTH * plan.rounds))
        plan.say(f"  bmq: {', '.join(f'{one:.3f}' for one in sorted(found))} s")
        return found


async def _moves(cluster: Cluster, count: int) -> list[float]:
    """From asking for it until a record is acknowledged that was sent after the new owner's name had come."""
    found: list[float] = []
    async with watching(cluster.store) as watch:
        tp = watch.partition(TOPIC, 0)
        with SteadyWriter(cluster.address, TOPIC, [0], per_s=100) as writer:
            for _ in range(count):
                target = next(node_id for node_id in BROKERS if node_id != watch.meta(tp).node_id)
                began_s = perf_counter()
                await watch.move(tp, NodeId(target))
                there_s = perf_counter()
                found.append(await writer.until_written([0], since_s=there_s) - began_s)
                await asyncio.sleep(0.5)
        assert not writer.failed, writer.failed[0]
    return found


class _KafkaNode(Kafka):
    """One of two nodes; the first is their controller."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.settings = (*Kafka.settings, *settings)


def _kafka(plan: Plan, turn: int) -> float:
    with _KafkaNode(plan.folder("kafka-1")) as first:
        second_port = ("process.roles=broker", "node.id=2", f"controller.quorum.voters=1@127.0.0.1:{first.port + 1}")
        second = _KafkaNode(plan.folder("kafka-2"), second_port)
        second.settings += (f"listeners=PLAINTEXT://127.0.0.1:{second.port}",)
        with second:
            # it looks for the nodes when they have gone
            admin = AdminClient({"bootstrap.servers": first.address, "log_level": 0})
            until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "Kafka to come to it", 60, every_s=POLL_S)
            topics.create(first, TOPIC, partitions=1, retention_bytes=-1)
            _fill(plan, first)
            plan.say(f"move: round {turn + 1}, Kafka")
            partition = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]
            took_s = _reassigned(plan, first, admin, 3 - partition.leader)
            plan.say(f"  Kafka: {took_s:.1f} s")
            return took_s


def _reassigned(plan: Plan, server: Server, admin: AdminClient, target: int) -> float:
    """Seconds from when Kafka began (which its tool, a JVM, takes its time for) until the target is the only replica
    and leads.
    """
    wanted = plan.folder("reassignment") / "plan.json"
    wanted.write_text(
        f'{{"version": 1, "partitions": [{{"topic": "{TOPIC}", "partition": 0, "replicas": [{target}]}}]}}'
    )
    tool = [str(ROOT / "tools" / "kafka"), "run", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"]
    before_s = perf_counter()
    run_client(
        [*tool, "--bootstrap-server", server.address, "--reassignment-json-file", str(wanted), "--execute"],
        timeout_s=120,
    )
    asked_s = perf_counter()
    until(lambda: _is_at(admin, target), "Kafka to come to it", 1800, every_s=POLL_S)
    plan.say(f"  {perf_counter() - before_s:.1f} s with the tool's start")
    wanted.unlink()
    wanted.parent.rmdir()
    return perf_counter() - asked_s


def _is_at(admin: AdminClient, target: int) -> bool:
    partition = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]
    return bool(partition.leader == target and partition.replicas == [target] and partition.isrs == [target])
