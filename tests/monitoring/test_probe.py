"""`bmq probe` against a bmq that serves, is away, comes back, and loses the probe's topic."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest
from compat_server import BMQ, Bmq, bmq_not_started
from confluent_kafka.admin import AdminClient
from probe_process import Probe

pytestmark = pytest.mark.slow


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[Bmq]:
    with bmq_not_started(tmp_path) as server:
        yield server


@pytest.fixture
def probe(bmq: Bmq, tmp_path: Path) -> Iterator[Probe]:
    """Started before its cluster is."""
    started = Probe(bmq.servers, log=tmp_path / "probe.log")
    try:
        yield started
    finally:
        started.close()


def test_the_probe_tells_latency_and_failures_and_outlives_its_cluster(bmq: Bmq, probe: Probe) -> None:
    assert probe.get("/livez") == (200, "ok\n")
    assert probe.get("/readyz") == (503, "no record has come through yet\n")
    probe.until(lambda: probe.value("bmq_probe_failures_total", reason="no_cluster") > 0, "failures without a cluster")
    bmq.start()
    probe.until(lambda: probe.value("bmq_probe_latency_seconds_count") >= 20, "20 latencies")
    assert probe.get("/readyz") == (200, "ok\n")
    probe.until(lambda: probe.value("bmq_probe_acknowledged_seconds_count") >= 20, "20 acknowledgements")
    # Waiting for anything but the record would be in all of them: a poll of the client's, or a long poll's end.
    probe.until(lambda: probe.value("bmq_probe_latency_seconds_bucket", le="0.05") > 0, "one within 50 ms")
    partitions = [probe.value("bmq_probe_last_success_timestamp_seconds", partition=str(n)) for n in range(12)]
    assert all(abs(time() - at) < 30 for at in partitions), partitions

    def failures() -> float:
        return probe.value("bmq_probe_failures_total")

    before = failures()
    bmq.kill9()
    probe.until(lambda: failures() > before, "a failure")
    assert probe.get("/livez") == (200, "ok\n")
    bmq.start()
    done = probe.value("bmq_probe_latency_seconds_count")
    probe.until(lambda: probe.value("bmq_probe_latency_seconds_count") > done + 20, "20 records more")

    def is_calm() -> bool:
        """Twenty records, and none that failed between them."""
        failed, done = failures(), probe.value("bmq_probe_latency_seconds_count")
        probe.until(lambda: probe.value("bmq_probe_latency_seconds_count") > done + 20, "20 records more")
        return failures() == failed

    probe.until(is_calm, "no failures any more")
    # The topic's records are not the cluster's to keep for long.
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.delete_topics(["__bmq_probe"])["__bmq_probe"].result(30)
    done = probe.value("bmq_probe_latency_seconds_count")
    probe.until(lambda: probe.value("bmq_probe_latency_seconds_count") > done + 20, "20 records more", 120)
    assert probe.stop() == 0, probe.log.read_text()


def test_an_address_that_is_taken_is_told_in_one_line(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    admin = f"127.0.0.1:{bmq.admin_port}"
    done = subprocess.run(
        [str(BMQ), "probe", "--admin", admin], capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (
        1,
        f"error: --admin {admin}: Address already in use. choose another address\n",
    )
