"""What is said of a table, and whether its stream is to be begun anew. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bmq_operator.conditions import Finding, timestamp
from bmq_operator.kube import Manifest
from bmq_operator.tables.jobs import Anew, TableJob
from bmq_operator.tables.runs import (
    ENDED,
    HEARD_AFTER_MS,
    Recipe,
    Run,
    Schedule,
    broken,
    made_otherwise,
    said,
    time_ms,
    waiting,
)
from bmq_resources.tables import TableStatus

SOON_S: Final = 10.0
NUDGED_AFTER_MS: Final = 90_000
"""Longer than a submission takes: what is written to an application meanwhile costs the Spark Operator its note of
it."""
ADOPTED_AFTER_MS: Final = 30_000
NOT_TAKEN_AFTER_MS: Final = 60_000
"""The Spark Operator takes up an application within seconds, if it looks after the namespace at all."""
BACKOFF_FIRST_MS: Final = 10_000
BACKOFF_MAX_MS: Final = 600_000
RAN_WELL_MS: Final = 600_000
"""A stream that ran so long before it ended is begun anew as if it had never failed."""
RUNNING: Final = "Running"
_TAKEN_UP: Final = frozenset(("SUBMITTED", "RUNNING"))
_BEGINNING: Final = frozenset(("PENDING_RERUN", "INVALIDATING", "RESUMING", "SUBMITTED", "UNKNOWN", ""))
_WAITING: Final = frozenset(("PENDING_RERUN", "INVALIDATING", "RESUMING"))
"""The Spark Operator waits for pods to go, and then only for an event."""
_RERUN: Final = "PENDING_RERUN"
_FAILING: Final = frozenset(("FAILING", "FAILED", "SUBMISSION_FAILED"))
_SUSPENDED: Final = frozenset(("SUSPENDING", "SUSPENDED"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is said of one table, and whether its stream is to be begun anew. `begin_anew`: None where there is no
    reason to, or not yet. `compaction`: None where no runs merge its files.
    """

    finding: Finding
    running: bool
    status: TableStatus
    begin_anew: Anew | None = None
    nudge: bool = False
    """Whether the Spark Operator is to be made to look at it once more."""
    adopt: bool = False
    """Whether the driver is to be written into the status: the Spark Operator made it, and does not know."""
    again_after_s: float | None = None
    compaction: Finding | None = None


def of_stream(
    job: TableJob,
    run: Run | None,
    pod: Manifest | None,
    old: TableStatus,
    *,
    now_ms: int,
    wanted: Recipe | None = None,
    driverless_ms: int = 0,
) -> Report:
    """What is said of a table whose SparkApplication is to run for ever.

    `pod`: its driver's where that was looked at, empty where it is gone; `wanted`: what that is to be made from;
    `driverless_ms`: since when a run that is to be submitted was seen without a driver.
    """
    status = TableStatus(
        output=job.output, kind="SparkApplication", application=job.name, last_error=old.last_error, lag=old.lag
    )
    if run is None:
        return Report(
            finding=_unknown("Submitting", "the application was made a moment ago"),
            running=False,
            status=status,
            again_after_s=SOON_S,
        )
    failures = run.anew.failures
    if run.state in ENDED and not run.is_begun_anew:
        failures = (0 if run.lasted_ms >= RAN_WELL_MS else failures) + 1
    status = status.model_copy(
        update={
            "state": run.state,
            "driver": run.driver,
            "failures": failures,
            "last_run": timestamp(run.submitted_ms) if run.submitted_ms else "",
            "last_success": timestamp(run.submitted_ms)
            if run.state == "RUNNING" and run.submitted_ms
            else old.last_success,
        }
    )
    if job.table.suspend:
        finding = Finding(
            status="True", reason="Suspended", message="suspend: true: nothing runs, and the place is kept"
        )
        done = run.state in _SUSPENDED or run.state in ENDED
        return Report(finding=finding, running=not done, status=status, again_after_s=None if done else SOON_S)
    finding, error = _of_run(run, pod, now_ms=now_ms)
    status = status.model_copy(update={"last_error": error or status.last_error})
    running = finding.reason == RUNNING
    report = Report(finding=finding, running=running, status=status, again_after_s=None if running else SOON_S)
    if (
        run.state == _RERUN
        and pod
        and _lives(pod)
        and now_ms - time_ms(pod["metadata"].get("creationTimestamp")) >= ADOPTED_AFTER_MS
    ):
        # Something was written to the application while it was submitted, and the note of the submission was lost. It
        # goes on as it is.
        return replace(report, adopt=True, again_after_s=SOON_S)
    if (
        run.state in _WAITING
        and not pod
        and wanted is not None
        and now_ms - max(wanted.since_ms, driverless_ms) >= NUDGED_AFTER_MS
    ):
        # What was changed while it was submitted has a driver of which the Spark Operator forgot that it is its own: it
        # does not hear that it went.
        return replace(report, nudge=True, again_after_s=SOON_S)
    otherwise = wanted is not None and made_otherwise(pod, wanted, now_ms=now_ms)
    if run.state in _TAKEN_UP and otherwise and now_ms - time_ms(run.anew.after) >= HEARD_AFTER_MS:
        # It would go on with what it was before the change, or wait for ever for an image that is not to be had.
        finding = _unknown(
            "Starting",
            "its driver was made before the newest change, which the Spark Operator missed: it is begun anew",
        )
        return replace(
            report,
            finding=finding,
            running=False,
            begin_anew=Anew(failures=max(1, failures), after=timestamp(now_ms)),
            again_after_s=SOON_S,
        )
    if run.is_begun_anew:
        return _begun_once_more(report, run, now_ms=now_ms, written_ms=0 if wanted is None else wanted.since_ms)
    return _begun_anew(report, run, failures, now_ms=now_ms) if run.state in ENDED else report


def of_schedule(
    job: TableJob, schedule: Schedule | None, pod: Manifest | None, old: TableStatus, *, now_ms: int
) -> Report:
    """What is said of a table that a ScheduledSparkApplication writes; `pod` is the driver's of its newest run, where
    that was looked at.
    """
    status = TableStatus(
        output=job.output,
        kind="ScheduledSparkApplication",
        application=job.name,
        last_error=old.last_error,
        lag=old.lag,
    )
    if schedule is None:
        return Report(
            finding=_unknown("Submitting", "the schedule was made a moment ago"),
            running=False,
            status=status,
            again_after_s=SOON_S,
        )
    newest = schedule.runs[0] if schedule.runs else None
    succeeded = max((run.ended_ms for run in schedule.runs if run.state == "COMPLETED"), default=0)
    status = status.model_copy(
        update={
            "state": newest.state if newest is not None else "",
            "driver": newest.driver if newest is not None else "",
            "last_run": timestamp(newest.created_ms) if newest is not None else old.last_run,
            "last_success": timestamp(succeeded) if succeeded else old.last_success,
            "next_run": "" if job.table.suspend else schedule.next_run,
        }
    )
    running = newest is not None and newest.state == "RUNNING" and not broken(newest, pod)
    if job.table.suspend:
        finding = Finding(
            status="True", reason="Suspended", message="suspend: true: nothing runs, and the place is kept"
        )
        return Report(finding=finding, running=running, status=status)
    if schedule.state == "FailedValidation":
        finding = _failed(
            "ScheduleRefused", f"the Spark Operator refuses schedule or timeZone: {schedule.reason}: correct them"
        )
        return Report(finding=finding, running=False, status=status)
    overdue = schedule.due_ms > 0 and now_ms - schedule.due_ms > NOT_TAKEN_AFTER_MS
    if overdue and (newest is None or newest.state == "COMPLETED"):
        return Report(finding=_not_taken(_what_is_due(schedule)), running=False, status=status, again_after_s=SOON_S)
    if newest is None:
        finding = Finding(
            status="True", reason="Scheduled", message=f"the first run begins at {schedule.next_run or 'its time'}"
        )
        return Report(finding=finding, running=False, status=status)
    if newest.state == "COMPLETED":
        finding = Finding(
            status="True", reason="Succeeded", message=f"the last run ended well at {timestamp(newest.ended_ms)}"
        )
        return Report(finding=finding, running=False, status=status)
    finding, error = _of_run(newest, pod, now_ms=now_ms)
    if newest.state == "FAILED":
        then = _not_taken(_what_is_due(schedule)).message if overdue else f"The next run begins at {schedule.next_run}"
        finding = replace(finding, message=f"{finding.message}. {then}")
    status = status.model_copy(update={"last_error": error or status.last_error})
    return Report(
        finding=finding,
        running=running,
        status=status,
        again_after_s=None if running or newest.state in ENDED else SOON_S,
    )


def of_compaction(
    job: TableJob, schedule: Schedule | None, ended: Run | None, pod: Manifest | None, *, now_ms: int
) -> Finding:
    """What is said of the ScheduledSparkApplication that merges a table's files: how the last run `ended`, as long as
    the next one goes on too.

    `pod` is that run's driver's, where it was looked at.
    """
    if schedule is not None and ended is not None:
        schedule = replace(schedule, runs=[ended])
    return of_schedule(job, schedule, pod, TableStatus(), now_ms=now_ms).finding


def summed_up(reports: Sequence[Report], *, prefix: str = "") -> list[Finding]:
    """What is said of all tables of a resource: whether they are written, whether runs go on, whether files are merged.
    The worst is what is told.
    """
    worst = min(reports, key=lambda one: _rank(one.finding))
    message = worst.finding.message
    if len(reports) > 1:
        ready = sum(one.finding.status == "True" for one in reports)
        message = f"{ready} of {len(reports)} tables are as they should be; {worst.status.output}: {message}"
    running = [one.status.output for one in reports if one.running]
    compactions = [(one.status.output, one.compaction) for one in reports if one.compaction is not None]
    found = [
        replace(worst.finding, type=f"{prefix}Ready", message=message),
        Finding(
            type=f"{prefix}Running",
            status="True" if running else "False",
            reason="Running" if running else "NotRunning",
            message=f"{len(running)} of {len(reports)} tables have a run that goes on" if len(reports) > 1 else "",
        ),
    ]
    if compactions:
        output, compaction = min(compactions, key=lambda one: _rank(one[1]))
        text = f"{output}: {compaction.message}" if len(compactions) > 1 else compaction.message
        found.append(replace(compaction, type=f"{prefix}Compacted", message=text))
    return found


def _lives(pod: Manifest) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") in ("Pending", "Running")


def is_waiting(run: Run | None) -> bool:
    """Whether the Spark Operator is about to submit it, once the pods of before are gone."""
    return run is not None and run.state in _WAITING


def _rank(finding: Finding) -> int:
    """The worst has the least."""
    return ("False", "Unknown", "True").index(finding.status)


def _of_run(run: Run, pod: Manifest | None, *, now_ms: int) -> tuple[Finding, str]:
    """What is said of a run, and why it failed."""
    if run.state == "RUNNING" and (why := broken(run, pod)):
        return _failed("DriverBroken", why), why
    if run.state == "RUNNING":
        return Finding(status="True", reason=RUNNING, message=f"it runs since {timestamp(run.submitted_ms)}"), ""
    if run.state == "" and now_ms - run.created_ms > NOT_TAKEN_AFTER_MS:
        return _not_taken("taken up the application"), ""
    if run.state in _FAILING:
        error = said(run, pod)
        reason = "SubmissionFailed" if run.state == "SUBMISSION_FAILED" else "Failed"
        return _failed(reason, error), error
    if why := waiting(pod):
        return _failed("CannotStart", why), ""
    if run.state in _BEGINNING:
        return _unknown("Starting", "it is being started"), ""
    if run.state in _SUSPENDED:
        return _unknown("Suspended", "it goes on in a moment"), ""
    return _unknown("Ending", "the run ended"), ""


def _begun_anew(report: Report, run: Run, failures: int, *, now_ms: int) -> Report:
    """A stream that ended, for whatever reason, is begun anew: at first soon, then later and later."""
    due_ms = run.over_ms + min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** min(failures - 1, 16))
    if now_ms >= due_ms:
        finding = replace(report.finding, message=f"{report.finding.message}. It is begun anew")
        return replace(
            report,
            finding=finding,
            begin_anew=Anew(failures=failures, after=timestamp(run.over_ms)),
            again_after_s=SOON_S,
        )
    at = timestamp(due_ms)
    finding = replace(report.finding, message=f"{report.finding.message}. It is begun anew at {at}")
    status = report.status.model_copy(update={"next_run": at})
    return replace(report, finding=finding, status=status, again_after_s=(due_ms - now_ms) / 1000)


def _begun_once_more(report: Report, run: Run, *, now_ms: int, written_ms: int) -> Report:
    """One of which the Spark Operator has not heard that it is begun anew: it does not run, and sees changes alone that
    are made once it does again.

    Each is heard of by this operator, too, and looked at at once.
    """
    due_ms = max(time_ms(run.anew.after), written_ms) + NOT_TAKEN_AFTER_MS
    first = time_ms(run.anew.after) <= run.over_ms
    finding = replace(report.finding, message=f"{report.finding.message}. It is begun anew")
    if not first or now_ms >= due_ms:
        finding = _not_taken("begun it anew")
    if now_ms < due_ms:
        return replace(report, finding=finding, again_after_s=(due_ms - now_ms) / 1000)
    return replace(
        report,
        finding=finding,
        begin_anew=Anew(failures=run.anew.failures, after=timestamp(now_ms)),
        again_after_s=SOON_S,
    )


def _not_taken(what: str) -> Finding:
    text = (
        f"nobody has {what}: see whether the Spark Operator runs and looks after this namespace (its chart's "
        "spark.jobNamespaces), and what its log says"
    )
    return _failed("NotTakenUp", text)


def _what_is_due(schedule: Schedule) -> str:
    return f"begun the run that was due at {schedule.next_run}" if schedule.state else "taken up the schedule"


def _failed(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)


def _unknown(reason: Literal["Submitting", "Starting", "Suspended", "Ending"], message: str) -> Finding:
    return Finding(status="Unknown", reason=reason, message=message)
