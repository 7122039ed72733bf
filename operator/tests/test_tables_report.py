"""What is said of a table by what the Spark Operator says of its runs, and when a stream is begun anew."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from tables_of_a_test import HOURLY, STREAM, cluster, sink

from bmq_operator.conditions import timestamp
from bmq_operator.kube import FIELD_MANAGER, Manifest
from bmq_operator.tables.desired import AFTER, FAILURES
from bmq_operator.tables.jobs import TableJob, jobs_of_sink
from bmq_operator.tables.report import Report, of_compaction, of_schedule, of_stream, summed_up
from bmq_operator.tables.runs import SCHEDULED_LABEL, Schedule, last_ended, last_words, run_of, schedule_of
from bmq_resources.tables import TableStatus

NEW = TableStatus()
NOW_MS = 1_700_000_000_000
LOG = """26/01/01 00:00:01 INFO SparkContext: Running Spark version 4.1.2
Traceback (most recent call last):
  File "/opt/bmq/spark-apps/parquet.py", line 3, in <module>
    main()
error: topic orders: 3 offsets were deleted before they were read: raise its retention, or give --accept-loss
26/01/01 00:00:09 INFO ShutdownHookManager: Shutdown hook called
"""


def job(**spec: Any) -> TableJob:
    [found] = jobs_of_sink(sink(**spec), cluster())
    return found


def application(
    state: str, *, ago_s: int = 5, ended_ago_s: int | None = None, failures: int = 0, message: str = "", of: str = ""
) -> Manifest:
    """A SparkApplication that was made and submitted so long ago."""
    at = timestamp(NOW_MS - ago_s * 1000)
    status: Manifest = (
        {"applicationState": {"state": state, "errorMessage": message}, "driverInfo": {"podName": "driver"}}
        if state
        else {}
    )
    if state:
        status["lastSubmissionAttemptTime"] = at
    if ended_ago_s is not None:
        status["terminationTime"] = timestamp(NOW_MS - ended_ago_s * 1000)
    driver = {"annotations": {FAILURES: str(failures), AFTER: timestamp(NOW_MS - 86_400_000)}} if failures else {}
    meta = {
        "name": f"lake-{ago_s}",
        "namespace": "shop",
        "creationTimestamp": at,
        "labels": {SCHEDULED_LABEL: of} if of else {},
    }
    return {"kind": "SparkApplication", "metadata": meta, "spec": {"driver": driver}, "status": status}


def stream(found: Manifest | None, pod: Manifest | None = None, *, old: TableStatus = NEW, **spec: Any) -> Report:
    return of_stream(job(**STREAM, **spec), None if found is None else run_of(found), pod, old, now_ms=NOW_MS)


def schedule(
    *runs: Manifest,
    state: str = "Scheduled",
    ago_s: int = 5,
    reason: str = "",
    due_in_s: int = 2800,
    changed_ago_s: int | None = None,
) -> Schedule:
    """Of a schedule that was made and changed so long ago, and whose next run is due then."""
    meta: Manifest = {"name": "lake", "creationTimestamp": timestamp(NOW_MS - ago_s * 1000)}
    if changed_ago_s is not None:
        meta["managedFields"] = [
            {"manager": FIELD_MANAGER, "operation": "Apply", "time": timestamp(NOW_MS - changed_ago_s * 1000)}
        ]
    status = {
        "scheduleState": state,
        "reason": reason,
        "nextRun": timestamp(NOW_MS + due_in_s * 1000) if state else None,
    }
    return schedule_of({"metadata": meta, "status": status}, runs)


def scheduled(*runs: Manifest, spec: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> Report:
    return of_schedule(job(**HOURLY, **spec), schedule(*runs, **more), None, TableStatus(), now_ms=NOW_MS)


def said(report: Report) -> tuple[str, str]:
    return report.finding.status, report.finding.reason


@pytest.mark.parametrize(
    ("state", "expected", "running"),
    [
        ("", ("Unknown", "Starting"), False),
        ("SUBMITTED", ("Unknown", "Starting"), False),
        ("RUNNING", ("True", "Running"), True),
        ("PENDING_RERUN", ("Unknown", "Starting"), False),
        ("INVALIDATING", ("Unknown", "Starting"), False),
        ("FAILING", ("False", "Failed"), False),
        ("SUBMISSION_FAILED", ("False", "SubmissionFailed"), False),
        ("SUCCEEDING", ("Unknown", "Ending"), False),
        ("SUSPENDED", ("Unknown", "Suspended"), False),
    ],
)
def test_each_state_of_a_stream_is_told(state: str, expected: tuple[str, str], running: bool) -> None:
    found = stream(application(state))
    assert (said(found), found.running, found.status.state) == (expected, running, state)
    assert (found.again_after_s is None) == running, "what is not at rest is looked at again without an event"


def test_an_application_that_nobody_takes_up_is_told_with_what_helps() -> None:
    assert said(stream(application("", ago_s=61))) == ("False", "NotTakenUp")
    assert "spark.jobNamespaces" in stream(application("", ago_s=61)).finding.message
    assert said(scheduled(state="", ago_s=61)) == ("False", "NotTakenUp")
    assert said(scheduled(state="")) == ("True", "Scheduled")


def test_a_run_that_is_due_and_that_nobody_begins_is_told_whatever_came_of_the_one_before() -> None:
    good = application("COMPLETED", ago_s=3700, ended_ago_s=3600, of="lake")
    for runs in ((), (good,)):
        assert said(scheduled(*runs, ago_s=9000, due_in_s=-60))[0] == "True", "the Spark Operator needs a moment"
        found = scheduled(*runs, ago_s=9000, due_in_s=-61)
        assert said(found) == ("False", "NotTakenUp")
        assert timestamp(NOW_MS - 61_000) in found.finding.message and "spark.jobNamespaces" in found.finding.message
        assert found.again_after_s is not None, "that a run begins is heard of, that none does is not"
    bad = scheduled(
        application("FAILED", ago_s=3700, ended_ago_s=3600, message="no route to host", of="lake"),
        ago_s=9000,
        due_in_s=-61,
    )
    assert said(bad) == ("False", "Failed")
    assert "no route to host" in bad.finding.message and "nobody has begun" in bad.finding.message
    assert said(scheduled(good, ago_s=9000, due_in_s=-61, spec={"suspend": True})) == ("True", "Suspended")


def test_a_run_that_waits_for_the_one_before_is_not_due() -> None:
    """The Spark Operator looks again when the schedule says so next, which is not told."""
    assert said(scheduled(application("RUNNING", ago_s=3700, of="lake"), ago_s=9000, due_in_s=-900)) == (
        "True",
        "Running",
    )
    late = application("COMPLETED", ago_s=3700, ended_ago_s=600, of="lake")
    assert said(scheduled(late, ago_s=9000, due_in_s=-900)) == ("True", "Succeeded")
    before = application("COMPLETED", ago_s=7300, ended_ago_s=7200, of="lake")
    merging = schedule(application("RUNNING", ago_s=3700, of="lake"), before, ago_s=9000, due_in_s=-900)
    told = of_compaction(job(**HOURLY), merging, last_ended(merging), None, now_ms=NOW_MS)
    assert (told.status, told.reason) == ("True", "Succeeded")


def test_a_schedule_that_was_changed_and_that_nobody_takes_up_is_told_though_it_had_runs() -> None:
    good = application("COMPLETED", ago_s=3700, ended_ago_s=3600, of="lake")
    assert said(scheduled(good, state="", ago_s=61)) == ("False", "NotTakenUp")
    assert said(scheduled(good, state="", ago_s=9000, changed_ago_s=5)) == ("True", "Succeeded")
    resumed = scheduled(good, ago_s=9000, due_in_s=-900, changed_ago_s=5)
    assert said(resumed) == ("True", "Succeeded"), "while it was suspended nobody was to begin a run"
    assert said(scheduled(application("RUNNING", ago_s=3700, of="lake"), state="", ago_s=61)) == ("True", "Running")


def test_a_failure_is_told_in_the_jobs_own_words() -> None:
    pod = {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "message": LOG}}}]}}
    failed = stream(application("FAILING"), pod)
    words = "topic orders: 3 offsets were deleted before they were read: raise its retention, or give --accept-loss"
    assert (failed.finding.message, failed.status.last_error) == (words, words)
    running = stream(application("RUNNING"), old=failed.status)
    assert running.status.last_error == words, "it is remembered while the next run goes on"
    by_operator = stream(application("FAILING", message="driver container failed with ExitCode: 137, Reason: Error"))
    assert "137" in by_operator.finding.message
    out_of_memory = {
        "status": {
            "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": LOG}}}]
        }
    }
    assert "memoryOverhead" in stream(application("FAILING"), out_of_memory).finding.message


def test_the_last_words_of_a_log_without_an_error_line_are_none_of_sparks_own() -> None:
    assert last_words("a: b\n26/01/01 00:00:09 INFO X: y\n\tat org.apache.spark.X(Y.scala:1)\n") == "a: b"
    assert last_words("") == ""


def test_a_driver_that_cannot_start_says_why() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}, "image": "bmq-spark:9"}
    pod = {"metadata": {"name": "driver"}, "status": {"phase": "Pending", "containerStatuses": [waiting]}}
    found = stream(application("SUBMITTED"), pod)
    assert said(found) == ("False", "CannotStart")
    assert "bmq-spark:9" in found.finding.message


@pytest.mark.parametrize(("failures", "backoff_s"), [(0, 10), (1, 20), (2, 40), (5, 320), (6, 600), (40, 600)])
def test_a_stream_that_ended_is_begun_anew_later_and_later(failures: int, backoff_s: int) -> None:
    early = stream(application("FAILED", ago_s=backoff_s + 20, ended_ago_s=backoff_s - 1, failures=failures))
    assert (early.begin_anew, said(early), early.again_after_s) == (None, ("False", "Failed"), 1.0)
    assert early.status.next_run in early.finding.message
    due = stream(application("FAILED", ago_s=backoff_s + 20, ended_ago_s=backoff_s, failures=failures))
    assert due.begin_anew is not None
    assert (due.begin_anew.failures, due.begin_anew.after) == (failures + 1, timestamp(NOW_MS - backoff_s * 1000))
    assert due.status.failures == failures + 1


def test_a_stream_that_ran_well_is_begun_anew_as_if_it_had_never_failed() -> None:
    found = stream(application("FAILED", ago_s=4000, ended_ago_s=10, failures=6))
    assert found.begin_anew is not None and found.begin_anew.failures == 1
    told_to_end = stream(application("COMPLETED", ago_s=4000, ended_ago_s=10))
    assert told_to_end.begin_anew is not None, "also where it ended well, as at the end of a node"


def test_what_is_suspended_is_not_begun_anew() -> None:
    for state, running in (("FAILED", False), ("SUSPENDED", False), ("RUNNING", True)):
        found = stream(application(state, ago_s=4000, ended_ago_s=900 if state == "FAILED" else None), suspend=True)
        assert (said(found), found.begin_anew, found.running) == (("True", "Suspended"), None, running)


def test_a_schedule_tells_of_its_newest_run_and_of_the_last_that_ended_well() -> None:
    good = application("COMPLETED", ago_s=7200, ended_ago_s=7000, of="lake")
    assert said(scheduled()) == ("True", "Scheduled")
    assert said(scheduled(good)) == ("True", "Succeeded")
    failed = scheduled(good, application("FAILED", ago_s=60, ended_ago_s=9, message="no route to host", of="lake"))
    assert (said(failed), failed.begin_anew) == (("False", "Failed"), None)
    assert "no route to host" in failed.finding.message and "2023-11-14T23:00:00Z" in failed.finding.message
    assert (failed.status.last_success, failed.status.last_run) == (
        timestamp(NOW_MS - 7_000_000),
        timestamp(NOW_MS - 60_000),
    )
    running = scheduled(good, application("RUNNING", ago_s=60, of="lake"))
    assert (said(running), running.running, running.status.last_success) == (
        ("True", "Running"),
        True,
        timestamp(NOW_MS - 7_000_000),
    )
    others = scheduled(application("FAILED", of="another"))
    assert said(others) == ("True", "Scheduled")


def test_a_schedule_that_the_spark_operator_refuses_is_told_with_its_reason() -> None:
    found = scheduled(state="FailedValidation", reason="end of range (99) above maximum (59): 99")
    assert said(found) == ("False", "ScheduleRefused")
    assert "above maximum (59)" in found.finding.message


def test_of_several_tables_the_worst_is_told_and_how_many_are_well() -> None:
    good, bad = stream(application("RUNNING")), stream(application("FAILING", message="no such bucket"))
    ready, running = summed_up([good, bad, good])
    assert (ready.status, ready.reason, running.status) == ("False", "Failed", "True")
    assert "2 of 3 tables" in ready.message and "no such bucket" in ready.message
    assert [one.type for one in summed_up([good], prefix="Parquet")] == ["ParquetReady", "ParquetRunning"]
