"""What a modest client sees while a greedy one takes all it can get: `python -m benchmarks.measures.fairness [--cluster] [--minio] [--rounds N]`.

The modest one writes a small record at a steady rate and reads it at the tail, over connections of its own. Alone and beside the greedy one by
turns, so that what else the machine does meets both. The greedy one runs at low priority: it is the server that is to be fair, not the machine.
"""

import argparse
import asyncio
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import sleep

from benchmarks import topics
from benchmarks.measures.latency import Latencies, quantile_ms, steady
from benchmarks.nodes import Cluster
from benchmarks.servers import ROOT, Bmq, Minio, Server

PER_S = 50
RECORD_BYTES = 1024
PHASE_S = 4.0
WARM_UP_S = 2.0
CONNECTIONS = 2
BACKLOG_S = 4.0
KINDS = ("produce", "fetch")


class Greedy:
    """Runs the client while the block does; `mib_per_s` is what it got."""

    def __init__(self, port: int, topic: str, kind: str, seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.clients.greedy", str(port), topic, kind, str(CONNECTIONS), str(seconds)]
        self._process = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.mib_per_s = 0.0

    def wait(self) -> float:
        """Until it is over: MiB per second."""
        output, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0
        return float(output)


def modest(port: int, topic: str) -> Latencies:
    """One phase."""
    return asyncio.run(
        steady(port, topic, per_s=PER_S, records=1, record_bytes=RECORD_BYTES, seconds=PHASE_S, warm_up_s=WARM_UP_S, with_consumer=True)
    )


def measure(server: Server, rounds: int) -> None:
    """Prints a line per kind of greed."""
    port = int(server.address.rpartition(":")[2])
    big = topics.fresh("greedy")
    topics.create(server, big, partitions=CONNECTIONS, retention_bytes=1 << 30)
    Greedy(port, big, "produce", BACKLOG_S).wait()
    alone = Latencies()
    beside: dict[str, Latencies] = defaultdict(Latencies)
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for kind in KINDS:
            small = topics.fresh("modest")
            topics.create(server, small, partitions=1)
            _add(alone, modest(port, small))
            greedy = Greedy(port, big, kind, PHASE_S + WARM_UP_S + 2)
            sleep(1)
            small = topics.fresh("modest")
            topics.create(server, small, partitions=1)
            _add(beside[kind], modest(port, small))
            took[kind].append(greedy.wait())
            sleep(1)
    for kind in KINDS:
        print(f"beside a greedy {kind} ({median(took[kind]):.0f} MiB/s):")
        for what in ("produced", "consumed"):
            line = []
            for share in (0.5, 0.99):
                mine, both = quantile_ms(getattr(alone, what), share), quantile_ms(getattr(beside[kind], what), share)
                line.append(f"p{share * 100:.0f} {mine:.1f} → {both:.1f} ms ({both / mine:.2f}×)")
            print(f"  {what}: {', '.join(line)}")


def _add(to: Latencies, more: Latencies) -> None:
    to.produced.extend(more.produced)
    to.consumed.extend(more.consumed)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="1 controller, 2 brokers, 1 proxy instead of one process")
    parser.add_argument("--minio", action="store_true", help="over MinIO instead of a folder")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    work = Path(mkdtemp(prefix="fairness-"))
    try:
        with ExitStack() as stack:
            minio = stack.enter_context(Minio(work / "minio")) if options.minio else None
            store, environment = (minio.store_url("fairness"), minio.environment) if minio is not None else (None, None)
            folder = work / "bmq"
            server: Server = (
                Cluster(folder, "1c2b1p", store=store, environment=environment)
                if options.cluster
                else Bmq(folder, store=store, environment=environment)
            )
            measure(stack.enter_context(server), options.rounds)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
