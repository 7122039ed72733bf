"""A driver that does not work is told by its table, whatever the Spark Operator says of the run; one of before a change
is not waited for.
"""

from dataclasses import replace
from typing import Any

import pytest
from tables_of_a_test import HOURLY, STREAM, cluster, sink
from tables_world import World, ready, run

from bmq_operator.conditions import timestamp
from bmq_operator.tables.desired import MADE_FROM, made_from
from bmq_operator.tables.jobs import jobs_of_sink
from bmq_operator.tables.report import Report, of_stream
from bmq_operator.tables.runs import SCHEDULED_LABEL, Recipe, run_of, written_ms
from bmq_resources.tables import TableStatus

NOW_MS = 1_700_000_000_000


WANTED = Recipe(digest="new", image="bmq-spark:1")


def driver(
    *, ago_s: int = 300, image: str = "bmq-spark:1", phase: str = "Running", made_from: str = "", **status: Any
) -> dict[str, Any]:
    """`made_from`: what the Spark Operator made it from; one that an older operator had made does not say."""
    containers = [{"name": "spark-kubernetes-driver", "image": image}]
    meta: dict[str, Any] = {
        "name": "driver",
        "namespace": "shop",
        "creationTimestamp": timestamp(NOW_MS - ago_s * 1000),
    }
    if made_from:
        meta["annotations"] = {MADE_FROM: made_from}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": containers}, "status": {"phase": phase, **status}}


def stream(pod: dict[str, Any] | None, *, state: str = "RUNNING", after: str = "", wanted: Recipe = WANTED) -> Report:
    [job] = jobs_of_sink(sink(**STREAM), cluster())
    annotations = {"bmq.io/failures": "1", "bmq.io/begun-anew-after": after} if after else {}
    manifest = {
        "metadata": {"name": "lake", "creationTimestamp": timestamp(NOW_MS - 900_000)},
        "spec": {"driver": {"annotations": annotations}},
        "status": {
            "applicationState": {"state": state},
            "driverInfo": {"podName": "driver"},
            "lastSubmissionAttemptTime": timestamp(NOW_MS - 300_000),
        },
    }
    return of_stream(job, run_of(manifest), pod, TableStatus(), now_ms=NOW_MS, wanted=wanted)


ENDED = {"state": {"terminated": {"exitCode": 1, "message": "error: the bucket is gone"}}}
UNREADY = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ({}, "the driver's pod driver is gone"),
        (driver(phase="Failed", containerStatuses=[ENDED]), "the driver ended: the bucket is gone"),
        (driver(containerStatuses=[ENDED]), "the driver ended: the bucket is gone"),
        (
            driver(containerStatuses=[{"image": "i", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]),
            "cannot be pulled",
        ),
        (driver(conditions=[UNREADY]), "is not ready: NodeNotReady"),
    ],
    ids=["gone", "failed", "its container ended", "waiting", "its node is lost"],
)
def test_a_driver_that_does_not_work_is_in_the_tables_ready_though_the_run_is_said_to_run(
    pod: dict[str, Any], says: str
) -> None:
    report = stream(pod)
    assert (report.finding.status, report.finding.reason, report.running) == ("False", "DriverBroken", False)
    assert says in report.finding.message
    assert report.again_after_s is not None


def test_a_driver_that_works_is_ready() -> None:
    for pod in (None, driver(), driver(conditions=[{"type": "Ready", "status": "True"}])):
        assert (stream(pod).finding.reason, stream(pod).running) == ("Running", True)


@pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING"])
def test_a_stream_whose_driver_has_an_image_of_before_is_begun_anew_once_in_a_while(state: str) -> None:
    old = driver(image="bmq-spark:0")
    found = stream(old, state=state)
    assert found.begin_anew is not None
    assert (found.finding.status, found.running) == ("Unknown", False)
    assert stream(old, state=state, after=found.begin_anew.after).begin_anew is None, (
        "the Spark Operator is given its time"
    )
    assert stream(old, state="INVALIDATING").begin_anew is None
    assert stream(driver(image="bmq-spark:0", ago_s=10), state=state).begin_anew is None


@pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING"])
def test_a_stream_whose_change_was_missed_is_begun_anew_once_the_spark_operator_had_its_time(state: str) -> None:
    old = driver(made_from="old")
    assert stream(driver(made_from="new"), state=state).begin_anew is None
    assert stream(driver(made_from="new", image="mirror/bmq-spark:1"), state=state).begin_anew is None, (
        "what it was made from counts"
    )
    assert stream(old, state=state).begin_anew is not None
    assert stream(old, state=state, wanted=replace(WANTED, since_ms=NOW_MS - 10_000)).begin_anew is None, (
        "it was changed a moment ago"
    )
    assert stream(driver(made_from="old", ago_s=10), state=state).begin_anew is None


def test_when_an_application_was_changed_is_what_its_manager_says() -> None:
    mine, others = {"manager": "bmq-operator", "operation": "Apply"}, {"manager": "spark-operator"}
    fields = [
        mine | {"time": timestamp(NOW_MS - 5_000)},
        mine | {"time": timestamp(NOW_MS), "subresource": "status"},
        others | {"time": timestamp(NOW_MS)},
    ]
    meta = {"name": "lake", "creationTimestamp": timestamp(NOW_MS - 900_000)}
    assert written_ms({"metadata": meta}) == NOW_MS - 900_000
    assert written_ms({"metadata": {**meta, "managedFields": fields}}) == NOW_MS - 5_000


def test_a_sink_that_is_changed_while_it_is_submitted_is_not_left_with_what_it_was() -> None:
    async def use(world: World) -> None:
        """The Spark Operator of the test never hears of the change, as the real one does not where its own write comes
        between.
        """
        world.clock.ms = NOW_MS
        await world.look(STREAM, oneTable=True)
        before = made_from(world.kube.manifests["SparkApplication", "shop", "lake-sink"])
        world.kube.says(
            "SparkApplication", "lake-sink", applicationState={"state": "SUBMITTED"}, driverInfo={"podName": "driver"}
        )
        world.kube.keep(driver(made_from=before, ago_s=0, image=world.context.settings.spark.image, phase="Pending"))
        changed = {**STREAM, "resources": {"driver": {"memory": "512m"}}}
        for seconds in (2, 10, 40):
            world.clock.ms += seconds * 1000
            await world.look(changed, oneTable=True)
            application = world.kube.manifests["SparkApplication", "shop", "lake-sink"]
            application["metadata"]["managedFields"] = [{"manager": "bmq-operator", "time": timestamp(NOW_MS + 2_000)}]
            assert made_from(application) != before
            assert "bmq.io/failures" not in application["spec"]["driver"]["annotations"], "it may have heard of it"
        world.clock.ms += 20_000
        assert ready(await world.look(changed, oneTable=True)).reason == "Starting"
        assert (
            "bmq.io/failures"
            in world.kube.manifests["SparkApplication", "shop", "lake-sink"]["spec"]["driver"]["annotations"]
        ), "begun anew"

    run(use)


@pytest.mark.parametrize("state", ["PENDING_RERUN", "INVALIDATING", "RESUMING"])
def test_a_sink_that_was_changed_while_it_was_submitted_is_looked_at_once_more_where_the_spark_operator_waits_for_ever(
    state: str,
) -> None:
    async def use(world: World) -> None:
        """The Spark Operator's own write of the submission was lost: it does not know the driver that goes, and hears
        nothing of it.
        """
        world.clock.ms = NOW_MS
        await world.look(STREAM, oneTable=True)
        changed = {**STREAM, "image": "bmq-spark:2"}
        await world.look(changed, oneTable=True)
        world.kube.says("SparkApplication", "lake-sink", applicationState={"state": state})
        application = world.kube.manifests["SparkApplication", "shop", "lake-sink"]

        def written(ms: int) -> None:
            application["metadata"]["managedFields"] = [{"manager": "bmq-operator", "time": timestamp(ms)}]

        written(NOW_MS)
        for _ in range(9):
            world.clock.ms += 10_000
            assert ready(await world.look(changed, oneTable=True)).reason == "Starting"
            assert world.kube.writes == [], "it is given its time"
        world.clock.ms += 10_000
        outcome = await world.look(changed, oneTable=True)
        assert world.kube.writes == ["merge SparkApplication lake-sink "]
        assert outcome.again_after_s is not None
        written(world.clock.ms)
        world.clock.ms += 80_000
        await world.look(changed, oneTable=True)
        assert world.kube.writes == [], "and again"
        world.clock.ms += 10_000
        await world.look(changed, oneTable=True)
        assert world.kube.writes == ["merge SparkApplication lake-sink "]
        assert "bmq.io/failures" not in application["spec"]["driver"]["annotations"], "that is no failure"

    run(use)


def test_nothing_is_written_to_an_application_whose_lost_driver_is_replaced() -> None:
    async def use(world: World) -> None:
        """That takes half a minute, and the Spark Operator would lose the note of its submission: it counts the state's
        time, not the change's.
        """
        world.clock.ms = NOW_MS
        await world.look(STREAM, oneTable=True)
        world.clock.ms += 900_000
        world.kube.says(
            "SparkApplication",
            "lake-sink",
            applicationState={"state": "PENDING_RERUN"},
            driverInfo={"podName": "lake-sink-driver"},
        )
        for _ in range(9):
            assert ready(await world.look(STREAM, oneTable=True)).reason == "Starting"
            assert world.kube.writes == []
            world.clock.ms += 10_000 - 1
        world.kube.says(
            "SparkApplication",
            "lake-sink",
            applicationState={"state": "RUNNING"},
            driverInfo={"podName": "lake-sink-driver"},
        )
        world.kube.keep(driver(ago_s=-900) | {"metadata": driver()["metadata"] | {"name": "lake-sink-driver"}})
        await world.look(STREAM, oneTable=True)
        world.kube.says("SparkApplication", "lake-sink", applicationState={"state": "PENDING_RERUN"})
        await world.kube.delete("Pod", "shop", "lake-sink-driver")
        world.clock.ms += 10_000
        await world.look(STREAM, oneTable=True)
        assert world.kube.writes == [], "another loss has a time of its own"

    run(use)


@pytest.mark.parametrize("known", [True, False], ids=["its name is known", "its name was lost, too"])
def test_a_driver_whose_submission_the_spark_operator_has_lost_the_note_of_is_its_own_again(known: bool) -> None:
    async def use(world: World) -> None:
        """It would say PENDING_RERUN for hours while the driver writes, and begin no other one when that is lost."""
        world.clock.ms = NOW_MS
        await world.look(STREAM, oneTable=True)
        info = {"podName": "lake-sink-driver"} if known else {}
        before = {"executionAttempts": 3, "submissionID": "old", "terminationTime": timestamp(NOW_MS - 60_000)}
        world.kube.says(
            "SparkApplication", "lake-sink", applicationState={"state": "PENDING_RERUN"}, driverInfo=info, **before
        )
        pod = driver(ago_s=20)
        pod["metadata"] |= {"name": "lake-sink-driver", "labels": {"sparkoperator.k8s.io/submission-id": "new"}}
        world.kube.keep(pod)
        assert ready(await world.look(STREAM, oneTable=True)).reason == "Starting"
        assert world.kube.writes == [], "the Spark Operator writes it within seconds, if at all"
        world.clock.ms += 10_000
        await world.look(STREAM, oneTable=True)
        assert world.kube.writes == ["merge SparkApplication lake-sink status"]
        status = world.kube.manifests["SparkApplication", "shop", "lake-sink"]["status"]
        assert (status["applicationState"]["state"], status["submissionID"], status["executionAttempts"]) == (
            "SUBMITTED",
            "new",
            4,
        )
        assert status["driverInfo"]["podName"] == "lake-sink-driver"
        assert run_of(world.kube.manifests["SparkApplication", "shop", "lake-sink"]).ended_ms == 0

    run(use)


def test_a_driver_that_goes_or_ended_is_not_taken_for_a_submitted_one() -> None:
    going = driver()
    going["metadata"]["deletionTimestamp"] = timestamp(NOW_MS)
    for pod in (going, driver(phase="Succeeded"), driver(phase="Failed")):
        found = stream(pod, state="PENDING_RERUN")
        assert (found.adopt, found.nudge) == (False, False)
    assert stream(driver(), state="PENDING_RERUN").adopt
    for state in ("INVALIDATING", "RESUMING", "RUNNING"):
        assert not stream(driver(), state=state).adopt


def test_a_run_of_a_schedule_that_finds_no_node_gives_way_once_it_was_made_smaller() -> None:
    async def use(world: World) -> None:
        world.clock.ms = NOW_MS
        await world.look(HOURLY, oneTable=True)
        scheduled = world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]
        labels = {**scheduled["metadata"]["labels"], SCHEDULED_LABEL: "lake-sink"}
        meta = {
            "name": "lake-sink-1",
            "namespace": "shop",
            "uid": "1",
            "labels": labels,
            "creationTimestamp": timestamp(NOW_MS - 300_000),
        }
        status = {"applicationState": {"state": "SUBMITTED"}, "driverInfo": {"podName": "driver"}}
        world.kube.keep({"kind": "SparkApplication", "metadata": meta, "spec": {}, "status": status})
        nowhere = {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
            ]
        }
        world.kube.keep(driver(made_from=made_from(scheduled), phase="Pending", **nowhere))
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "CannotStart"
        assert world.kube.writes == [], "resources may be freed"
        await world.look({**HOURLY, "resources": {"driver": {"memory": "512m"}}}, oneTable=True)
        assert "delete SparkApplication lake-sink-1" in world.kube.writes

    run(use)


def test_a_run_of_a_schedule_that_cannot_start_with_an_image_of_before_gives_way_to_the_next() -> None:
    async def use(world: World) -> None:
        world.clock.ms = NOW_MS
        await world.look(HOURLY, oneTable=True)
        labels = {
            **world.kube.manifests["ScheduledSparkApplication", "shop", "lake-sink"]["metadata"]["labels"],
            SCHEDULED_LABEL: "lake-sink",
        }
        meta = {
            "name": "lake-sink-1",
            "namespace": "shop",
            "uid": "1",
            "labels": labels,
            "creationTimestamp": timestamp(NOW_MS - 300_000),
        }
        status = {"applicationState": {"state": "SUBMITTED"}, "driverInfo": {"podName": "driver"}}
        made = {"kind": "SparkApplication", "metadata": meta, "spec": {}, "status": status}
        waits = {"containerStatuses": [{"image": "gone:1", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
        world.kube.keep(made)
        world.kube.keep(driver(image=world.context.settings.spark.image, phase="Pending", **waits))
        assert ready(await world.look(HOURLY, oneTable=True)).reason == "CannotStart"
        assert world.kube.writes == [], "the image that is wanted is waited for"
        world.kube.keep(driver(image="gone:1", phase="Pending", **waits))
        await world.look(HOURLY, oneTable=True)
        assert world.kube.writes == ["delete SparkApplication lake-sink-1"]

    run(use)
