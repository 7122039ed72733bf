"""`.cache/spark/bin/python -m benchmarks.spark_parquet`: a topic into a Parquet table by parquet.py --once, from the
brokers and from the bucket.

A process of its own for each run, on `local[2]`, 1 KiB records that compress, in segments. Per source: GiB of values a
minute from the first batch's start (what Spark needs to start is told apart), seconds of processor for a GiB, and the
peak of resident memory of the driver's Python, Java and the Python workers together (which counts what they share more
than once).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.spark_source import Cluster

SCRIPT = Path(__file__).parents[1] / "spark-apps" / "parquet.py"
SIZE_BYTES = 1000
BATCH = re.compile(r"^batch \d+: (\d+) rows in (\d+) files of ([0-9.]+) MiB, .* ([0-9.]+) s$", re.MULTILINE)


def measured(
    cluster: Cluster, source: list[str], output: Path, count: int, *, topic: str, batch: int
) -> dict[str, object]:
    """One run from nothing. Exits where it fails, or does not have every record."""
    command = [
        sys.executable,
        str(SCRIPT),
        "--topic",
        topic,
        "--bootstrap-servers",
        cluster.servers,
        "--output",
        str(output),
        "--once",
    ]
    environment = os.environ | {"SPARK_MASTER": "local[2]"}
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [*command, *source, "--max-records-per-batch", str(batch)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    peak, cpu, done = [0], [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            peak[0] = max(peak[0], processes.rss_bytes(process.pid))
            cpu[0] = max(cpu[0], processes.cpu_s(process.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        _, said = process.communicate(timeout=1200)
    finally:
        processes.end_group(process)
        done.set()
        watching.join()
    wall_s = time.perf_counter() - began_s
    batches = BATCH.findall(said)
    if process.returncode or sum(int(rows) for rows, *_ in batches) != count:
        sys.exit(f"the run failed ({process.returncode}):\n{said[-2000:]}")
    busy_s = sum(float(seconds) for *_, seconds in batches)
    gib = count * SIZE_BYTES / (1 << 30)
    return {
        "gib_per_min": round(gib / busy_s * 60, 2),
        "gib_per_min_with_start": round(gib / wall_s * 60, 2),
        "cpu_s_per_gib": round(cpu[0] / gib, 1),
        "peak_rss_mib": peak[0] >> 20,
        "batches": len(batches),
        "files": sum(int(files) for _, files, *_ in batches),
        "mib": round(sum(float(size) for *_, size, _ in batches)),
    }


def main() -> None:
    """Prints a line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=19292)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bmq-spark-parquet-"))
    store = (folder / "data").as_uri()
    (folder / "data").mkdir()
    cluster = Cluster(store, folder, given.port)
    try:
        cluster.fill("orders", size_bytes=SIZE_BYTES, codec="lz4", count=given.records)
        for turn in range(given.rounds):
            for name, source in {"kafka": ["--source", "kafka"], "bmq": ["--source", "bmq", "--store", store]}.items():
                output = folder / f"{name}-{turn}"
                print(
                    json.dumps(
                        {"source": name}
                        | measured(cluster, source, output, given.records, topic="orders", batch=given.batch)
                    ),
                    flush=True,
                )
                shutil.rmtree(output)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
