"""Requests per second: one record of 1 KiB each, 64 in flight, on one connection and on 64."""

import os
from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter

import uvloop

from benchmarks import topics
from benchmarks.clients.bare import Connection, check_produced, produce_frame
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Kafka, Server

IN_FLIGHT = 64
LAYOUTS = ((1, 64), (64, 1))
"""(connections, in flight on each). Kafka handles one request of a connection at a time, bmq several."""


def measure(plan: Plan) -> Iterator[Row]:
    """A row per layout."""
    with Bmq(plan.folder("bmq")) as bmq, Kafka(plan.folder("kafka")) as kafka:
        topic = "requests"
        contenders: list[tuple[str, Server]] = [("bmq", bmq), ("Kafka", kafka)]
        for _, server in contenders:
            topics.create(server, topic, partitions=1, retention_bytes=1 << 30)
        for connections, in_flight in LAYOUTS:
            rates: dict[str, list[float]] = defaultdict(list)
            for turn in range(-1, plan.rounds):
                for name, server in contenders:
                    plan.say(f"requests, {connections} × {in_flight}: round {turn + 1}, {name}")
                    rate = uvloop.run(
                        _rate(server.port, topic, connections, in_flight, seconds=plan.phase_s if turn >= 0 else 3)
                    )
                    plan.say(f"  {rate:.0f} requests/s")
                    if turn >= 0:  # the one before warms up
                        rates[name].append(rate)
            yield Row(
                topic="requests",
                measure="requests of one 1 KiB record, 64 in flight",
                setting=f"{connections} connection{'s' * (connections > 1)} × {in_flight}",
                unit="/s",
                bmq=rates["bmq"],
                peer_name="Kafka",
                peer=rates["Kafka"],
                target=0.5,
                beside="bmq fsyncs, Kafka does not",
                quick=plan.quick,
            )


async def _rate(port: int, topic: str, connections: int, in_flight: int, *, seconds: float) -> float:
    frame = produce_frame(topic, 0, records=1, record_bytes=RECORD_BYTES, fill=os.urandom(509))
    loads = [_Load(await Connection.open(port), topic, frame) for _ in range(connections)]
    start = perf_counter()
    for load in loads:
        load.begin(in_flight, until=start + seconds)
    for load in loads:
        await load.connection.lost
    count = sum(load.count for load in loads)
    assert all(not load.failures for load in loads), next(load.failures[0] for load in loads if load.failures)
    return count / seconds


class _Load:
    """A connection on which every answer sends the next request, until the time is over."""

    def __init__(self, connection: Connection, topic: str, frame: bytes) -> None:
        self.connection = connection
        self.count = 0
        self.failures: list[str] = []
        self._topic = topic
        self._frame = frame
        self._until = 0.0
        self._left = 0

    def begin(self, in_flight: int, *, until: float) -> None:
        self._until = until
        self._left = in_flight
        self.connection.send(self._frame * in_flight, *[self._answered] * in_flight)

    def _answered(self, answer: memoryview) -> None:
        try:
            check_produced(self._topic, answer)
        except AssertionError as error:
            self.failures.append(str(error))
        if perf_counter() < self._until:
            self.count += 1
            self.connection.send(self._frame, self._answered)
            return
        self._left -= 1
        if not self._left:
            self.connection.close()
