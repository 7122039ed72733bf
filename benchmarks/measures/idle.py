"""From an empty folder to the first answer, and the memory of a server that does nothing."""

from collections import defaultdict
from collections.abc import Iterator
from time import sleep
from typing import Any

from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Kafka, Server

MIB = 1 << 20


def measure(plan: Plan) -> Iterator[Row]:
    """Two rows."""
    start_s: dict[str, list[float]] = defaultdict(list)
    rss_mib: dict[str, list[float]] = defaultdict(list)
    for turn in range(plan.rounds):
        contenders: list[Server] = [Bmq(plan.folder("bmq")), Kafka(plan.folder("kafka"))]
        for server in contenders:
            plan.say(f"idle: round {turn + 1}, {server.name}")
            with server:
                sleep(plan.settle_s)
                start_s[server.name].append(server.start_s)
                rss_mib[server.name].append(server.rss_bytes / MIB)
            plan.say(f"  {start_s[server.name][-1]:.2f} s, {rss_mib[server.name][-1]:.0f} MiB")
    shared: dict[str, Any] = {
        "topic": "idle",
        "peer_name": "Kafka",
        "target_of": "bmq",
        "at_least": False,
        "quick": plan.quick,
    }
    yield Row(
        measure="idle RSS", setting="empty", unit="MiB", bmq=rss_mib["bmq"], peer=rss_mib["Kafka"], target=150, **shared
    )
    yield Row(
        measure="start",
        setting="from an empty folder; Kafka's formatting included",
        unit="s",
        bmq=start_s["bmq"],
        peer=start_s["Kafka"],
        target=2,
        **shared,
    )
