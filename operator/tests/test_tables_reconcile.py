"""Tables brought about: the API server is the test's own, and so is what the Spark Operator would write into
statuses.
"""

from typing import Any

import pytest
from tables_of_a_test import HOURLY, STREAM
from tables_world import World, ready, run, sink

from bmq_operator.conditions import condition, timestamp
from bmq_operator.kube import KubeProblem, KubeUnreachable
from bmq_operator.tables.desired import FAILURES
from bmq_operator.tables.places import OWNER_LABEL
from bmq_operator.tables.reconcile import holds
from bmq_operator.tables.runs import SCHEDULED_LABEL


def test_a_stream_is_made_left_alone_changed_and_suspended() -> None:
    async def use(world: World) -> None:
        first = await world.look(STREAM, oneTable=True)
        assert world.kube.writes == [
            "apply SparkApplication lake-sink",
            "apply ScheduledSparkApplication lake-sink-compact",
        ]
        assert ready(first).reason == "Submitting"
        world.kube.says(
            "SparkApplication",
            "lake-sink",
            applicationState={"state": "RUNNING"},
            lastSubmissionAttemptTime="2026-01-01T00:00:00Z",
        )
        second = await world.look(STREAM, oneTable=True)
        assert (ready(second).reason, ready(second, "Running").status, world.kube.writes) == ("Running", "True", [])
        assert second.status == (await world.look(STREAM, oneTable=True)).status, "nothing is written for nothing"
        await world.look({**STREAM, "continuous": {"trigger": "5m"}}, oneTable=True)
        assert world.kube.writes == ["apply SparkApplication lake-sink"]
        assert "--trigger=5m" in world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["arguments"]
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
            world.kube.says(
                "SparkApplication",
                name,
                applicationState={"state": "RUNNING"},
                lastSubmissionAttemptTime="2026-01-01T00:00:00Z",
            )
        outcome = await world.look(STREAM, topics=("a", "b", "c"))
        assert ready(outcome).reason == "Refused"
        assert "resource quota" in ready(outcome).message and "2 of 3 tables" in ready(outcome).message
        assert (world.status.desired, world.status.ready) == (3, 2)
        world.kube.refuses = set()
        await world.look(STREAM, topics=("b", "c"))
        assert len(world.kube.names("SparkApplication")) == 2, "what is no longer named goes"

    run(use)


@pytest.mark.parametrize(
    "message",
    [
        'sparkapplications.sparkoperator.k8s.io "x" is forbidden: exceeded quota: tables, requested: '
        "count/sparkapplications.sparkoperator.k8s.io=1",
        'admission webhook "policy" denied the request: no streams here',
    ],
)
def test_of_several_tables_one_that_a_quota_or_a_policy_forbids_is_told_so_and_the_others_are_written(
    message: str,
) -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, topics=("a", "b", "c"))
        bad, *good = sorted(world.kube.names("SparkApplication"))
        for name in world.kube.names("SparkApplication"):
            world.kube.drop("SparkApplication", "shop", name)
        world.kube.refuses, world.kube.refusal = {bad}, KubeProblem(status=403, reason="Forbidden", message=message)
        outcome = await world.look(STREAM, topics=("a", "b", "c"))
        assert sorted(world.kube.names("SparkApplication")) == good
        assert ready(outcome).reason == "Refused" and message in ready(outcome).message

    run(use)


def test_of_several_tables_one_that_a_policy_forbids_to_begin_anew_is_told_so_and_the_others_are_looked_after() -> None:
    """What is there already is not written, so a policy that came later is met by a stream that ended alone."""

    async def use(world: World) -> None:
        await world.look(STREAM, topics=("a", "b", "c"))
        bad, *good = (one.application for one in world.status.tables)
        world.ended(bad, after_s=30)
        world.kube.drop("SparkApplication", "shop", good[-1])
        world.kube.refuses, world.kube.refusal = (
            {bad},
            KubeProblem(status=403, reason="Forbidden", message="denied the request: no streams here"),
        )
        world.clock.ms += 10_000
        outcome = await world.look(STREAM, topics=("a", "b", "c"))
        assert world.kube.names("SparkApplication") == {bad, *good}
        assert ready(outcome).reason == "Refused" and "no streams here" in ready(outcome).message

    run(use)


def test_what_the_operator_may_not_write_for_want_of_a_right_is_nothing_that_a_table_can_help() -> None:
    async def use(world: World) -> None:
        message = (
            'User "system:serviceaccount:bmq:bmq" cannot create resource "sparkapplications" in API group '
            '"sparkoperator.k8s.io"'
        )
        world.kube.refuses, world.kube.refusal = (
            {"lake-sink"},
            KubeProblem(status=403, reason="Forbidden", message=message),
        )
        with pytest.raises(KubeProblem):
            await world.look(STREAM, oneTable=True)

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
        assert (
            FAILURES
            not in world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]["annotations"]
        )

    run(use)


def test_a_stream_that_nobody_begins_anew_is_written_once_a_minute_and_says_so() -> None:
    """What is written is heard of, and looked at, at once; and a Spark Operator that comes back sees changes alone that
    are made from then on.
    """

    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        world.ended("lake-sink", after_s=15)
        world.clock.ms += 3_600_000
        written = []
        for second in range(181):
            found = await world.look(STREAM, oneTable=True)
            written += [second] * len(world.kube.writes)
            assert world.status.tables[0].failures == 1, "it ended once"
            assert ready(found).reason == ("Failed" if second < 60 else "NotTakenUp")
            world.clock.ms += 1000
        assert written == [0, 60, 120, 180]
        world.ended("lake-sink", after_s=15)
        world.clock.ms += 20_000
        await world.look(STREAM, oneTable=True)
        assert (world.kube.writes, world.status.tables[0].failures) == (["apply SparkApplication lake-sink"], 2)

    run(use)


def test_a_stream_that_cannot_be_submitted_is_begun_anew_later_and_later_though_it_never_ended() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        for failures, backoff_s in ((1, 10), (2, 20), (3, 40)):
            tried = timestamp(world.clock.ms)
            world.kube.says(
                "SparkApplication", "lake-sink", applicationState={"state": "FAILED"}, lastSubmissionAttemptTime=tried
            )
            early = await world.look(STREAM, oneTable=True)
            assert (early.again_after_s, world.kube.writes) == (backoff_s, [])
            world.clock.ms += backoff_s * 1000
            await world.look(STREAM, oneTable=True)
            assert world.status.tables[0].failures == failures

    run(use)


def test_a_stream_that_fails_once_a_day_is_begun_anew_each_time() -> None:
    async def use(world: World) -> None:
        await world.look(STREAM, oneTable=True)
        for _ in range(3):
            world.ended("lake-sink", after_s=86_400)
            world.clock.ms += 10_000
            await world.look(STREAM, oneTable=True)
            assert world.kube.writes == ["apply SparkApplication lake-sink"], (
                "the Spark Operator sees a change each time"
            )
            before = world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]["annotations"]
            assert before[FAILURES] == "1"

    run(use)


def test_a_schedule_that_is_changed_counts_at_once() -> None:
    async def use(world: World) -> None:
        await world.look(HOURLY, oneTable=True)
        assert world.kube.writes == ["apply ScheduledSparkApplication lake-sink"]
        world.kube.says(
            "ScheduledSparkApplication", "lake-sink", scheduleState="Scheduled", nextRun="2099-01-01T00:00:00Z"
        )
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "Scheduled"
        await world.look({**HOURLY, "schedule": "*/5 * * * *"}, oneTable=True)
        apply, clear = "apply ScheduledSparkApplication lake-sink", "merge ScheduledSparkApplication lake-sink status"
        assert world.kube.writes == [apply, clear, apply]
        assert world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]["status"].get("nextRun") is None

    run(use)


@pytest.mark.parametrize(
    "noted",
    [
        {"scheduleState": "Scheduled", "nextRun": "2099-01-01T00:00:00Z"},
        {"scheduleState": "FailedValidation", "reason": "no such hour"},
    ],
)
def test_a_schedule_that_is_changed_counts_though_the_call_that_clears_the_old_ones_note_fails(
    noted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Spark Operator keeps to its note of a time until that comes, and to its refusal for ever."""

    async def use(world: World) -> None:
        await world.look(HOURLY, oneTable=True)
        world.kube.says("ScheduledSparkApplication", "lake-sink", **noted)
        merge = world.kube.merge

        async def unreachable(*_: Any, **__: Any) -> Any:
            raise KubeUnreachable("PATCH: 500")

        changed = {**HOURLY, "schedule": "*/5 * * * *"}
        monkeypatch.setattr(world.kube, "merge", unreachable)
        for _ in range(2):
            with pytest.raises(KubeUnreachable):
                await world.look(changed, oneTable=True)
        monkeypatch.setattr(world.kube, "merge", merge)
        await world.look(changed, oneTable=True)
        there = world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]
        assert (there["spec"]["schedule"], there["status"].get("nextRun"), there["status"]["scheduleState"]) == (
            "*/5 * * * *",
            None,
            "",
        )
        world.kube.says("ScheduledSparkApplication", "lake-sink", **noted)
        await world.look(changed, oneTable=True)
        assert world.kube.writes == [], "what it notes of the new one stays"

    run(use)


def test_from_a_schedule_to_a_stream_and_back_nothing_is_left_over_and_runs_of_a_schedule_are_its_own() -> None:
    async def use(world: World) -> None:
        await world.look(HOURLY, oneTable=True)
        made = world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]
        labels = {**made["metadata"]["labels"], SCHEDULED_LABEL: "lake-sink"}
        of_schedule = {
            "kind": "SparkApplication",
            "metadata": {**made["metadata"], "name": "lake-sink-1", "labels": labels},
            "spec": {},
        }
        world.kube.keep(
            {
                **of_schedule,
                "status": {
                    "applicationState": {"state": "RUNNING"},
                    "lastSubmissionAttemptTime": "2026-01-01T00:00:00Z",
                },
            }
        )
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "Running"
        assert world.kube.writes == []
        await world.look({**HOURLY, "suspend": True}, oneTable=True)
        assert "delete SparkApplication lake-sink-1" in world.kube.writes, "what runs ends"
        await world.look(STREAM, oneTable=True)
        assert world.kube.names("ScheduledSparkApplication") == {"lake-sink-compact"}
        await world.look(HOURLY, oneTable=True)
        assert (world.kube.names("SparkApplication"), world.kube.names("ScheduledSparkApplication")) == (
            set(),
            {"lake-sink"},
        )

    run(use)


def test_how_the_last_merge_of_small_files_ended_is_told() -> None:
    async def use(world: World) -> None:
        first = await world.look(STREAM, oneTable=True)
        assert ready(first, "Compacted").status == "Unknown"
        world.kube.says(
            "ScheduledSparkApplication", "lake-sink-compact", scheduleState="Scheduled", nextRun="2099-01-01T00:00:00Z"
        )
        waiting = ready(await world.look(STREAM, oneTable=True), "Compacted")
        assert (waiting.status, waiting.reason) == ("True", "Scheduled")
        labels = {OWNER_LABEL: "uid-lake", SCHEDULED_LABEL: "lake-sink-compact"}
        meta = {
            "name": "lake-sink-compact-1",
            "namespace": "shop",
            "labels": labels,
            "creationTimestamp": "2001-09-09T00:17:00Z",
            "uid": "1",
        }
        status = {
            "applicationState": {"state": "FAILED"},
            "terminationTime": "2001-09-09T00:18:00Z",
            "driverInfo": {"podName": "merging"},
        }
        world.kube.keep({"kind": "SparkApplication", "metadata": meta, "spec": {}, "status": status})
        ended = {
            "terminated": {
                "reason": "Error",
                "message": "26/01/01 00:00:01 INFO a\nerror: the bucket refuses: mend its keys\n",
            }
        }
        world.kube.keep(
            {
                "kind": "Pod",
                "metadata": {"name": "merging", "namespace": "shop"},
                "status": {"containerStatuses": [{"state": ended}]},
            }
        )
        failed = ready(await world.look(STREAM, oneTable=True), "Compacted")
        assert (failed.status, failed.reason) == ("False", "Failed")
        assert failed.message == "the bucket refuses: mend its keys. The next run begins at 2099-01-01T00:00:00Z"
        again = {**meta, "name": "lake-sink-compact-2", "creationTimestamp": "2001-09-09T01:17:00Z"}
        world.kube.keep(
            {
                "kind": "SparkApplication",
                "metadata": again,
                "spec": {},
                "status": {"applicationState": {"state": "RUNNING"}},
            }
        )
        assert ready(await world.look(STREAM, oneTable=True), "Compacted").status == "False", (
            "as long as the next one goes on"
        )
        done = {"applicationState": {"state": "COMPLETED"}, "terminationTime": "2001-09-09T01:18:00Z"}
        world.kube.says("SparkApplication", "lake-sink-compact-2", **done)
        assert ready(await world.look(STREAM, oneTable=True), "Compacted").reason == "Succeeded"
        without = await world.look({**STREAM, "compact": {"mode": "Never"}}, oneTable=True)
        assert without.status is not None and condition(without.status.conditions, "Compacted") is None

    run(use)


def test_what_belongs_to_somebody_else_is_left_alone() -> None:
    async def use(world: World) -> None:
        theirs = {
            "kind": "SparkApplication",
            "metadata": {"name": "lake-sink", "namespace": "shop", "uid": "theirs"},
            "spec": {"type": "Scala"},
        }
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


def test_a_schema_that_is_written_no_more_goes_with_the_last_application_that_reads_it() -> None:
    schema = {"format": "json", "schema": {"text": "id BIGINT"}}

    async def use(world: World) -> None:
        theirs = {
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": "shop", "labels": {OWNER_LABEL: "uid-lake"}},
            "data": {},
        }
        world.kube.keep(theirs)
        await world.look({**STREAM, **schema}, oneTable=True)
        assert world.kube.names("ConfigMap") == {"lake-sink-schema", "theirs"}
        world.kube.refuses.add("lake-sink")
        assert ready(await world.look(STREAM, oneTable=True)).reason == "Refused"
        assert "lake-sink-schema" in world.kube.names("ConfigMap"), "the application is as it was, and mounts it"
        world.kube.refuses.clear()
        await world.look(STREAM, oneTable=True)
        assert world.kube.names("ConfigMap") == {"theirs"}

    run(use)
