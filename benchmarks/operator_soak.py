"""`python -m benchmarks.operator_soak`: what many Topics cost the operator, on the cluster of KUBECONFIG.

Needs a namespace with a Cluster that is Ready, and an operator in a pod (docs/kubernetes.md). So many Topics are
created, changed and deleted, some rounds of it; after each phase it prints the time until all were as written, how long
looks at a Topic took (p50 and p99, from the operator's histogram), and the operator's CPU and memory.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "soak-"
HISTOGRAM = "bmq_operator_reconcile_seconds"
PHASE_S_MAX = 600
REST_S = 65
"""Longer than the operator takes from one look at everything to the next."""


def kubectl(*arguments: str, given: str = "") -> str:
    """Standard output; what goes wrong ends the run."""
    return subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=True).stdout


class Metrics:
    """The operator's, at one moment."""

    def __init__(self, port: int) -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples]
        self.cpu_s = next(one.value for one in samples if one.name == "process_cpu_seconds_total")
        self.memory_mib = next(one.value for one in samples if one.name == "process_resident_memory_bytes") / (1 << 20)
        self.buckets = {
            float(one.labels["le"]): one.value
            for one in samples
            if one.name == f"{HISTOGRAM}_bucket" and one.labels["kind"] == "Topic"
        }
        self.status_writes = sum(
            one.value
            for one in samples
            if one.name == "bmq_operator_status_writes_total" and one.labels["kind"] == "Topic"
        )


def quantile(share: float, before: Metrics, after: Metrics) -> float:
    """Of the looks between the two, in seconds, interpolated within its bucket as Prometheus does."""
    counts = [(bound, after.buckets[bound] - before.buckets.get(bound, 0)) for bound in sorted(after.buckets)]
    wanted, lower, below = counts[-1][1] * share, 0.0, 0.0
    for bound, count in counts:
        if count >= wanted and count > below:
            return lower if bound == float("inf") else lower + (bound - lower) * (wanted - below) / (count - below)
        lower, below = bound, count
    return 0.0


def phase(name: str, port: int, count: int, act: Callable[[], object], done: Callable[[], bool]) -> None:
    """One line of the table."""
    before, began_s = Metrics(port), time.monotonic()
    act()
    while not done():
        if time.monotonic() - began_s > PHASE_S_MAX:
            sys.exit(f"{name}: not done after {PHASE_S_MAX} s: see `kubectl get topics.bmq.io` and the operator's log")
        time.sleep(0.5)
    took_s, after = time.monotonic() - began_s, Metrics(port)
    looks = max(after.buckets.values()) - max(before.buckets.values(), default=0)
    p50_ms, p99_ms = (1000 * quantile(share, before, after) for share in (0.5, 0.99))
    told = f"{name:>8} {count} {took_s:7.1f} s  looks {looks:6.0f}  p50 {p50_ms:7.1f} ms  p99 {p99_ms:7.1f} ms"
    told += f"  CPU {after.cpu_s - before.cpu_s:6.2f} s  memory {after.memory_mib:6.1f} MiB"
    print(f"{told}  statuses written {after.status_writes - before.status_writes:5.0f}", flush=True)


def topics(namespace: str) -> list[dict[str, Any]]:
    """Those of the soak that are there."""
    found = json.loads(kubectl("-n", namespace, "get", "topics.bmq.io", "-o", "json"))["items"]
    return [one for one in found if one["metadata"]["name"].startswith(PREFIX)]


def as_written(namespace: str, count: int) -> bool:
    """Whether so many are Ready for their newest generation."""

    def ready(one: dict[str, Any]) -> bool:
        conditions = one.get("status", {}).get("conditions", [])
        return any(
            (each["type"], each["status"], each["observedGeneration"])
            == ("Ready", "True", one["metadata"]["generation"])
            for each in conditions
        )

    return sum(ready(one) for one in topics(namespace)) == count


def manifests(count: int, *, retention_ms: int) -> str:
    """The Topics, as a List."""
    spec = {"partitions": 1, "config": {"retention.ms": str(retention_ms)}, "deletionPolicy": "Delete"}
    items = [
        {"apiVersion": "bmq.io/v1alpha1", "kind": "Topic", "metadata": {"name": f"{PREFIX}{number}"}, "spec": spec}
        for number in range(count)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@contextmanager
def forwarded(namespace: str, deployment: str) -> Iterator[int]:
    """A port of this machine that leads to the operator's metrics."""
    with subprocess.Popen(
        ["kubectl", "-n", namespace, "port-forward", deployment, ":8080"], stdout=subprocess.PIPE, text=True
    ) as forward:
        try:
            assert forward.stdout is not None
            found = re.search(r":(\d+) ->", forward.stdout.readline())
            if found is None:
                sys.exit(
                    f"no way to {deployment} in namespace {namespace}: name the operator by --operator-namespace "
                    "and --operator"
                )
            yield int(found[1])
        finally:
            forward.terminate()


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--namespace", required=True, help="the Cluster's namespace")
    parser.add_argument("--operator-namespace", default="bmq-system")
    parser.add_argument("--operator", default="deployment/bmq")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    namespace, count = asked.namespace, asked.topics
    with forwarded(asked.operator_namespace, asked.operator) as port:
        print(f"{'before':>8} memory {Metrics(port).memory_mib:.1f} MiB")
        for number in range(asked.rounds):

            def write(retention_ms: int) -> str:
                return kubectl(
                    "-n",
                    namespace,
                    "apply",
                    "--server-side",
                    "-f",
                    "-",
                    given=manifests(count, retention_ms=retention_ms),
                )

            phase("create", port, count, lambda: write(3_600_000), lambda: as_written(namespace, count))
            phase(
                "change",
                port,
                count,
                lambda number=number: write(7_200_000 + number),
                lambda: as_written(namespace, count),
            )
            phase("rest", port, count, lambda: time.sleep(REST_S), lambda: True)
            phase(
                "delete",
                port,
                count,
                lambda: kubectl("-n", namespace, "delete", "topics.bmq.io", "--all", "--wait=false"),
                lambda: not topics(namespace),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
