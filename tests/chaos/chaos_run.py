"""One run: a cluster, its clients, faults by a seeded plan; then everything heals, everybody reads to the end, and the
checker looks.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import uvloop
from chaos_chosen import Chosen
from chaos_cluster import Cluster
from chaos_faults import Done, Faults
from chaos_plan import Fault, plan
from chaos_report import Report, report_on
from chaos_store import STORES
from chaos_workload import LANE, WRITERS, WRITERS_IN_LANE, Workload, WriterSpec

SHAPE: Final = "2c3b2p"
PER_SECOND: Final = 500
"""Records of each of the four writers: 300 s make 600,000, which are sent, acknowledged, and read four times."""
LANE_SHARE: Final = 4
"""Who writes in the lane writes a so-many-th of that."""
WARM_UP_S: Final = 2.0

Deed = Callable[[Cluster, list[Done]], Awaitable[None]]


def on_a_fast_loop(work: Coroutine[None, None, Report]) -> Report:
    """Runs it where relays cost the least: everything that nodes say to each other and to the store goes through
    them.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def run(
    folder: Path,
    deed: Deed,
    *,
    seed: int,
    seconds: float,
    shape: str = SHAPE,
    per_second: int = PER_SECOND,
    writers: tuple[WriterSpec, ...] = WRITERS,
    store: str = "minio",
) -> Report:
    """Has clients at work while `deed` is done to a cluster; the checked outcome. Everything that it started has ended
    then.
    """
    cluster = Cluster(shape, folder, store=store)
    in_base = Workload(cluster.servers, folder, per_second=per_second, seed=seed, writers=writers)
    lane_folder = folder / "lane"
    lane_folder.mkdir(exist_ok=True)
    in_lane = Workload(
        cluster.servers,
        lane_folder,
        per_second=per_second // LANE_SHARE,
        seed=seed,
        writers=WRITERS_IN_LANE,
        lane=LANE,
    )
    chosen = Chosen(cluster.servers, lane_folder, per_second=per_second // LANE_SHARE)
    workloads = [in_base, in_lane]
    done: list[Done] = []
    try:
        await cluster.start()
        await in_lane.make_lane(cluster.admin)
        for workload in (*workloads, chosen):
            await workload.start()
        await asyncio.sleep(WARM_UP_S)
        await deed(cluster, done)
        ended, found = await asyncio.gather(
            asyncio.gather(*(workload.finish() for workload in workloads)), chosen.finish()
        )
        await cluster.stop()
        audit = await cluster.audit()
    finally:
        for workload in (*workloads, chosen):
            await workload.close()
        await cluster.close()
    unexpected = [text for node in cluster.nodes.values() for text in node.unexpected]
    logs = [node.log for node in cluster.nodes.values()]
    began_s = monotonic()
    report = report_on(
        list(zip(workloads, ended, strict=True)), done, seed=seed, seconds=seconds, unexpected=unexpected, logs=logs
    )
    report.operations["acknowledged by header"] = chosen.check(found, report.findings)
    report.starts_refused = sum(len(node.starts_refused) for node in cluster.nodes.values())
    report.audit = audit
    report.checked_s = monotonic() - began_s
    return report


async def run_plan(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    shape: str = SHAPE,
    per_second: int = PER_SECOND,
    faults: Sequence[Fault] = tuple(Fault),
    store: str = "minio",
) -> Report:
    """A run with the faults of a seed."""

    async def deed(cluster: Cluster, done: list[Done]) -> None:
        injected = Faults(cluster, done)
        began_s = monotonic()
        await injected.run(plan(seed, seconds=seconds, nodes=cluster.by_role(), faults=faults))
        await asyncio.sleep(max(0.0, began_s + seconds - monotonic()))

    return await run(folder, deed, seed=seed, seconds=seconds, shape=shape, per_second=per_second, store=store)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 0 for a run without complaints."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long faults are injected (300)")
    parser.add_argument("--seed", type=int, default=1, help="which faults, and when (1)")
    parser.add_argument("--shape", default=SHAPE, help=f"how many controllers, brokers and proxies ({SHAPE})")
    parser.add_argument(
        "--per-second",
        type=int,
        default=PER_SECOND,
        help=f"records of each of the {len(WRITERS)} writers ({PER_SECOND})",
    )
    parser.add_argument("--faults", help=f"only these, with commas between, of {', '.join(Fault)}")
    parser.add_argument(
        "--store", choices=STORES, default="minio", help="over MinIO, or over an emulator of a cloud (docs/stores.md)"
    )
    parser.add_argument("--json", type=Path, help="where all figures are written to")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where data, logs and histories go and stay; without it they stay only where something is wrong",
    )
    given = parser.parse_args(arguments)
    faults = tuple(Fault(name) for name in given.faults.split(",")) if given.faults else tuple(Fault)
    folder = given.folder or Path(tempfile.mkdtemp(prefix=f"bmq-chaos-{given.seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    run_of_seed = run_plan(
        folder,
        seed=given.seed,
        seconds=given.seconds,
        shape=given.shape,
        per_second=given.per_second,
        faults=faults,
        store=given.store,
    )
    report = on_a_fast_loop(run_of_seed)
    if given.json:
        given.json.write_text(report.as_json())
    print(report.table(), file=sys.stderr)
    print(report.line(), flush=True)
    if not report.is_good:
        again = [
            "--seed",
            str(given.seed),
            "--seconds",
            f"{given.seconds:g}",
            "--shape",
            given.shape,
            "--per-second",
            str(given.per_second),
        ]
        again += ["--store", given.store]
        again += ["--faults", given.faults] if given.faults else []
        print(f"{report.complaints()}\nlogs and histories: {folder}\nreplay: python -m tests.chaos {' '.join(again)}")
    elif given.folder is None:
        shutil.rmtree(folder)
    return 0 if report.is_good else 1
