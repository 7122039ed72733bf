"""`python -m benchmarks.run`: measures, prints one table, stores it under benchmarks/results/.

Peers take turns (A B A B) within one run, under the same client and the same records. Every server that is started is
ended by its process number, also on Ctrl-C, and its data is removed.
"""

import argparse
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir

from benchmarks import machine, report
from benchmarks.measures import (
    cluster_cpu,
    consume,
    databus,
    end_to_end,
    failover,
    fairness,
    idle,
    join,
    lanes,
    linger_cost,
    metadata_load,
    move,
    move_writes,
    partitions,
    produce,
    requests,
    restart,
    scale_inputs,
    store_latency,
    takeover,
    zones,
)
from benchmarks.plan import GIB, Plan
from benchmarks.rows import Row

TOPICS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "produce": produce.measure,
    "consume": consume.measure,
    "requests": requests.measure,
    "store-latency": store_latency.measure,
    "end-to-end": end_to_end.measure,
    "partitions": partitions.measure,
    "idle": idle.measure,
    "fairness": fairness.measure,
    "restart": restart.measure,
    "databus": databus.measure,
    "lanes": lanes.measure,
}
CLUSTER_TOPICS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "move": move.measure,
    "move-writes": move_writes.measure,
    "failover": failover.measure,
    "takeover": takeover.measure,
    "cluster-cpu": cluster_cpu.measure,
    "cluster-cpu-each": cluster_cpu.measure_same_each,
    "join": join.measure,
    "metadata-load": metadata_load.measure,
    "zones": zones.measure,
    "linger-cost": linger_cost.measure,
    "scale-inputs": scale_inputs.measure,
}
TOPICS |= CLUSTER_TOPICS
GROUPS = {"cluster": CLUSTER_TOPICS}
"""Names for several topics at once."""
LARGE_TOPICS = {"produce", "consume", "move", "cluster-cpu", "cluster-cpu-each"}
LARGE_DISK_BYTES = 40 * GIB
DISK_BYTES = 16 * GIB


def main() -> int:
    """The exit code: 0 also where a target was not reached; the table says so."""
    options = _options()
    work = Path(options.work)
    plan = Plan(
        quick=options.quick,
        rounds=options.rounds or (1 if options.quick else 3),
        produce_bytes=int((options.gib or (0.5 if options.quick else 8)) * GIB),
        consume_bytes=int((options.gib or (0.5 if options.quick else 4)) * GIB),
        move_bytes=int((options.gib or (0.5 if options.quick else 10)) * GIB),
        cluster_bytes=int((options.gib or (0.5 if options.quick else 4)) * GIB),
        metadata_partitions=20_000 if options.quick else 200_000,
        moves=options.moves or (6 if options.quick else 100),
        kills=options.rounds or (1 if options.quick else 5),
        phase_s=options.seconds or (5 if options.quick else 20),
        settle_s=2 if options.quick else 10,
        clients=tuple(options.clients.split(",")),
        partitions=tuple(map(int, options.partitions.split(","))),
        batches_kib=tuple(map(int, options.batches_kib.split(","))),
        work=work,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    work.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(work).free
    needed_bytes = LARGE_DISK_BYTES if LARGE_TOPICS.intersection(options.topics) else DISK_BYTES
    if not plan.quick and free_bytes < needed_bytes:
        print(
            f"error: {free_bytes / GIB:.0f} GiB free: the full run needs {needed_bytes // GIB}; name another "
            "folder with --work, or use --quick",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return _measure(
        plan, options.topics, options.name or ("quick" if plan.quick else datetime.now(UTC).date().isoformat())
    )


def _measure(plan: Plan, only: list[str], name: str) -> int:
    results = report.Results(name)
    facts = machine.facts(plan.work)
    rows: list[Row] = []
    code = 0
    try:
        for topic in only:
            run = _run(plan, topic)
            for row in TOPICS[topic](plan):
                rows.append(row)
                results.add(row, run)
                results.save(facts)
    except KeyboardInterrupt:
        print("interrupted: what was measured until here follows", file=sys.stderr)
        code = 130
    finally:
        if rows:
            report.show(rows, facts)
    return code


def _run(plan: Plan, topic: str) -> dict[str, str]:
    """What is kept with a row. To be called before its servers start."""
    amount = {
        "produce": f"{plan.produce_bytes / GIB:g} GiB a run",
        "consume": f"{plan.consume_bytes / GIB:g} GiB a run",
        "fairness": f"{fairness.TURNS} turns of {fairness.PHASE_S:g} s alone and beside",
        "idle": f"after {plan.settle_s:g} s",
        "move": f"{plan.move_bytes / GIB:g} GiB",
        "move-writes": f"{plan.moves} moves",
        "failover": f"{plan.kills} kills",
        "takeover": f"{plan.kills} kills",
        "cluster-cpu": f"{plan.cluster_bytes / GIB:g} GiB a run",
        "cluster-cpu-each": f"{plan.cluster_bytes / 8 / GIB:g} GiB a broker and run",
        "join": f"{plan.rounds} joins",
        "metadata-load": f"{plan.metadata_partitions:,} partitions",
        "zones": "once",
        "scale-inputs": "once",
    }.get(topic, f"{plan.phase_s:g} s a phase")
    busy = f"machine {machine.busy_share():.0%} busy before"
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "rounds": f"{plan.rounds} round{'s' * (plan.rounds > 1)}",
        "amount": amount,
        "busy": busy,
        "bmq": machine.bmq_version(),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.run", description="Measures bmq against Apache Kafka on this machine."
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round of everything; results go to results/quick.*"
    )
    parser.add_argument(
        "--only",
        default=",".join(TOPICS),
        help=f"some of {','.join((*TOPICS, *GROUPS))}; other rows of the same results stay",
    )
    parser.add_argument(
        "--rounds", type=int, help="turns of each system (3; 1 with --quick), kills of failover and takeover (5)"
    )
    parser.add_argument(
        "--gib",
        type=float,
        help="GiB of a run of produce (8), consume (4), cluster-cpu (4), of the partition of move (10); 0.5 with "
        "--quick",
    )
    parser.add_argument("--moves", type=int, help="planned moves of move-writes (100; 6 with --quick)")
    parser.add_argument("--seconds", type=float, help="length of a phase at a fixed load (20; 5 with --quick)")
    parser.add_argument("--clients", default="java,librdkafka", help="for produce and consume")
    parser.add_argument("--partitions", default="1,4")
    parser.add_argument("--batches-kib", default="64,256")
    parser.add_argument("--name", help="of the results (today's date)")
    parser.add_argument(
        "--work", default=str(Path(gettempdir()) / "bmq-benchmarks"), help="where the servers keep their data"
    )
    options = parser.parse_args()
    options.topics = [topic for named in options.only.split(",") for topic in GROUPS.get(named, (named,))]
    for topic in options.topics:
        if topic not in TOPICS:
            parser.error(f"--only {topic}: choose of {', '.join((*TOPICS, *GROUPS))}")
    for client in options.clients.split(","):
        if client not in ("java", "librdkafka"):
            parser.error(f"--clients {client}: choose of java, librdkafka")
    return options


if __name__ == "__main__":
    sys.exit(main())
