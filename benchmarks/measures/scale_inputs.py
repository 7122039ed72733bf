"""What docs/scale.md computes with: what a partition, an entry, a heartbeat and a takeover cost, each measured by
itself.

The image and the leader are the services' own, in this process; what a partition costs a broker is measured in started
nodes.
"""

import asyncio
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from os import environ
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple
from uuid import UUID

import uvloop
from tests.waiting import until_async

from benchmarks import processes, topics
from benchmarks.clients.bare import Connection, check_produced, produce_frame
from benchmarks.measures.latency import quantile_ms
from benchmarks.nodes import Cluster
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import Minio
from bmq.internal.calls.controller_calls import HEARTBEAT
from bmq.metadata.codec import decode_records, decode_snapshot, encode_records, encode_snapshot
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_image, check_step
from bmq.metadata.records import AnyRecord, ClusterCreated, FencingBegun, NodeRegistered, PartitionChange, TopicCreated
from bmq.ports import ObjectStore
from bmq.roles.controller import Heartbeat, PartitionLoad, Registration
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.logging import configure_logging
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url
from bmq.runtime.system import SystemClock, SystemRng
from bmq.values import BrokerEpoch, NodeId, Nonce, TopicId, TopicPartition
from bmq_controller.machine.balance import plan as plan_balance
from bmq_controller.machine.balance_input import cluster_load
from bmq_controller.machine.balance_model import BalanceSettings
from bmq_controller.machine.fencing import complete_fencing
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_node.configuration.values import Role

MIB = 1 << 20
NODES = 1000
TOPIC_PARTITIONS = 50
LOADS = 1000
NONCE = Nonce(bytes(16))
OPENED = 10_000
SECONDS = 5.0


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each input; none has a target."""
    yield from _image_rows(plan)
    yield from _leader_rows(plan)
    yield from _broker_rows(plan)


def _row(plan: Plan, measure: str, unit: str, values: Sequence[float], *, setting: str, beside: str = "") -> Row:
    plan.say(f"  {measure}: {median(values):.6g} {unit} ({beside})")
    return Row(
        topic="scale-inputs",
        measure=measure,
        setting=setting,
        unit=unit,
        bmq=list(values),
        beside=beside,
        quick=plan.quick,
    )


def _image_rows(plan: Plan) -> Iterator[Row]:
    partitions = plan.metadata_partitions * 5
    setting = f"{partitions:,} partitions on {NODES:,} brokers, topics of {TOPIC_PARTITIONS}"
    plan.say(f"scale-inputs: an image of {setting}")
    rss_before = processes.rss_bytes(os.getpid())
    image, fold_s = _image(partitions)
    rss = processes.rss_bytes(os.getpid()) - rss_before
    yield _row(plan, "memory of a partition in a node's image", "B", [rss / partitions], setting=setting)
    yield _row(
        plan,
        "fold of a record into the image",
        "µs",
        [fold_s / partitions * 1e6],
        setting=setting,
        beside="entries of 5,000 records",
    )

    parts, encode_s = _timed(lambda: encode_snapshot(image, entry_nonce=NONCE, nonce=NONCE))
    data = b"".join(parts)
    yield _row(
        plan,
        "snapshot of a partition",
        "B",
        [len(data) / partitions],
        setting=setting,
        beside=f"encoded in {encode_s:.2f} s",
    )
    _, decode_s = _timed(lambda: decode_snapshot(data, what="snapshot"))
    _, check_s = _timed(lambda: check_image(image))
    whole_s = decode_s + check_s
    yield _row(
        plan,
        "load of a snapshot",
        "s",
        [whole_s],
        setting=setting,
        beside=f"decoded in {decode_s:.2f} s, checked in {check_s:.2f} s",
    )

    one, one_s = _change(image, 1)
    yield _row(
        plan,
        "an entry with one partition's change, at each node",
        "µs",
        [one_s * 1e6],
        setting=setting,
        beside=f"{len(one)} B of records",
    )
    yield from _fencing_rows(plan, image, setting)
    loads = {
        TopicPartition(topic_id, index): 100_000.0 for topic_id in image.topics for index in range(TOPIC_PARTITIONS)
    }
    cluster, input_s = _timed(lambda: cluster_load(image, loads))
    found, plan_s = _timed(lambda: plan_balance(cluster, BalanceSettings()))
    beside = f"{len(found.moves)} moves; input {input_s:.2f} s, plan {plan_s:.2f} s; once a second, in a thread"
    yield _row(plan, "a round of the balancer", "s", [input_s + plan_s], setting=setting, beside=beside)


def _fencing_rows(plan: Plan, image: Image, setting: str) -> Iterator[Row]:
    """The death of a broker: what the leader computes, and what every node folds."""
    who = NodeId(1), image.nodes[NodeId(1)].broker_epoch
    begun = apply(image, image.position + 1, [FencingBegun(node_id=who[0], broker_epoch=who[1])])
    decision, decide_s = _timed(lambda: complete_fencing(begun, who, end=1000))
    payload = encode_records(decision.records)
    after, fold_s = _timed(lambda: apply(begun, begun.position + 1, decode_records(payload, what="entry")))
    _, check_s = _timed(lambda: check_step(begun, after))
    count = len(decision.records) - 2
    beside = (
        f"{count} partitions, an entry of {len(payload):,} B; folded in {fold_s * 1e3:.0f} ms and checked in "
        f"{check_s * 1e3:.0f} ms at each node"
    )
    yield _row(
        plan, "the heirs of a broker's partitions, decided", "ms", [decide_s * 1e3], setting=setting, beside=beside
    )


def _image(partitions: int) -> tuple[Image, float]:
    """The image, and the CPU seconds of its fold."""
    started: list[AnyRecord] = [ClusterCreated(cluster_id="scale")]
    boot = UUID(int=1)
    started += [
        NodeRegistered(
            node_id=n,
            broker_epoch=1,
            boot=boot,
            roles=("broker",),
            host="",
            port=0,
            rack=f"zone-{n % 3}",
            internal_host="10.0.0.1",
            internal_port=9190,
        )
        for n in range(1, NODES + 1)
    ]
    image = apply(Image(), 1, started)
    taken_s = 0.0
    batch = 5000 // TOPIC_PARTITIONS
    count = partitions // TOPIC_PARTITIONS
    for first in range(0, count, batch):
        records: list[AnyRecord] = []
        for number in range(first, min(first + batch, count)):
            topic_id = UUID(int=(number + 1) << 64 | 7)
            records.append(
                TopicCreated(
                    topic_id=topic_id, name=f"a-topic-with-a-name-{number}", partitions=TOPIC_PARTITIONS, leader_epoch=0
                )
            )
            for index in range(TOPIC_PARTITIONS):
                owner = (number * TOPIC_PARTITIONS + index) % NODES + 1
                records.append(
                    PartitionChange(topic_id=topic_id, partition=index, node_id=owner, broker_epoch=1, leader_epoch=1)
                )
        payload = encode_records(records)
        del records
        began_s = process_time()
        image = apply(image, image.position + 1, decode_records(payload, what="entry"))
        taken_s += process_time() - began_s
    return image, taken_s


def _change(image: Image, count: int) -> tuple[bytes, float]:
    """An entry that gives so many partitions of as many topics to others: its records, and the seconds that a node
    takes for it.
    """
    changes = [
        PartitionChange(topic_id=topic_id, partition=0, node_id=2, broker_epoch=1, leader_epoch=2)
        for topic_id, _ in zip(image.topics, range(count))  # noqa: B905
    ]
    payload = encode_records(changes)

    def follow() -> None:
        after = apply(image, image.position + 1, decode_records(payload, what="entry"))
        check_step(image, after)

    return payload, min(_timed(follow)[1] for _ in range(5))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds: other work on the machine counts for nothing."""
    gc.collect()
    gc.disable()
    try:
        began_s = process_time()
        found = call()
        return found, process_time() - began_s
    finally:
        gc.enable()


def _leader_rows(plan: Plan) -> Iterator[Row]:
    with Minio(plan.folder("minio")) as minio:
        environ.update(minio.environment)
        url = minio.store_url("bench")
        ensure_bucket(parse_store_url(url))
        store = open_store(url)
        try:
            found = uvloop.run(_leader(store))
        finally:
            store.close()
    yield _row(
        plan,
        "entries that a leader appends one after the other",
        "/s",
        [found.per_s],
        setting="over MinIO",
        beside=f"p50 {found.p50_ms:.1f} ms, p99 {found.p99_ms:.1f} ms",
    )
    yield _row(
        plan, "changes that it commits where 64 wait at a time", "/s", [found.together_per_s], setting="over MinIO"
    )
    for loads, cpu_us in found.heartbeat_us.items():
        beside = f"{found.heartbeat_bytes[loads]:,} B on the wire; decoding it included"
        yield _row(
            plan,
            f"a heartbeat with {loads} loads, CPU of the leader",
            "µs",
            [cpu_us],
            setting=f"{NODES:,} brokers, in one process",
            beside=beside,
        )


class _Leader(NamedTuple):
    per_s: float
    p50_ms: float
    p99_ms: float
    together_per_s: float
    heartbeat_us: dict[int, float]
    heartbeat_bytes: dict[int, int]


async def _leader(store: ObjectStore) -> _Leader:
    configure_logging(environment={"BMQ_LOG_LEVEL": "error"})
    rng = SystemRng()
    role = await start_controller(
        store, node_id=NodeId(1), clock=SystemClock(), rng=rng, settings=ControllerSettings(lease_s=3600)
    )
    try:
        epochs = await _registered(role, rng)
        alone = await _cordons(role, 1)
        together = await _cordons(role, 64)
        cost: dict[int, float] = {}
        size: dict[int, int] = {}
        for loads in (0, LOADS):
            beats = [_beat(node_id, *registered, loads=loads) for node_id, registered in epochs.items()]
            size[loads] = len(beats[0])
            rounds = 3
            before_s = process_time()
            for _ in range(rounds):
                for beat in beats:
                    await role.controller.heartbeat(HEARTBEAT.decode(beat))
            cost[loads] = (process_time() - before_s) / rounds / len(beats) * 1e6
        return _Leader(
            len(alone) / SECONDS, quantile_ms(alone, 0.5), quantile_ms(alone, 0.99), len(together) / SECONDS, cost, size
        )
    finally:
        await role.stop()


async def _registered(role: ControllerRole, rng: SystemRng) -> dict[NodeId, tuple[BrokerEpoch, UUID]]:

    async def register(node_id: NodeId) -> tuple[BrokerEpoch, UUID]:
        boot = rng.uuid()
        registration = Registration(
            node_id=node_id,
            boot=boot,
            roles=("broker",),
            host="",
            port=0,
            internal_host="127.0.0.1",
            internal_port=9190,
        )
        return await role.controller.register(registration), boot

    nodes = [NodeId(1000 + number) for number in range(NODES)]
    return dict(zip(nodes, await asyncio.gather(*map(register, nodes)), strict=True))


async def _cordons(role: ControllerRole, at_once: int) -> list[float]:
    """Seconds of each change; each of the workers cordons and uncordons a node of its own."""
    took: list[float] = []
    until_s = perf_counter() + SECONDS

    async def work(number: int) -> None:
        cordoned = False
        while perf_counter() < until_s:
            cordoned = not cordoned
            began_s = perf_counter()
            await role.controller.cordon(NodeId(1000 + number), cordoned)
            took.append(perf_counter() - began_s)

    await asyncio.gather(*(work(number) for number in range(at_once)))
    return took


def _beat(node_id: NodeId, broker_epoch: BrokerEpoch, boot: UUID, *, loads: int) -> bytes:
    told = tuple(
        PartitionLoad(tp=TopicPartition(TopicId(UUID(int=7 << 64 | index)), index % 50), bytes_per_s=1000.0 + index)
        for index in range(loads)
    )
    return HEARTBEAT.encode(Heartbeat(node_id=node_id, broker_epoch=broker_epoch, boot=boot, loads=told))


def _broker_rows(plan: Plan) -> Iterator[Row]:
    count = OPENED // (10 if plan.quick else 1)
    setting = f"{count:,} partitions with a record of 1 KiB each, over a folder"
    with Cluster(plan.folder("bmq"), "1c1b1p") as cluster:
        topics.create(cluster, "opened", partitions=count, retention_bytes=1 << 30)
        before = {role: cluster.of(role)[0].rss_bytes for role in Role}
        cpu_s = cluster.of(Role.BROKER)[0].cpu_s
        began_s = perf_counter()
        uvloop.run(_open_all(cluster, count))
        took_s = perf_counter() - began_s
        used_s = cluster.of(Role.BROKER)[0].cpu_s - cpu_s
        for role in (Role.BROKER, Role.PROXY):
            grown = cluster.of(role)[0].rss_bytes - before[role]
            beside = (
                f"opened in {took_s:.1f} s, {used_s / count * 1e6:.0f} µs of the broker's CPU each"
                if role is Role.BROKER
                else ""
            )
            yield _row(
                plan,
                f"memory of an open partition in a {role}",
                "KiB",
                [grown / count / 1024],
                setting=setting,
                beside=beside,
            )


async def _open_all(cluster: Cluster, count: int) -> None:
    """One record to each, at most 500 at a time."""

    connection = await Connection.open(int(cluster.of(Role.PROXY)[0].kafka.rpartition(":")[2]))
    failures: list[str] = []
    answered = 0

    def done(answer: memoryview) -> None:
        nonlocal answered
        answered += 1
        try:
            check_produced("opened", answer)
        except AssertionError as error:
            failures.append(str(error))

    for index in range(count):
        await until_async(
            lambda index=index: index - answered,  # type: ignore[misc]
            "room for another",
            600,
            holds=lambda on_the_way: on_the_way < 500,
            unless=connection.lost.done,
            every_s=0.001,
        )
        connection.send(produce_frame("opened", index, records=1, record_bytes=1024, fill=os.urandom(509)), done)
    await until_async(
        lambda: count - answered,
        "all to be answered",
        600,
        holds=lambda left: left <= 0,
        unless=connection.lost.done,
        every_s=0.01,
    )
    connection.close()
    assert not failures, failures[0]
