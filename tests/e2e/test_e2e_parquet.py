"""A topic as a Parquet table by the Spark Operator itself: a million records of any shape, driver and executor killed,
each record in the table once.

What does not work stands beside it: tables before there is a Spark Operator, and one whose image is nowhere.
ParquetSinks write theirs all the while.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any

import e2e_examples
import e2e_records
import pytest
from dashboard_files import OF_SPARK, alerts, dashboards, metrics_in, queries
from e2e_clients import write
from e2e_images import Images, SparkImages
from e2e_kubectl import Kubectl
from e2e_release import CLUSTER, Release, kept, status_of
from e2e_running import OUTSIDE, READY_S, RESOURCE, topic
from e2e_spark import APPLICATIONS, ENDED, SparkOperator, application, crds, pods_of, runs_of, state_of
from e2e_tables import BUCKET, SMALL, SPARK, Bucket, Tables, values
from prometheus_process import SPARK_RELABELINGS, Prometheus, Target, filled_in

TOPIC, BROKEN, SINK, RIVAL, LATE, OF_SINK = "orders", "broken", "shop", "rival", "late", ("payments", "shipments")
COUNT = 100_000
"""Of each partition: a million."""
AGE_MS = 2 * 3600 * 1000
BATCH_MAX = 200_000
STEPS = 4
STARTED_S, CAUGHT_UP_S, QUERIED_S = 240, 240, 90
ONE = {"replicas": 1}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def parquet(name: str, **more: Any) -> dict[str, Any]:
    """A table that is written by a stream."""
    table = {"output": f"s3a://{BUCKET}/{name}", "continuous": {"trigger": "5s"}, "compact": {"mode": "Never"}}
    return {**table, "maxRecordsPerBatch": BATCH_MAX, **more}


def sink(name: str) -> dict[str, Any]:
    """A ParquetSink of OF_SINK into one table, the same one whatever the name."""
    spec = {"clusterRef": {"name": CLUSTER}, "topics": list(OF_SINK), "oneTable": True, **parquet(SINK)}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "ParquetSink", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def tables(
    namespace: Callable[[str], AbstractContextManager[Kubectl]], images: Images, spark_images: SparkImages
) -> Iterator[Tables]:
    """A small Cluster with Topics that are to be tables. Nobody writes them yet."""
    with ExitStack() as stack:
        kubectl = stack.enter_context(namespace("tables"))
        release = Release(kubectl=kubectl, images=images)
        release.install({"spark": values(spark_images)})
        kubectl.apply(release.example("cluster.yaml", controllers=ONE, brokers=ONE, proxies=ONE, listeners=[OUTSIDE]))
        kubectl.until_ready(RESOURCE, timeout_s=READY_S)
        (listener,) = status_of(kubectl, RESOURCE)["listeners"]
        bucket = stack.enter_context(Bucket.of(kubectl))
        kubectl.apply(
            topic(TOPIC, partitions=e2e_records.PARTITIONS, parquet=parquet(TOPIC)),
            topic(BROKEN, partitions=1, parquet=parquet(BROKEN, image="bmq-spark:nowhere")),
            *(topic(name, partitions=1) for name in OF_SINK),
        )
        yield Tables(release=release, outside=listener["bootstrapServers"], bucket=bucket)
        if not kept():
            release.leave()


@pytest.fixture(scope="module")
def spark(
    tables: Tables, namespace: Callable[[str], AbstractContextManager[Kubectl]], spark_images: SparkImages
) -> Iterator[SparkOperator]:
    """The Spark Operator, installed after the Topics were there."""
    fresh = not crds(tables.kubectl)
    if fresh:
        missing = tables.kubectl.until_condition(
            f"topics.bmq.io/{TOPIC}", kind="ParquetReady", status="False", reason="SparkOperatorMissing"
        )
        assert "install" in missing["message"]
    tables.kubectl.until_ready(f"topics.bmq.io/{TOPIC}")
    with namespace("spark-operator") as within:
        operator = SparkOperator(kubectl=within, jobs=tables.kubectl, images=spark_images)
        operator.install()
        yield operator
        if not kept():
            tables.kubectl("delete", "topics.bmq.io,parquetsinks.bmq.io", "--all", "--timeout=120s")
            operator.leave(with_crds=fresh)


def test_a_million_records_are_in_the_table_once_though_driver_and_executor_are_killed(
    tables: Tables, spark: SparkOperator, tmp_path: Path
) -> None:
    kubectl, step = tables.kubectl, COUNT // STEPS
    began, first_ms = monotonic(), int(time()) * 1000 - AGE_MS

    def produced(number: int) -> None:
        e2e_records.produce(tables.outside, TOPIC, first=number * step, count=step, first_ms=first_ms)

    def committed() -> int:
        return tables.committed(f"parquet-{TOPIC}", TOPIC)

    def has_all(number: int) -> bool:
        return committed() == number

    with ThreadPoolExecutor(1) as producers:
        pending = producers.submit(produced, 0)
        name = tables.application(TOPIC)
        submitted = monotonic()
        kubectl.until("the first commit", lambda: tables.bucket.commits(TOPIC), timeout_s=STARTED_S)
        print(f"first commit {monotonic() - submitted:.0f} s after the application was there")
        pending.result()
        kubectl.apply(sink(SINK))
        for numbers, role in (((1,), "executor"), ((2, 3), "driver")):  # while it writes
            pendings, at = [producers.submit(produced, number) for number in numbers], monotonic()
            tables.killed(name, role)
            print(f"another {role} after {monotonic() - at:.0f} s")
            for pending in pendings:
                pending.result()
            there = (numbers[-1] + 1) * step * e2e_records.PARTITIONS
            print(f"{there} records written after {monotonic() - at:.0f} s, {committed()} of them in the table")
            kubectl.until(f"all {there} records are in the table", partial(has_all, there), timeout_s=CAUGHT_UP_S)
            print(f"{role} killed: {there} records in the table after {monotonic() - at:.0f} s")
    written = e2e_records.PARTITIONS * COUNT
    print(f"{written} records {monotonic() - began:.0f} s after the first one; {tables.bucket.commits(TOPIC)} commits")
    figures = tables.bucket.compared(TOPIC, count=COUNT, first_ms=first_ms, folder=tmp_path)
    assert figures == {"rows": written, "twice": 0, "missing": 0, "more": 0, "different": 0, "misplaced": 0}


def test_a_sink_writes_two_topics_into_one_table_and_a_table_whose_image_is_nowhere_stalls_nobody(
    tables: Tables, spark: SparkOperator
) -> None:
    kubectl = tables.kubectl
    for name in OF_SINK:
        write(tables.outside, name, *(f"{name} {number}" for number in range(100)))
    kubectl.until_condition(f"topics.bmq.io/{BROKEN}", kind="ParquetReady", status="False")
    assert state_of(kubectl, tables.application(BROKEN)) != "RUNNING"
    kubectl.until(
        "the sink's table has all",
        lambda: tables.committed(f"parquet-{'-'.join(OF_SINK)}", OF_SINK[0], partitions=1) == 100,
        timeout_s=STARTED_S,
    )
    kubectl.until_condition(f"parquetsinks.bmq.io/{SINK}", kind="Running", timeout_s=STARTED_S)
    kubectl.until_condition(f"topics.bmq.io/{TOPIC}", kind="ParquetRunning")
    assert status_of(kubectl, f"topics.bmq.io/{TOPIC}")["table"]["state"] == "RUNNING"


def test_of_two_sinks_for_one_table_the_younger_waits_until_the_older_is_gone(
    tables: Tables, spark: SparkOperator
) -> None:
    kubectl = tables.kubectl
    kubectl.apply(sink(RIVAL))
    taken = kubectl.until_condition(f"parquetsinks.bmq.io/{RIVAL}", status="False", reason="OutputTaken")
    assert (
        f"ParquetSink {kubectl.namespace}/{SINK}" in taken["message"] and f"s3a://{BUCKET}/{SINK}" in taken["message"]
    )
    assert tables.applications(RIVAL) == []
    kubectl("delete", f"parquetsinks.bmq.io/{SINK}", "--timeout=60s")
    assert tables.application(RIVAL)
    kubectl("delete", f"parquetsinks.bmq.io/{RIVAL}", "--timeout=60s")


def test_a_sink_whose_image_is_changed_while_it_is_submitted_is_not_stuck(tables: Tables, spark: SparkOperator) -> None:
    """The Spark Operator loses what it noted of the submission, and would wait for hours for word of a driver that it
    does not know.
    """
    kubectl, repository = tables.kubectl, spark.images.jobs.rpartition(":")[0]
    late = {"apiVersion": "bmq.io/v1alpha1", "kind": "ParquetSink", "metadata": {"name": LATE}}
    spec = {"clusterRef": {"name": CLUSTER}, "topics": [LATE], "oneTable": True, **parquet(LATE)}
    kubectl.apply(topic(LATE, partitions=1), late | {"spec": spec | {"image": f"{repository}:nowhere"}})
    name = tables.application(LATE)
    kubectl.apply(late | {"spec": spec})
    kubectl.until_condition(f"parquetsinks.bmq.io/{LATE}", reason="Running", timeout_s=STARTED_S)
    [driver] = pods_of(kubectl, name, "driver")
    wanted = application(kubectl, name)["spec"]["driver"]["annotations"]["bmq.io/made-from"]
    assert driver["metadata"]["annotations"]["bmq.io/made-from"] == wanted, "a driver says what it was made from"
    kubectl("delete", f"parquetsinks.bmq.io/{LATE}", "--timeout=60s")


def test_every_query_on_spark_jobs_returns_data_and_their_alerts_find_their_metrics(
    tables: Tables, spark: SparkOperator, tmp_path: Path
) -> None:
    kubectl, name = tables.kubectl, tables.application(TOPIC)
    [driver, *_] = kubectl.until("a driver", lambda: pods_of(kubectl, name, "driver"))
    labels = {"cluster": CLUSTER, "namespace": kubectl.namespace}
    with (
        kubectl.forwarded(f"pod/{driver['metadata']['name']}", [":4040"]) as (ui,),
        kubectl.forwarded(f"pod/{CLUSTER}-broker-0", [":9080"]) as (admin,),
    ):
        of_driver = [
            Target(
                address=f"127.0.0.1:{ui}",
                pod=driver["metadata"]["name"],
                component="driver",
                application=name,
                path=path,
                **labels,
            )
            for path in ("/metrics/prometheus/", "/metrics/executors/prometheus/")
        ]
        broker = Target(address=f"127.0.0.1:{admin}", pod=f"{CLUSTER}-broker-0", component="broker", **labels)
        prometheus = Prometheus(tmp_path, [broker], others={SPARK_RELABELINGS: of_driver})
        try:
            variables = {
                "namespace": kubectl.namespace,
                "cluster": CLUSTER,
                "group": ".*",
                "application": ".*",
                "__rate_interval": "15s",
            }
            asked = list(queries(dashboards()[OF_SPARK]))
            assert len(asked) > 15
            prometheus.until_data({filled_in(one.expression, variables): one.panel for one in asked}, QUERIED_S)
            assert {metric for rule in alerts()[OF_SPARK] for metric in metrics_in(rule["expr"])} <= prometheus.names()
        finally:
            prometheus.close()


def test_the_examples_run_on_kubernetes_to_their_end(tables: Tables, spark: SparkOperator, tmp_path: Path) -> None:
    kubectl, bucket = tables.kubectl, tables.bucket
    kubectl.apply(topic("clicks", partitions=1), topic("sales", partitions=1))
    bucket.make(e2e_examples.BUCKET)
    e2e_examples.asked(SPARK, "customers", tmp_path / "customers.parquet")
    bucket.client.fput_object(e2e_examples.BUCKET, "customers/one.parquet", str(tmp_path / "customers.parquet"))
    kubectl.until_ready("topics.bmq.io/clicks")
    kubectl.until_ready("topics.bmq.io/sales")
    e2e_examples.click(tables.outside, "clicks", first_ms=int(time()) * 1000 - 24 * 3600 * 1000)
    write(tables.outside, "sales", *e2e_examples.ORDERS)
    began, renamed = monotonic(), {"--topic=orders": "--topic=sales"}
    names = ("session-counts", "enriched-orders")
    kubectl.apply(e2e_examples.code(), bucket.keys(e2e_examples.BUCKET))
    kubectl.apply(*(e2e_examples.application(name, spark.images.jobs, topics=renamed, conf=SMALL) for name in names))
    [run, *_] = kubectl.until("a run of enriched-orders", lambda: runs_of(kubectl, names[1]))
    # one run is enough
    kubectl("patch", f"scheduled{APPLICATIONS}", names[1], "--type=merge", "--patch", '{"spec": {"suspend": true}}')

    def has_ended(name: str) -> bool:
        return state_of(kubectl, name) in ENDED

    for name in (names[0], run):
        kubectl.until(f"{name} ended", partial(has_ended, name), timeout_s=STARTED_S)
        print(f"{name} ended {monotonic() - began:.0f} s after it was applied")
    assert {state_of(kubectl, names[0]), state_of(kubectl, run)} == {"COMPLETED"}, spark.log()
    sessions = e2e_examples.rows(
        SPARK, bucket.fetched(e2e_examples.BUCKET, "warehouse/events/sessions/data/", tmp_path)
    )
    assert sorted([row["user"], row["records"]] for row in sessions) == e2e_examples.SESSIONS
    orders = e2e_examples.rows(SPARK, bucket.fetched(e2e_examples.BUCKET, "enriched-orders/", tmp_path))
    assert (
        sorted([row["order_id"], row["name"], row["country"], float(row["amount"])] for row in orders)
        == e2e_examples.ENRICHED
    )
