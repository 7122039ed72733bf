"""What the Spark Operator tells of its applications, read into values. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bmq_operator.clusters.troubles import trouble
from bmq_operator.kube import FIELD_MANAGER, Manifest
from bmq_operator.tables.desired import AFTER, DRIVER_CONTAINER, FAILURES, MADE_FROM
from bmq_operator.tables.jobs import Anew

SCHEDULED_LABEL: Final = "sparkoperator.k8s.io/scheduled-app-name"
SUBMISSION_LABEL: Final = "sparkoperator.k8s.io/submission-id"
ENDED: Final = frozenset(("COMPLETED", "FAILED"))
HEARD_AFTER_MS: Final = 60_000
_NOISE: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d |\s+at |\s+File \"|Traceback |During handling|Caused by|\s*\^|\.\.\. \d+ more|\s+\w"
)
_ERROR: Final = "error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A SparkApplication. Times are milliseconds since 1970; 0: not yet."""

    name: str
    state: str
    created_ms: int
    submitted_ms: int
    ended_ms: int
    message: str
    driver: str
    anew: Anew
    """Whether the operator had begun it anew."""

    @property
    def over_ms(self) -> int:
        """When it ended, or, of one that could not be submitted, was tried last."""
        return self.ended_ms or self.submitted_ms

    @property
    def is_begun_anew(self) -> bool:
        """Whether the operator has had it begun anew since it ended, of which its state tells nothing yet."""
        return self.state in ENDED and self.anew.after != "" and time_ms(self.anew.after) >= self.over_ms // 1000 * 1000

    @property
    def lasted_ms(self) -> int:
        """From its last submission to its end."""
        return max(0, self.ended_ms - self.submitted_ms) if self.ended_ms and self.submitted_ms else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a driver is to be made from, and since when the Spark Operator could have heard of it."""

    digest: str
    image: str
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A ScheduledSparkApplication with its runs, the newest first."""

    name: str
    state: str
    reason: str
    next_run: str
    due_ms: int
    """Since when the Spark Operator is to do something about it: take it up, or begin the next run. 0: not yet, or
    nobody knows."""
    runs: Sequence[Run]


def run_of(application: Manifest) -> Run:
    """The run that a SparkApplication is, as the API server has it."""
    status, meta = application.get("status", {}), application["metadata"]
    state = status.get("applicationState", {})
    annotations = application["spec"].get("driver", {}).get("annotations", {})
    return Run(
        name=meta["name"],
        state=state.get("state", ""),
        created_ms=time_ms(meta.get("creationTimestamp")),
        submitted_ms=time_ms(status.get("lastSubmissionAttemptTime")),
        ended_ms=time_ms(status.get("terminationTime")),
        message=state.get("errorMessage", ""),
        driver=status.get("driverInfo", {}).get("podName", ""),
        anew=Anew(failures=int(annotations.get(FAILURES, "0")), after=annotations.get(AFTER, "")),
    )


def schedule_of(scheduled: Manifest, applications: Iterable[Manifest]) -> Schedule:
    """What a ScheduledSparkApplication tells, with its own runs among all SparkApplications of its owner, the newest
    first.
    """
    status, meta = scheduled.get("status", {}), scheduled["metadata"]
    of_it = [
        run_of(one) for one in applications if one["metadata"].get("labels", {}).get(SCHEDULED_LABEL) == meta["name"]
    ]
    runs = sorted(of_it, key=lambda run: (run.created_ms, run.name), reverse=True)
    state, next_run = status.get("scheduleState", ""), status.get("nextRun") or ""
    return Schedule(
        name=meta["name"],
        state=state,
        reason=status.get("reason", ""),
        next_run=next_run,
        due_ms=_due_ms(state, time_ms(next_run), runs[0] if runs else None, changed_ms=written_ms(scheduled)),
        runs=runs,
    )


def _due_ms(state: str, next_run_ms: int, newest: Run | None, *, changed_ms: int) -> int:
    """A run that another one was in the way of begins when the schedule says so next, and of that nothing is told."""
    if newest is not None and newest.state not in ENDED:
        return 0
    if not state:
        return changed_ms
    in_the_way = newest is not None and newest.ended_ms > next_run_ms
    return 0 if not next_run_ms or in_the_way else max(next_run_ms, changed_ms)


def last_ended(schedule: Schedule) -> Run | None:
    """The newest run that has ended, well or not."""
    return next((run for run in schedule.runs if run.state in ENDED), None)


def is_run_of_schedule(application: Manifest) -> bool:
    """Whether a ScheduledSparkApplication made it, and looks after it."""
    return SCHEDULED_LABEL in application["metadata"].get("labels", {})


def time_ms(text: str | None) -> int:
    """RFC 3339 in milliseconds; 0 where there is none."""
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def said(run: Run, pod: Manifest | None) -> str:
    """Why a run failed: what the job itself said last, else what the Spark Operator says."""
    for container in (pod or {}).get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if ended.get("reason") == "OOMKilled":
            return "the driver is out of memory: raise resources.driver.memoryOverhead or memory"
        if words := last_words(ended.get("message", "")):
            return words
    # spark-submit's whole output is in the Spark Operator's message.
    return last_words(run.message) or run.message.strip() or "the Spark Operator gives no reason: see the driver's log"


def waiting(pod: Manifest | None) -> str:
    """What keeps the driver from starting; empty: nothing that is known."""
    found = trouble([pod]) if pod is not None and pod.get("status", {}).get("phase") == "Pending" else None
    return "" if found is None else found.message


def broken(run: Run, pod: Manifest | None) -> str:
    """Why a run that the Spark Operator takes for running does not, by its driver's pod; empty: nothing is wrong, or
    nobody looked (None).
    """
    if pod is None:
        return ""
    if not pod:
        return f"the driver's pod {run.driver} is gone"
    ended = [
        one for one in pod.get("status", {}).get("containerStatuses", ()) if one.get("state", {}).get("terminated")
    ]
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded") or ended:
        return f"the driver ended: {said(run, pod)}"
    if (found := trouble([pod])) is not None:
        return found.message
    lost = next(
        (
            one
            for one in pod.get("status", {}).get("conditions", ())
            if one["type"] == "Ready" and one["status"] != "True"
        ),
        None,
    )
    return (
        f"the driver's pod {run.driver} is not ready: "
        f"{lost.get('message') or lost.get('reason') or 'no reason is given'}"
        if lost
        else ""
    )


def written_ms(application: Manifest) -> int:
    """When the operator changed it last."""
    meta = application["metadata"]
    ours = [
        one
        for one in meta.get("managedFields", ())
        if one.get("manager") == FIELD_MANAGER and not one.get("subresource")
    ]
    return max((time_ms(one.get("time")) for one in ours), default=time_ms(meta.get("creationTimestamp")))


def submitted_as(application: Manifest, driver: Manifest) -> Manifest:
    """The status of an application as the Spark Operator writes it once it has submitted one whose driver is this."""
    meta, attempts = driver["metadata"], int(application.get("status", {}).get("executionAttempts", 0))
    return {
        "applicationState": {"state": "SUBMITTED", "errorMessage": ""},
        "submissionID": meta.get("labels", {}).get(SUBMISSION_LABEL, ""),
        "driverInfo": {"podName": meta["name"]},
        "lastSubmissionAttemptTime": meta["creationTimestamp"],
        "terminationTime": None,
        "executionAttempts": attempts + 1,
        "submissionAttempts": 1,
    }


def made_otherwise(pod: Manifest | None, wanted: Recipe, *, now_ms: int) -> bool:
    """Whether a driver was made from something else, and the Spark Operator had time enough to hear of the change.

    It misses changes that come while it submits, and goes on with what it has.
    """
    if not pod or now_ms - max(time_ms(pod["metadata"].get("creationTimestamp")), wanted.since_ms) < HEARD_AFTER_MS:
        return False
    if (digest := (pod["metadata"].get("annotations") or {}).get(MADE_FROM)) is not None:
        return bool(digest != wanted.digest)
    return any(
        one.get("name") == DRIVER_CONTAINER and one.get("image") != wanted.image
        for one in pod.get("spec", {}).get("containers", ())
    )


def last_words(log: str) -> str:
    """The line in which a job says why it ended, without Spark's own lines around it; empty: there is none."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(_ERROR):
            return line.removeprefix(_ERROR)
    return next((line.strip() for line in reversed(lines) if not _NOISE.match(line)), "")
