"""What a modest client sees while a greedy one takes all it can get.

The modest one writes a small record at a steady rate and reads it at the tail, over connections of its own. Alone and
beside the greedy one by short turns, each after the disk has taken all that was written before, so that what else the
machine does meets both. The greedy one runs at low priority: it is the server that is to be fair, not the machine.
Where the disk's own fsync now and then takes a hundred times as long, name a folder in memory (`--work /dev/shm/bmq`):
1 % of what is measured is more often that than anything else.
"""

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from time import sleep

from benchmarks import topics
from benchmarks.measures.latency import Latencies, quantile_ms, steady
from benchmarks.nodes import Cluster
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import ROOT, Bmq, Minio, Server

PER_S = 100
RECORD_BYTES = 1024
PHASE_S = 4.0
WARM_UP_S = 1.0
SETTLE_S = 0.5
TURNS = 5
"""In a round; a quantile is of all of them together."""
CONNECTIONS = 2
BACKLOG_S = 4.0
KINDS = ("produce", "fetch")
SETTINGS = ("one process over a folder", "one process over MinIO", "1 controller, 2 brokers, 1 proxy over a folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """One kind of greed: the modest one's latencies alone and beside it, by rounds; and what the greedy one got."""

    alone: list[Latencies] = field(default_factory=list)
    beside: list[Latencies] = field(default_factory=list)
    greedy_mib_per_s: list[float] = field(default_factory=list)


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each setting and kind of greed."""
    for setting in SETTINGS:
        with ExitStack() as stack:
            minio = stack.enter_context(Minio(plan.folder("minio"))) if "MinIO" in setting else None
            folder = plan.folder("bmq")
            server: Server
            if "controller" in setting:
                server = Cluster(folder, "1c2b1p")
            elif minio is not None:
                server = Bmq(folder, store=minio.store_url("bench"), environment=minio.environment)
            else:
                server = Bmq(folder)
            found = _turns(plan, stack.enter_context(server), setting)
        for kind in KINDS:
            yield _row(plan, setting, kind, found[kind])


def _row(plan: Plan, setting: str, kind: str, turns: Turns) -> Row:
    shown = []
    for what in ("produced", "consumed"):
        for share in (0.5, 0.99):
            alone = median(quantile_ms(getattr(one, what), share) for one in turns.alone)
            beside = median(quantile_ms(getattr(one, what), share) for one in turns.beside)
            shown.append(f"{what} at p{share * 100:.0f} {alone:.1f} → {beside:.1f} ms")
    pairs = zip(turns.alone, turns.beside, strict=True)
    return Row(
        topic="fairness",
        measure=f"p99 of a modest producer beside a greedy {kind} ÷ alone",
        setting=f"{setting}{_kept_in(plan)}, {PER_S} records/s beside {CONNECTIONS} connections with all they can "
        "have under way",
        unit="×",
        bmq=[quantile_ms(beside.produced, 0.99) / quantile_ms(alone.produced, 0.99) for alone, beside in pairs],
        target=2,
        target_of="bmq",
        at_least=False,
        beside=f"{', '.join(shown)}; the greedy one got {median(turns.greedy_mib_per_s):.0f} MiB/s",
        quick=plan.quick,
    )


def _kept_in(plan: Plan) -> str:
    return " in memory" if plan.work.is_relative_to("/dev/shm") else ""


def _turns(plan: Plan, server: Server, setting: str) -> dict[str, Turns]:
    port = int(server.address.rpartition(":")[2])
    big = topics.fresh("greedy")
    topics.create(server, big, partitions=CONNECTIONS, retention_bytes=-1)
    _greedy(port, big, "produce", BACKLOG_S).communicate(timeout=120)
    found: dict[str, Turns] = defaultdict(Turns)
    turns = 1 if plan.quick else TURNS
    for round_ in range(plan.rounds):
        for kind in KINDS:
            plan.say(f"fairness over {setting}: round {round_ + 1}, {kind}")
            alone, beside = Latencies(), Latencies()
            for _ in range(turns):
                _settle()
                _modest(server, port, alone)
                _settle()
                greedy = _greedy(port, big, kind, PHASE_S + WARM_UP_S + 2)
                sleep(1)
                _modest(server, port, beside)
                output, _ = greedy.communicate(timeout=120)
                assert greedy.returncode == 0, f"the greedy client ended with {greedy.returncode}"
                found[kind].greedy_mib_per_s.append(float(output))
            found[kind].alone.append(alone)
            found[kind].beside.append(beside)
    return found


def _settle() -> None:
    os.sync()
    sleep(SETTLE_S)


def _greedy(port: int, topic: str, kind: str, seconds: float) -> "subprocess.Popen[str]":
    """Prints the MiB per second that it got when it is over."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.clients.greedy",
        str(port),
        topic,
        kind,
        str(CONNECTIONS),
        str(seconds),
    ]
    return subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _modest(server: Server, port: int, found: Latencies) -> None:
    small = topics.fresh("modest")
    topics.create(server, small, partitions=1)
    load = steady(
        port,
        small,
        per_s=PER_S,
        records=1,
        record_bytes=RECORD_BYTES,
        seconds=PHASE_S,
        warm_up_s=WARM_UP_S,
        with_consumer=True,
    )
    turn = asyncio.run(load)
    found.produced.extend(turn.produced)
    found.consumed.extend(turn.consumed)
