"""Tables brought about: the API server is the test's own, and so is what the Spark Operator would write into statuses; topics are a started bmq's."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, KubeOfATest, TestClock, auth_secret, context_of
from real_bmq import TOKEN, bmq_with_token
from tables_of_a_test import HOURLY, STREAM
from tests.started_bmq import StartedBmq

from bmq.resources.base import Condition
from bmq.resources.parquet_sink import ParquetSink
from bmq.resources.topic import Topic
from bmq_operator.admin import AdminClient
from bmq_operator.conditions import condition, timestamp
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem
from bmq_operator.outcome import Outcome
from bmq_operator.tables.desired import FAILURES
from bmq_operator.tables.existing import KINDS
from bmq_operator.tables.reconcile import holds, reconcile, reconcile_topic
from bmq_operator.tables.runs import SCHEDULED_LABEL

ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "bmq-spark", "namespace": "shop"}}
LOOKS_MAX = 10
NOBODY = "http://127.0.0.1:1"


class SparkKube(KubeOfATest):
    """`spark`: whether the Spark Operator's CRDs are there; `refuses`: names of objects that its webhook refuses."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        super().__init__(*manifests)
        self.spark = True
        self.refuses: set[str] = set()
        self.writes: list[str] = []

    async def list(self, kind: str, namespace: str = "", *, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        if kind in KINDS and not self.spark:
            raise KubeProblem(status=404, reason="NotFound", message="the server could not find the requested resource")
        found = await super().list(kind, namespace)
        return [one for one in found if (labels or {}).items() <= one["metadata"].get("labels", {}).items()]

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        if name in self.refuses:
            raise KubeProblem(status=400, reason="Forbidden", message="failed to validate resource quota")
        self.writes.append(f"apply {manifest['kind']} {name}")
        return await super().apply(manifest)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        self.writes.append(f"delete {kind} {name}")
        await super().delete(kind, namespace, name, uid=uid)

    async def merge(self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str = "") -> dict[str, Any]:
        self.writes.append(f"merge {kind} {name} {part}")
        there = self.manifests[kind, namespace, name]
        there["status"] = {**there.get("status", {}), **body["status"]}
        return there

    def says(self, kind: str, name: str, **status: Any) -> None:
        """What the Spark Operator writes."""
        self.manifests[kind, "shop", name]["status"] = status

    def names(self, kind: str) -> set[str]:
        return {name for found, _, name in self.manifests if found == kind}


def sink(spec: dict[str, Any], *, topics: tuple[str, ...] = ("orders",), status: Any = None, **more: Any) -> ParquetSink:
    meta = {"name": "lake", "namespace": "shop", "uid": "uid-lake", "generation": 1}
    written = {"topics": list(topics), **spec, **more}
    return ParquetSink.model_validate({"metadata": meta, "spec": written, "status": {} if status is None else status.written()})


async def _closed(clients: dict[tuple[str, str], AdminClient]) -> None:
    for one in clients.values():
        await one.close()


class World:
    """A ParquetSink in front of an API server, without a cluster that answers."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.kube = SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT)
        self.clients: dict[tuple[str, str], AdminClient] = {}
        self.context: Context = context_of(self.kube, NOBODY, self.clients, clock=self.clock)
        self.status: Any = None

    async def look(self, spec: dict[str, Any], **more: Any) -> Outcome:
        self.kube.writes.clear()
        outcome = await reconcile(self.context, sink(spec, status=self.status, **more))
        self.status = outcome.status
        return outcome

    def ended(self, name: str, *, after_s: int, state: str = "FAILED") -> None:
        began, end = timestamp(self.clock.ms), timestamp(self.clock.ms + after_s * 1000)
        self.kube.says("SparkApplication", name, applicationState={"state": state}, lastSubmissionAttemptTime=began, terminationTime=end)
        self.clock.ms += after_s * 1000


def run(use: Any) -> None:
    async def main() -> None:
        world = World()
        try:
            await use(world)
        finally:
            await _closed(world.clients)

    asyncio.run(main())


def ready(outcome: Outcome, type_: str = "Ready") -> Condition:
    assert outcome.status is not None
    found = condition(outcome.status.conditions, type_)
    assert found is not None
    return found


def test_a_stream_is_made_left_alone_changed_and_suspended() -> None:
    async def use(world: World) -> None:
        first = await world.look(STREAM, oneTable=True)
        assert world.kube.writes == ["apply SparkApplication lake-sink", "apply ScheduledSparkApplication lake-sink-compact"]
        assert ready(first).reason == "Submitting"
        world.kube.says("SparkApplication", "lake-sink", applicationState={"state": "RUNNING"}, lastSubmissionAttemptTime="2026-01-01T00:00:00Z")
        second = await world.look(STREAM, oneTable=True)
        assert (ready(second).reason, ready(second, "Running").status, world.kube.writes) == ("Running", "True", [])
        assert second.status == (await world.look(STREAM, oneTable=True)).status, "nothing is written for nothing"
        await world.look({**STREAM, "continuous": {"trigger": "5m"}}, oneTable=True)
        assert world.kube.writes == ["apply SparkApplication lake-sink"]
        assert "5m" in world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["arguments"]
        suspended = await world.look({**STREAM, "suspend": True}, oneTable=True)
        assert ready(suspended).reason == "Suspended"
        assert world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["suspend"] is True

    run(use)


def test_without_the_spark_operator_a_condition_says_so_and_its_coming_is_noticed() -> None:
    async def use(world: World) -> None:
        world.kube.spark = False
        missing = await world.look(STREAM)
        assert (ready(missing).status, ready(missing).reason) == ("False", "SparkOperatorMissing")
        assert missing.again_after_s is not None and missing.again_after_s <= 60
        assert world.kube.writes == []
        world.kube.spark = True
        assert ready(await world.look(STREAM)).reason == "Submitting"

    run(use)


def test_of_several_tables_one_that_is_refused_does_not_keep_the_others_from_being_written() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, topics=("a", "b", "c"))
        bad, *good = sorted(world.kube.names("SparkApplication"))
        for name in world.kube.names("SparkApplication"):
            world.kube.drop("SparkApplication", "shop", name)
        world.kube.refuses = {bad}
        await world.look(STREAM, topics=("a", "b", "c"))
        assert sorted(world.kube.names("SparkApplication")) == good
        for name in good:
            world.kube.says("SparkApplication", name, applicationState={"state": "RUNNING"}, lastSubmissionAttemptTime="2026-01-01T00:00:00Z")
        outcome = await world.look(STREAM, topics=("a", "b", "c"))
        assert ready(outcome).reason == "Refused"
        assert "resource quota" in ready(outcome).message and "2 of 3 tables" in ready(outcome).message
        assert (world.status.desired, world.status.ready) == (3, 2)
        world.kube.refuses = set()
        await world.look(STREAM, topics=("b", "c"))
        assert len(world.kube.names("SparkApplication")) == 2, "what is no longer named goes"

    run(use)


def test_a_stream_that_fails_is_begun_anew_with_a_growing_delay_and_a_changed_spec_begins_with_a_clean_record() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        for failures, backoff_s in ((1, 10), (2, 20), (3, 40)):
            world.ended("lake-sink", after_s=15)
            early = await world.look(STREAM, oneTable=True)
            assert (ready(early).reason, early.again_after_s, world.kube.writes) == ("Failed", backoff_s, [])
            world.clock.ms += backoff_s * 1000
            await world.look(STREAM, oneTable=True)
            assert world.kube.writes == ["apply SparkApplication lake-sink"]
            made = world.kube.manifests["SparkApplication", "shop", "lake-sink"]
            assert made["spec"]["driver"]["annotations"][FAILURES] == str(failures)
            assert world.status.tables[0].failures == failures
        world.ended("lake-sink", after_s=15)
        await world.look(STREAM, oneTable=True, format="string")
        assert "annotations" not in world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]

    run(use)


def test_a_stream_that_fails_once_a_day_is_begun_anew_each_time() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        for _ in range(3):
            world.ended("lake-sink", after_s=86_400)
            world.clock.ms += 10_000
            await world.look(STREAM, oneTable=True)
            assert world.kube.writes == ["apply SparkApplication lake-sink"], "the Spark Operator sees a change each time"
            before = world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]["annotations"]
            assert before[FAILURES] == "1"

    run(use)


def test_a_schedule_that_is_changed_counts_at_once() -> None:
    async def use(world: World) -> None:
        await world.look(HOURLY, oneTable=True)
        assert world.kube.writes == ["apply ScheduledSparkApplication lake-sink"]
        world.kube.says("ScheduledSparkApplication", "lake-sink", scheduleState="Scheduled", nextRun="2099-01-01T00:00:00Z")
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "Scheduled"
        await world.look({**HOURLY, "schedule": "*/5 * * * *"}, oneTable=True)
        assert world.kube.writes == ["apply ScheduledSparkApplication lake-sink", "merge ScheduledSparkApplication lake-sink status"]
        assert world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]["status"]["nextRun"] is None

    run(use)


def test_from_a_schedule_to_a_stream_and_back_nothing_is_left_over_and_runs_of_a_schedule_are_its_own() -> None:
    async def use(world: World) -> None:
        await world.look(HOURLY, oneTable=True)
        made = world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]
        labels = {**made["metadata"]["labels"], SCHEDULED_LABEL: "lake-sink"}
        of_schedule = {"kind": "SparkApplication", "metadata": {**made["metadata"], "name": "lake-sink-1", "labels": labels}, "spec": {}}
        world.kube.keep({**of_schedule, "status": {"applicationState": {"state": "RUNNING"}, "lastSubmissionAttemptTime": "2026-01-01T00:00:00Z"}})
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "Running"
        assert world.kube.writes == []
        await world.look({**HOURLY, "suspend": True}, oneTable=True)
        assert "delete SparkApplication lake-sink-1" in world.kube.writes, "what runs ends"
        await world.look(STREAM, oneTable=True)
        assert world.kube.names("ScheduledSparkApplication") == {"lake-sink-compact"}
        await world.look(HOURLY, oneTable=True)
        assert (world.kube.names("SparkApplication"), world.kube.names("ScheduledSparkApplication")) == (set(), {"lake-sink"})

    run(use)


def test_what_belongs_to_somebody_else_is_left_alone() -> None:
    async def use(world: World) -> None:
        theirs = {"kind": "SparkApplication", "metadata": {"name": "lake-sink", "namespace": "shop", "uid": "theirs"}, "spec": {"type": "Scala"}}
        world.kube.keep(theirs)
        assert ready(await world.look(STREAM, oneTable=True)).reason == "NameTaken"
        assert world.kube.manifests["SparkApplication", "shop", "lake-sink"] == theirs

    run(use)


def test_a_namespace_without_the_drivers_account_is_told_with_what_helps() -> None:
    async def use(world: World) -> None:
        world.kube.drop("ServiceAccount", "shop", "bmq-spark")
        await world.look(STREAM)
        found = await world.look(STREAM)
        assert ready(found).reason == "ServiceAccountMissing"
        assert "spark.namespaces" in ready(found).message

    run(use)


def test_a_sink_of_a_cluster_that_is_not_there_says_so_and_keeps_what_runs() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        world.kube.drop("Cluster", "shop", "bmq")
        world.context.known.clusters.forget(("shop", "bmq"))
        assert ready(await world.look(STREAM, oneTable=True)).reason == "ClusterMissing"
        assert world.kube.writes == []
        assert not holds(sink(STREAM)), "its applications go by their owner"

    run(use)


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def topic(status: dict[str, Any], **spec: Any) -> Topic:
    meta = {"name": "orders", "namespace": "shop", "uid": "uid-orders", "generation": 1, "creationTimestamp": "2001-09-09T01:46:40Z"}
    return Topic.model_validate({"apiVersion": "bmq.io/v1alpha1", "kind": "Topic", "metadata": meta, "spec": spec, "status": status})


def test_a_topic_is_looked_after_whatever_is_the_matter_with_its_table(bmq: StartedBmq) -> None:
    async def main() -> None:
        clients: dict[tuple[str, str], AdminClient] = {}
        kube = SparkKube(CLUSTER, auth_secret(TOKEN), ACCOUNT)
        context = context_of(kube, bmq.admin, clients)
        status: dict[str, Any] = {}

        async def look(**spec: Any) -> Outcome:
            nonlocal status
            outcome = await reconcile_topic(context, topic(status, **spec))
            assert outcome.status is not None
            status = outcome.status.written()
            return outcome

        kube.spark = False
        waiting = await look(parquet=HOURLY)
        assert ready(waiting, "ParquetReady").reason == "TopicNotReady", "the table waits for its topic"
        for _ in range(LOOKS_MAX):
            made = await look(parquet=HOURLY)
            if ready(made).reason != "Creating":
                break
        assert (ready(made).reason, ready(made, "ParquetReady").reason) == ("AsWritten", "SparkOperatorMissing")
        kube.spark = True
        kube.refuses = {"orders-topic"}
        grown = await look(partitions=3, parquet=HOURLY)
        assert (ready(grown).reason, ready(grown, "ParquetReady").reason) == ("AsWritten", "Refused")
        assert (await context.admin(bmq.admin, TOKEN).get("topics", "orders"))["partitions"] == 3
        kube.refuses = set()
        await look(partitions=3, parquet=HOURLY)
        kube.says("ScheduledSparkApplication", "orders-topic", scheduleState="Scheduled", nextRun="2099-01-01T00:00:00Z")
        well = await look(partitions=3, parquet=HOURLY)
        assert (ready(well, "ParquetReady").reason, status["table"]["application"]) == ("Scheduled", "orders-topic")
        assert status["table"]["lag"] == -1, "nobody has committed yet"
        without = await look(partitions=3)
        assert kube.names("ScheduledSparkApplication") == set()
        assert without.status is not None
        assert [one.type for one in without.status.conditions] == ["Ready"]
        await _closed(clients)

    asyncio.run(main())
