"""The sidecar: messages of 1 KiB a second one by one, in hundreds and as a stream, for both acknowledgements, beside
librdkafka that writes to the same bmq; large messages into a spool; and a spool that is sent after an outage.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Final

import uvloop
from tests.waiting import until

from benchmarks import topics
from benchmarks.clients import librdkafka
from benchmarks.clients.http import closed_loops, post, stream
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Databus

MIB: Final = 1 << 20
ACKNOWLEDGEMENTS: Final = ("durable", "accepted")
WRITERS: Final = 64
"""Connections that write one message at a time."""
BATCHERS: Final = 16
BATCH: Final = 100
LINES: Final = 64
"""That a stream sends at a time."""
LARGE_BYTES: Final = 64 << 10
LARGE: Final = 48
"""In one body: base64 makes 4 MiB of them."""
OUTAGE_BYTES: Final = 2 << 30
OUTAGE_BYTES_QUICK: Final = 128 << 20
RSS_MIB_MAX: Final = 100

TARGETS: Final = {"one": 3_000.0, "hundreds": 60_000.0, "stream": 100_000.0}


def measure(plan: Plan) -> Iterator[Row]:
    """Two rows for each way and acknowledgement, then memory, the spool and an outage."""
    with Bmq(plan.folder("bmq")) as bmq, Databus(plan.folder("databus"), bmq.address) as sidecar:
        os.sched_setaffinity(sidecar.pid, {0})  # "on one core"; threads that it has already stay elsewhere
        for topic in ("durable", "accepted", "direct"):
            topics.create(bmq, topic, partitions=4, retention_bytes=1 << 30)
        direct = [_direct(plan, bmq) for _ in range(plan.rounds)]
        for channel in ACKNOWLEDGEMENTS:
            value = os.urandom(RECORD_BYTES // 2).hex().encode()
            one = post(_path(channel), value, media="text/plain")
            yield from _one(plan, sidecar, f"{channel}, one message a request", one, target=TARGETS["one"])
            yield _many(plan, sidecar, channel, "hundreds", direct)
            yield _many(plan, sidecar, channel, "stream", direct)
        record = json.dumps({"value": {"type": "STRING", "data": value.decode()}}).encode()
        of_rest = post("/v3/clusters/any/topics/durable/records", record, media="application/json")
        yield from _one(plan, sidecar, "durable, one record a request of Confluent's REST API", of_rest)
        yield _row(plan, "RSS", "after that", "MiB", [sidecar.rss_bytes / MIB], target=RSS_MIB_MAX, at_least=False)
        yield _large(plan, sidecar)
    yield _outage(plan)


def _one(plan: Plan, sidecar: Databus, what: str, request: bytes, *, target: float | None = None) -> Iterator[Row]:
    rates, p50_ms, p99_ms, cpu_us = [], [], [], []
    for turn in range(-1, plan.rounds):
        plan.say(f"databus, {what}: round {turn + 1}")
        before_s, began_s = sidecar.cpu_s, monotonic()
        took_s = uvloop.run(closed_loops(sidecar.port, request, connections=WRITERS, seconds=plan.phase_s))
        seconds, used_s = monotonic() - began_s, sidecar.cpu_s - before_s
        plan.say(f"  {len(took_s) / seconds:.0f} requests/s")
        if turn >= 0:  # the one before warms up
            rates.append(len(took_s) / seconds)
            p50_ms.append(took_s[len(took_s) // 2] * 1000)
            p99_ms.append(took_s[len(took_s) * 99 // 100] * 1000)
            cpu_us.append(used_s / len(took_s) * 1e6)
    beside = f"{WRITERS} connections, {statistics.median(cpu_us):.0f} µs of the sidecar's processor each"
    yield _row(plan, what, "1 KiB", "/s", rates, target=target, beside=beside)
    spread = f"p99 {statistics.median(p99_ms):.1f} ms"
    yield _row(plan, f"{what}, p50", "1 KiB", "ms", p50_ms, beside=spread)


def _many(plan: Plan, sidecar: Databus, channel: str, way: str, direct: list[float]) -> Row:
    text = os.urandom(RECORD_BYTES // 2).hex()
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for _ in range(BATCH if way == "hundreds" else LINES))
    run: Callable[[], float]
    if way == "hundreds":
        request = post(_path(channel), lines, media="application/x-ndjson")

        def run() -> float:
            began_s = monotonic()
            took_s = uvloop.run(closed_loops(sidecar.port, request, connections=BATCHERS, seconds=plan.phase_s))
            return len(took_s) * BATCH / (monotonic() - began_s)
    else:

        def run() -> float:
            return uvloop.run(stream(sidecar.port, _path(channel), lines, seconds=plan.phase_s))

    rates, cpu_us = [], []
    for turn in range(plan.rounds):
        plan.say(f"databus, {channel}, {way}: round {turn + 1}")
        before_s, began_s = sidecar.cpu_s, monotonic()
        rates.append(run())
        cpu_us.append((sidecar.cpu_s - before_s) / (rates[-1] * (monotonic() - began_s)) * 1e6)
        plan.say(f"  {rates[-1]:.0f} messages/s")
    what = f"{BATCH} messages a request" if way == "hundreds" else "a stream"
    return _row(
        plan,
        f"{channel}, {what}",
        "1 KiB",
        "/s",
        rates,
        target=TARGETS[way],
        beside=f"{statistics.median(cpu_us):.1f} µs of the sidecar's processor a message",
        peer_name="librdkafka, directly",
        peer=direct,
    )


def _large(plan: Plan, sidecar: Databus) -> Row:
    value = os.urandom(LARGE_BYTES).hex()[:LARGE_BYTES]
    lines = b"".join(json.dumps({"text": value}).encode() + b"\n" for _ in range(LARGE))
    request = post(_path("accepted"), lines, media="application/x-ndjson")
    rates = []
    for turn in range(plan.rounds):
        plan.say(f"databus, into the spool: round {turn + 1}")
        began_s = monotonic()
        took_s = uvloop.run(closed_loops(sidecar.port, request, connections=2, seconds=plan.phase_s))
        rates.append(len(took_s) * LARGE * LARGE_BYTES / MIB / (monotonic() - began_s))
        plan.say(f"  {rates[-1]:.0f} MiB/s")
    return _row(plan, "accepted into the spool", "64 KiB", "MiB/s", rates, target=150.0)


def _outage(plan: Plan) -> Row:
    """A sidecar fills its spool without a cluster, which then comes: how fast it is sent while new messages go on."""
    size_bytes = OUTAGE_BYTES_QUICK if plan.quick else OUTAGE_BYTES
    value = os.urandom(RECORD_BYTES // 2).hex()
    lines = b"".join(json.dumps({"text": value}).encode() + b"\n" for _ in range(1_000))
    request = post(_path("accepted"), lines, media="application/x-ndjson")
    bmq = Bmq(plan.folder("bmq"))
    with Databus(plan.folder("databus"), bmq.address) as sidecar:
        plan.say(f"databus: {size_bytes / MIB:.0f} MiB into the spool without a cluster")
        written = 0
        while written * RECORD_BYTES < size_bytes:
            written += 1_000 * len(uvloop.run(closed_loops(sidecar.port, request, connections=1, seconds=1.0)))
        with bmq:
            began_s, small = (
                monotonic(),
                post(_path("accepted"), value.encode(), media="text/plain"),
            )  # it makes the topic

            def left() -> float:
                uvloop.run(closed_loops(sidecar.port, small, connections=1, seconds=0.5))
                return sidecar.metrics()["bmq_databus_spool_messages"]

            until(left, "the spool to be sent", 3_600, holds=lambda messages: messages < 1_000, every_s=0)
            rate = written * RECORD_BYTES / MIB / (monotonic() - began_s)
    plan.say(f"  {rate:.0f} MiB/s")
    setting = f"{written * RECORD_BYTES / MIB:.0f} MiB of 1 KiB, while new ones come"
    return _row(plan, "spool sent after an outage", setting, "MiB/s", [rate], target=50.0)


def _direct(plan: Plan, bmq: Bmq) -> float:
    records = 200_000 if plan.quick else 2_000_000
    produced = librdkafka.produce(
        bmq, "direct", records=records, record_bytes=RECORD_BYTES, batch_bytes=1 << 20, timeout_s=600
    )
    return produced.mib_per_s * MIB / RECORD_BYTES


def _path(channel: str) -> str:
    return f"/v1/channels/{channel}/messages"


def _row(plan: Plan, measure: str, setting: str, unit: str, figures: list[float], **more: Any) -> Row:
    return Row(
        topic="databus",
        measure=f"databus: {measure}",
        setting=setting,
        unit=unit,
        bmq=figures,
        target_of="bmq",
        quick=plan.quick,
        **more,
    )
