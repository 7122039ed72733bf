"""Live chaos for a short time (the long runs: `python -m tests.chaos --seconds 300 --seed N`), and a rolling restart of
all nodes.

Java's and librdkafka's producers, each idempotent and plain, at their default settings: no delivery report may fail.
"""

import os
from pathlib import Path
from time import monotonic

import pytest
from chaos_cluster import Cluster
from chaos_faults import Done
from chaos_report import Report
from chaos_run import on_a_fast_loop, run, run_plan

SEED = int(os.environ.get("BMQ_CHAOS_SEED", "84"))
"""By default one whose first 20 seconds have brokers, proxies, leaders and the store stopped, killed and cut off."""
SECONDS = float(os.environ.get("BMQ_CHAOS_SECONDS", "20"))
PER_SECOND = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 2 * SECONDS)]


def check(report: Report) -> None:
    print(report.table())
    print(report.line())
    assert report.is_good, f"{report.line()}\n{report.complaints()}\nreplay with BMQ_CHAOS_SEED={report.seed}"
    for name, figures in report.writers.items():
        assert figures.acknowledged > PER_SECOND, f"{name} had {figures.acknowledged} records acknowledged"


def test_nothing_is_lost_doubled_or_reordered_and_no_delivery_report_fails_while_nodes_and_the_store_die(
    tmp_path: Path,
) -> None:
    report = on_a_fast_loop(run_plan(tmp_path, seed=SEED, seconds=SECONDS, per_second=PER_SECOND))
    check(report)
    if "BMQ_CHAOS_SEED" not in os.environ:
        assert report.faults.keys() >= {"kill-broker", "kill-proxy", "restart-leader"}
        assert any(fault.startswith("store-") for fault in report.faults)


def test_a_rolling_restart_of_all_nodes_fails_no_delivery_report(tmp_path: Path) -> None:
    """Nor does it make a plain producer write twice: who stops has answered what it began, and begins nothing more."""

    async def deed(cluster: Cluster, done: list[Done]) -> None:
        for node in cluster.nodes.values():
            began_s = monotonic()
            await cluster.rolling_restart([node])
            done.append(Done(fault=f"restart-{node.role}", node_id=node.node_id, began_s=began_s, ended_s=monotonic()))

    report = on_a_fast_loop(run(tmp_path, deed, seed=SEED, seconds=0, per_second=PER_SECOND))
    check(report)
    assert sum(report.faults.values()) == 7
    assert report.duplicates == 0, report.line()
