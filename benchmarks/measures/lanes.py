"""A lane that falls back: how many messages a second go on to the base while they are written, and how long one
takes.
"""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from statistics import quantiles
from time import perf_counter
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.waiting import until

from benchmarks import topics
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq

LANE: Final = "dev"
MESSAGES: Final = 200_000
MESSAGES_QUICK: Final = 40_000
LONE: Final = 50
PARTITIONS: Final = (4, 1_000)
UNDER_WAY: Final = 50_000
LOOK_S: Final = 0.002


def measure(plan: Plan) -> Iterator[Row]:
    """Two rows for each number of partitions."""
    with Bmq(plan.folder("bmq")) as bmq:
        _make_lane(bmq)
        for partitions in PARTITIONS:
            yield from _measure(plan, bmq, partitions)


def _measure(plan: Plan, bmq: Bmq, partitions: int) -> Iterator[Row]:
    topic, setting = f"falls-{partitions}", f"1 KiB, {partitions:,} partitions"
    topics.create(bmq, topic, partitions=partitions)
    base, writer, value = _Base(bmq, topic, partitions), _writer(bmq), b"x" * RECORD_BYTES
    plan.say(f"lanes: {setting}")
    for index in range(partitions):
        writer.produce(topic, value, partition=index)
    writer.flush(60)
    base.wait([1] * partitions)
    rates, each = [], (MESSAGES_QUICK if plan.quick else MESSAGES) // partitions
    for _ in range(plan.rounds):
        began_s = perf_counter()
        for number in range(each * partitions):
            writer.poll(0.1 if len(writer) > UNDER_WAY else 0)
            writer.produce(topic, value, partition=number % partitions)
        writer.flush(60)
        base.wait([each] * partitions)
        rates.append(each * partitions / (perf_counter() - began_s))
        plan.say(f"  {rates[-1]:.0f} messages/s")
    yield _row(plan, "messages that go on to the base while they are written", setting, "/s", rates)
    took_ms = []
    for _ in range(LONE):
        writer.produce(topic, value, partition=0)
        writer.flush(60)
        began_s = perf_counter()
        base.wait([1])
        took_ms.append((perf_counter() - began_s) * 1000)
    beside = f"p95 {quantiles(took_ms, n=20)[18]:.0f} ms; it is looked for every {LOOK_S * 1000:g} ms"
    yield _row(
        plan, "a lone message, from its acknowledgement until it is in the base", setting, "ms", took_ms, beside=beside
    )


class _Base:
    """The base's topic, and how much of it is waited for."""

    def __init__(self, bmq: Bmq, topic: str, partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": bmq.address, "group.id": "ends", "enable.auto.commit": False})
        self._topic = topic
        self._ends = [0] * partitions

    def wait(self, more: list[int]) -> None:
        """Returns when so many more are in each of the first partitions."""
        behind = set(range(len(more)))
        for index in behind:
            self._ends[index] += more[index]

        def left() -> int:
            behind.difference_update([one for one in behind if self._end(one) >= self._ends[one]])
            return len(behind)

        until(left, "the base to have all", 300, holds=lambda partitions: not partitions, every_s=LOOK_S)

    def _end(self, index: int) -> int:
        return self._consumer.get_watermark_offsets(TopicPartition(self._topic, index), timeout=30)[1]


def _writer(bmq: Bmq) -> Producer:
    return Producer({"bootstrap.servers": bmq.address, "client.id": f"bench,lane={LANE}", "linger.ms": 5})


def _make_lane(bmq: Bmq) -> None:
    connection = HTTPConnection("127.0.0.1", bmq.admin_port, timeout=30)
    body = json.dumps({"name": LANE, "fallback": "base"})
    connection.request("POST", "/v1/lanes", body=body, headers={"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status in (200, 201), answer.read()
    connection.close()


def _row(plan: Plan, what: str, setting: str, unit: str, figures: list[float], *, beside: str = "") -> Row:
    return Row(
        topic="lanes",
        measure=f"lanes: {what}",
        setting=setting,
        unit=unit,
        bmq=figures,
        beside=beside,
        quick=plan.quick,
    )
