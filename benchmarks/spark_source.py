"""`.cache/spark/bin/python -m benchmarks.spark_source`: the data source `bmq` against Spark's own Kafka connector, on
the same records, in turns.

Both read a topic of a running `bmq up` into nothing (`noop`) on `local[2]`; what differs is the source alone. Per case:
the median of the rounds' ratios, the same of the processors' time that Spark and bmq took together, that time for a
million rows (which other work on the machine moves less than it moves the clock), the peak of Spark's memory (JVM and
Python workers), and what the brokers sent meanwhile by their own /metrics. `--plan` measures planning instead: 2,000
segments of one partition, and the same of 200.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from pyspark.sql import DataFrame, SparkSession
from tests.waiting import until

from benchmarks import processes
from bmq.ports import ObjectMeta, ObjectStore
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import parse_store_url
from bmq.storage.keys import segment_key
from bmq.storage.segment import SegmentEntry
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq_spark import source
from bmq_spark.session import open_session
from bmq_spark.source.batch import tasks_of
from bmq_spark.source.opening import opened
from bmq_spark.source.options import parse_options
from bmq_spark.source.planning import Planner
from bmq_spark.source.slices import Narrowing

ROOT = Path(__file__).parents[1]
BMQ = ROOT / ".venv" / "bin" / "bmq"
KEYS = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret", "AWS_REGION": "us-east-1"}
PARTITIONS = 2
WORDS = 4096
"""Values are words of a vocabulary, so that codecs find something to compress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One read by one source. CPU in seconds, bytes by bmq's own count."""

    rows: int
    wall_s: float
    spark_cpu_s: float
    bmq_cpu_s: float
    peak_rss_bytes: int
    sent_bytes: float
    fetches: float


class Cluster:
    """`bmq up` over one store."""

    def __init__(self, store: str, folder: Path, port: int) -> None:
        self.store = store
        self.servers, self.admin = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        self._log = (folder / "bmq.log").open("wb")
        command = [str(BMQ), "up", "--store", store, "--listen", self.servers, "--admin", self.admin]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=folder
        )
        until(
            self._is_ready,
            f"bmq to be ready: see {folder / 'bmq.log'}",
            120,
            unless=lambda: self._process.poll() is not None,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self.admin}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str, label: str = "") -> float:
        with urlopen(f"http://{self.admin}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and label in line)

    def stop(self) -> None:
        processes.end(self._process.pid)
        self._log.close()

    def fill(self, topic: str, *, size_bytes: int, codec: str, count: int) -> None:
        """Makes a topic of so many records, all of them in segments."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, config={"retention.ms": "-1"})])[topic].result()
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "compression.type": codec,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        text = b" ".join(b"%x" % (n * 2654435761 % (1 << 32)) for n in range(WORDS))
        for n in range(count):
            start = n * 7919 % (len(text) - size_bytes)
            while True:
                try:
                    producer.produce(
                        topic, text[start : start + size_bytes], b"key-%d" % (n % 1000), partition=n % PARTITIONS
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
        if producer.flush(600):
            sys.exit(f"{topic}: not everything was written")
        soon = ConfigEntry("segment.ms", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[soon])
        admin.incremental_alter_configs([resource])[resource].result()
        options = {"store": self.store, "topic": topic}
        until(
            lambda: _count(source.end_of(options)[topic]["partitions"]),
            f"segments to hold {count} records",
            600,
            holds=lambda found: found >= count,
            every_s=0.5,
        )


def _count(partitions: object) -> int:
    assert isinstance(partitions, dict)
    return sum(partitions.values())


def measured(spark: SparkSession, cluster: Cluster, frame: DataFrame, rows: int) -> Run:
    """One read of the whole topic into nothing."""
    before = (cluster.metric("bmq_proxy_bytes_out_total"), cluster.metric("bmq_proxy_requests_total", 'api="Fetch"'))
    cpu_before = processes.cpu_s(os.getpid()), processes.cpu_s(cluster.pid)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], processes.rss_bytes(os.getpid()))

    watching = threading.Thread(target=watch)
    watching.start()
    began_s = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    wall_s = time.perf_counter() - began_s
    done.set()
    watching.join()
    return Run(
        rows=rows,
        wall_s=wall_s,
        spark_cpu_s=processes.cpu_s(os.getpid()) - cpu_before[0],
        bmq_cpu_s=processes.cpu_s(cluster.pid) - cpu_before[1],
        peak_rss_bytes=peak[0],
        sent_bytes=cluster.metric("bmq_proxy_bytes_out_total") - before[0],
        fetches=cluster.metric("bmq_proxy_requests_total", 'api="Fetch"') - before[1],
    )


def compare(
    spark: SparkSession, cluster: Cluster, name: str, *, size_bytes: int, codec: str, count: int, rounds: int
) -> dict[str, object]:
    """Both sources in turns; the first turn of each is not counted."""
    topic = f"records-{size_bytes}-{codec}"
    cluster.fill(topic, size_bytes=size_bytes, codec=codec, count=count)
    frames = {
        "bmq": spark.read.format("bmq").options(store=cluster.store, topic=topic),
        "kafka": spark.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": cluster.servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "includeHeaders": "true",
            }
        ),
    }
    runs: dict[str, list[Run]] = {"bmq": [], "kafka": []}
    for turn in range(rounds + 1):
        for which in ("bmq", "kafka") if turn % 2 else ("kafka", "bmq"):
            run = measured(spark, cluster, frames[which].load(), count)
            if turn:
                runs[which].append(run)
    pairs = list(zip(runs["bmq"], runs["kafka"], strict=True))
    ratio = median(theirs.wall_s / ours.wall_s for ours, theirs in pairs)
    cpu_ratio = median(
        (theirs.spark_cpu_s + theirs.bmq_cpu_s) / (ours.spark_cpu_s + ours.bmq_cpu_s) for ours, theirs in pairs
    )
    found = {
        "store": name,
        "size_bytes": size_bytes,
        "codec": codec,
        "rows": count,
        "rows_ratio": round(ratio, 2),
        "cpu_ratio": round(cpu_ratio, 2),
        "rows_per_s": {which: round(count / median(run.wall_s for run in each)) for which, each in runs.items()},
        "spark_cpu_s_per_million": {
            which: _per_million([run.spark_cpu_s for run in each], count) for which, each in runs.items()
        },
        "bmq_cpu_s_per_million": {
            which: _per_million([run.bmq_cpu_s for run in each], count) for which, each in runs.items()
        },
        "peak_rss_mib": {which: max(run.peak_rss_bytes for run in each) >> 20 for which, each in runs.items()},
        "brokers_sent_mib": {
            which: round(median(run.sent_bytes for run in each) / (1 << 20), 1) for which, each in runs.items()
        },
        "fetches": {which: median(run.fetches for run in each) for which, each in runs.items()},
        "runs": {which: [asdict(run) for run in each] for which, each in runs.items()},
    }
    print(json.dumps({key: value for key, value in found.items() if key != "runs"}), flush=True)
    return found


def _per_million(seconds: list[float], count: int) -> float:
    return round(median(seconds) / count * 1e6, 2)


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.gets = self.lists = 0

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.gets += 1
        return await self._objects.get(key, start=start, length=length)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        self.lists += 1
        return self._objects.list(prefix, after=after)


def plan(name: str, url: str, folder: Path, *, partitions: int, segments: int, rounds: int) -> dict[str, object]:
    """How long it takes to plan a read of so many segments, from nothing known to Spark's tasks; the segments
    themselves are not needed.
    """
    sys.path.insert(0, str(ROOT / "spark-apps" / "tests"))
    from stored_cluster import StoredCluster

    base, mark, options = url.partition("?")
    cluster = StoredCluster(folder / f"plan-{partitions}", store=f"{base}-plan-{partitions}{mark}{options}")
    topic_id = cluster.topic("orders", partitions)
    one = SegmentEntry(
        position=97, length=64 << 20, leader_epoch=0, base_offset=0, last_offset=99, record_count=100,
        min_timestamp_ms=0, max_timestamp_ms=1,
        index_position=97 + (64 << 20), index_length=40_000, snapshot_position=0, snapshot_length=4,
    )  # fmt: skip
    for number in range(partitions):
        tp = TopicPartition(topic_id, number)
        keys = (
            segment_key(tp, LeaderEpoch(0), Offset(at * 100), cluster.rng.nonce())
            for at in range(segments // partitions)
        )
        entries = [
            msgspec.structs.replace(one, key=key, base_offset=at * 100, last_offset=at * 100 + 99)
            for at, key in enumerate(keys)
        ]
        cluster.name(tp, *entries)
    parsed = parse_options({"store": cluster.url, "topic": "orders"})
    took_s = []
    counting = Counting(opened(cluster.url).objects)
    for _ in range(rounds):
        opened(cluster.url).objects = counting = Counting(opened(cluster.url).objects)  # type: ignore[assignment]
        began_s = time.perf_counter()
        tasks = tasks_of(parsed, Planner(parsed).slices(Narrowing()))
        took_s.append(time.perf_counter() - began_s)
        assert sum(len(piece.segments) for task in tasks for piece in task.value) == segments
        opened(cluster.url).objects = counting._objects
    found = {
        "store": name, "partitions": partitions, "segments": segments, "seconds": [round(each, 3) for each in took_s],
        "gets": counting.gets, "lists": counting.lists,
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    return found


@contextmanager
def stores(names: list[str], folder: Path, port: int) -> Iterator[dict[str, str]]:
    """URLs by name; MinIO runs meanwhile where it is asked for."""
    urls = {"folder": f"file://{folder / 'data'}"} if "folder" in names else {}
    if "minio" in names:
        subprocess.run([str(ROOT / "tools" / "minio"), "start", str(folder / "minio"), str(port)], check=True)
        urls["minio"] = f"s3://bench/cluster?endpoint=http://127.0.0.1:{port}"
        ensure_bucket(parse_store_url(urls["minio"]))
    try:
        yield urls
    finally:
        if "minio" in names:
            subprocess.run([str(ROOT / "tools" / "minio"), "stop", str(folder / "minio")], check=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", default="folder,minio")
    parser.add_argument("--cases", default="1024-zstd,1024-lz4,1024-none,100-zstd,100-lz4,100-none")
    parser.add_argument("--mib", type=int, default=256, help="of values in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=19292)
    parser.add_argument("--plan", action="store_true", help="measure planning instead")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    os.environ.update(KEYS)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="bmq-spark-source-"))
    # Spark's workers find compiled modules, as where it is installed; otherwise each would compile pyspark, pyarrow and
    # bmq again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    results: dict[str, list[dict[str, object]]] = {"plans": [], "cases": []}
    if arguments.results and arguments.results.exists():
        results |= json.loads(arguments.results.read_text())

    def keep(kind: str, found: dict[str, object]) -> None:
        same = ("store", "partitions", "size_bytes", "codec")
        others = [each for each in results[kind] if any(each.get(name) != found.get(name) for name in same)]
        results[kind] = [*others, found]
        if arguments.results:
            arguments.results.write_text(json.dumps(results, indent=1) + "\n")

    try:
        with stores(arguments.stores.split(","), folder, arguments.port + 2) as urls:
            for name, url in urls.items():
                if arguments.plan:
                    for partitions in (1, 200):
                        keep(
                            "plans",
                            plan(name, url, folder, partitions=partitions, segments=2_000, rounds=arguments.rounds),
                        )
                else:
                    for found in comparisons(name, url, folder, arguments):
                        keep("cases", found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def comparisons(name: str, url: str, folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Every case on one store."""
    spark = open_session("spark source", settings={"spark.master": "local[2]", "spark.driver.memory": "1g"})
    source.register(spark)
    cluster = Cluster(url, folder, arguments.port)
    try:
        for case in arguments.cases.split(","):
            size, codec = case.split("-")
            count = min(arguments.mib * (1 << 20) // int(size), 2_000_000)
            yield compare(spark, cluster, name, size_bytes=int(size), codec=codec, count=count, rounds=arguments.rounds)
    finally:
        cluster.stop()
        spark.stop()


if __name__ == "__main__":
    main()
