"""Loads at a fixed rate, by one client on bare sockets, and what their latencies were. Shared by the measures of
latency.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from tests.waiting import until_async

from benchmarks.clients.bare import Connection, check_produced, fetch_frame, fetched_to, produce_frame

FILL = os.urandom(509)
IN_FLIGHT_MAX = 10_000
"""A server that falls so far behind has failed the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """In seconds: until the acknowledgement, and until a consumer at the tail had the record."""

    produced: list[float] = field(default_factory=list)
    consumed: list[float] = field(default_factory=list)


def quantile_ms(seconds: Sequence[float], share: float) -> float:
    """Of what was measured, in ms."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


async def at_rate(per_s: float, seconds: float, send: Callable[[int], None]) -> None:
    """Calls `send(n)` for the nth request when it is due, whatever became of those before it."""
    start = perf_counter()
    sent = 0
    while (elapsed := perf_counter() - start) < seconds:
        due = int(elapsed * per_s)
        while sent < due:
            send(sent)
            sent += 1
        await asyncio.sleep(0.001)


async def steady(
    port: int,
    topic: str,
    *,
    per_s: float,
    records: int,
    record_bytes: int,
    seconds: float,
    warm_up_s: float = 1.0,
    with_consumer: bool = False,
    start_offset: int = 0,
) -> Latencies:
    """Produces to partition 0 at a rate over one connection, and reads it at the tail over another.

    `start_offset` is the partition's end. Nobody else may produce to it meanwhile. What falls into the warm-up is left
    out.
    """
    found = Latencies()
    frame = produce_frame(topic, 0, records=records, record_bytes=record_bytes, fill=FILL)
    producer = await Connection.open(port)
    consumer = await Connection.open(port) if with_consumer else None
    sent_at: list[float] = []
    began = perf_counter()
    failures: list[Exception] = []
    acknowledged = 0
    read_to = start_offset

    def send(number: int) -> None:
        if failures:
            raise failures[0]
        assert number - acknowledged < IN_FLIGHT_MAX, (
            f"{number - acknowledged} requests wait: the server cannot keep up"
        )
        sent = perf_counter()
        sent_at.append(sent)

        def answered(answer: memoryview) -> None:
            nonlocal acknowledged
            acknowledged += 1
            try:
                check_produced(topic, answer)
            except AssertionError as error:
                failures.append(error)
            if sent - began > warm_up_s:
                found.produced.append(perf_counter() - sent)

        producer.send(frame, answered)

    def fetch() -> None:
        assert consumer is not None
        consumer.send(fetch_frame(topic, 0, read_to), fetched)

    def fetched(answer: memoryview) -> None:
        nonlocal read_to
        now = perf_counter()
        try:
            read_next = fetched_to(topic, answer, read_to)
        except AssertionError as error:
            failures.append(error)
            return
        for number in range((read_to - start_offset) // records, (read_next - start_offset) // records):
            if sent_at[number] - began > warm_up_s:
                found.consumed.append(now - sent_at[number])
        read_to = read_next
        fetch()

    try:
        if consumer is not None:
            fetch()
        await at_rate(per_s, seconds + warm_up_s, send)
        await until_async(
            lambda: (len(sent_at) - acknowledged, start_offset + records * len(sent_at) - read_to if consumer else 0),
            "all requests to be answered, and all records to be read",
            60,
            holds=lambda left: failures or max(left) <= 0,
            every_s=0.01,
        )
        if failures:
            raise failures[0]
    finally:
        producer.close()
        if consumer is not None:
            consumer.close()
    return found
