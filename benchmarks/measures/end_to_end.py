"""How much later than its producer's acknowledgement a consumer at the tail has a record; alone, and beside a reader of
another topic.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import uvloop

from benchmarks import topics
from benchmarks.clients import kcat, librdkafka
from benchmarks.measures.latency import Latencies, quantile_ms, steady
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.processes import end_group
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Kafka, Server

PER_S = 500
RECORDS = 4
LOAD = "500 requests/s of 4 KiB"


def measure(plan: Plan) -> Iterator[Row]:
    """Ratios of a system to itself; Kafka's beside."""
    with Bmq(plan.folder("bmq")) as bmq, Kafka(plan.folder("kafka")) as kafka:
        alone: dict[str, list[Latencies]] = defaultdict(list)
        beside: dict[str, list[Latencies]] = defaultdict(list)
        contenders: list[tuple[str, Server]] = [("bmq", bmq), ("Kafka", kafka)]
        for name, server in contenders:
            plan.say(f"end to end: filling {name}")
            topics.create(server, "latency", partitions=1, retention_bytes=1 << 30)
            topics.create(server, "history", partitions=4, retention_bytes=-1)
            sizes = {
                "records": plan.consume_bytes // RECORD_BYTES,
                "record_bytes": RECORD_BYTES,
                "batch_bytes": 256 << 10,
                "timeout_s": 600,
            }
            librdkafka.produce(server, "history", **sizes)
        for turn in range(plan.rounds):
            for name, server in contenders:
                plan.say(f"end to end: round {turn + 1}, {name}")
                alone[name].append(_latencies(plan, server))
                server.forget_cached_files()
                with _CatchUp(server):
                    beside[name].append(_latencies(plan, server))
                _say(plan, "alone", alone[name][-1])
                _say(plan, "beside a reader from the start", beside[name][-1])
    yield from _rows(plan, alone, beside)


def _rows(plan: Plan, alone: dict[str, list[Latencies]], beside: dict[str, list[Latencies]]) -> Iterator[Row]:
    def over(runs: list[Latencies], kind: str, share: float) -> list[float]:
        return [quantile_ms(getattr(run, kind), share) for run in runs]

    shared: dict[str, Any] = {"topic": "end-to-end", "unit": "ms", "at_least": False, "quick": plan.quick}
    for name, target in (("bmq", 1.15), ("Kafka", None)):
        yield Row(
            measure="end-to-end p50 ÷ produce p50" + ("" if name == "bmq" else ", Kafka's own"),
            setting=LOAD,
            bmq=over(alone[name], "consumed", 0.5),
            peer_name="produce",
            peer=over(alone[name], "produced", 0.5),
            target=target,
            **shared,
        )
    for name, target in (("bmq", 1.3), ("Kafka", None)):
        yield Row(
            measure="tail reader's p99 beside a reader from the start ÷ alone"
            + ("" if name == "bmq" else ", Kafka's own"),
            setting=f"{LOAD}, kcat reading another topic from the disk",
            bmq=over(beside[name], "consumed", 0.99),
            peer_name="alone",
            peer=over(alone[name], "consumed", 0.99),
            target=target,
            **shared,
        )


def _latencies(plan: Plan, server: Server) -> Latencies:
    start_offset = topics.end_offset(server, "latency", partitions=1)
    load: dict[str, Any] = {
        "per_s": PER_S,
        "records": RECORDS,
        "record_bytes": RECORD_BYTES,
        "seconds": plan.phase_s,
        "start_offset": start_offset,
    }
    return uvloop.run(steady(server.port, "latency", with_consumer=True, **load))


def _say(plan: Plan, label: str, found: Latencies) -> None:
    produced, consumed = quantile_ms(found.produced, 0.5), quantile_ms(found.consumed, 0.5)
    plan.say(
        f"  {label}: produce p50 {produced:.2f} ms, end to end p50 {consumed:.2f} ms, p99 "
        f"{quantile_ms(found.consumed, 0.99):.2f} ms"
    )


class _CatchUp:
    """kcat over and over, from the beginning, until the end of the block."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self._reader = kcat.start(server, "history")
        self._thread = threading.Thread(target=self._again)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        end_group(self._reader)

    def _again(self) -> None:
        while not self._stop.wait(0.05):
            if self._reader.poll() is not None:
                self._server.forget_cached_files()
                self._reader = kcat.start(self._server, "history")
