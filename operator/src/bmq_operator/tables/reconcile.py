"""Brings what is there to what a Topic's `parquet` or a ParquetSink says, and mirrors what the Spark Operator tells of
it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from bmq_admin.errors import AdminError
from bmq_operator.applied import was_applied, write
from bmq_operator.borrowed import Own, why_not_allowed
from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.names import Names
from bmq_operator.conditions import Finding, next_conditions, timestamp
from bmq_operator.context import Context
from bmq_operator.kube import KubeError, KubeProblem, Manifest
from bmq_operator.metrics import STREAMS_BEGUN_ANEW
from bmq_operator.outcome import Outcome
from bmq_operator.references import ClusterState, Referred, refer
from bmq_operator.rivals import Rival
from bmq_operator.tables.claims import let_go, taken_by
from bmq_operator.tables.desired import NUDGED, desired, made_from
from bmq_operator.tables.existing import (
    KINDS,
    Existing,
    NameTaken,
    NoSparkOperator,
    bring_about,
    delete_others,
    may_have_any,
    read_existing,
)
from bmq_operator.tables.jobs import Anew, TableJob, jobs_of_sink, jobs_of_topic
from bmq_operator.tables.lag import lag_of
from bmq_operator.tables.places import REFUSED
from bmq_operator.tables.report import SOON_S, Report, is_waiting, of_compaction, of_schedule, of_stream, summed_up
from bmq_operator.tables.runs import (
    Recipe,
    Run,
    Schedule,
    last_ended,
    made_otherwise,
    run_of,
    schedule_of,
    submitted_as,
    waiting,
    written_ms,
)
from bmq_operator.topics import reconcile as topics
from bmq_resources.parquet_sink import ParquetSink, ParquetSinkStatus
from bmq_resources.tables import TableStatus
from bmq_resources.topic import Topic, TopicStatus

LATER_S: Final = 30.0
"""How soon it is looked again whether a Spark Operator was installed, or how far a table lags."""
FORGOTTEN_AFTER_MS: Final = 3_600_000
_RAN: Final = frozenset(("Running", "Succeeded", "Suspended"))

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What all tables of a resource came to."""

    findings: list[Finding]
    statuses: list[TableStatus]
    ready: int = 0
    again_after_s: float | None = None


def holds(sink: ParquetSink) -> bool:
    """Nothing waits for a ParquetSink that is deleted: its applications go with it by their owner."""
    return False


async def reconcile(context: Context, sink: ParquetSink) -> Outcome:
    """Looks at a ParquetSink once, takes the next step, and says what is the case. Raises KubeError."""
    referred = await refer(context, sink.metadata, sink.spec.cluster_ref)
    old = sink.status
    if (obstacle := _obstacle(referred, sink)) is not None:
        again_s = referred.state.again_s(old.conditions, now_ms=context.clock.now_ms())
        tables = Tables(findings=[obstacle], statuses=list(old.tables), ready=old.ready, again_after_s=again_s)
    else:
        assert referred.cluster is not None, "there is one where nothing is in the way"
        tables = await _tables(context, jobs_of_sink(sink, referred.cluster), referred, old.tables)
    generation = sink.metadata.generation
    status = ParquetSinkStatus(
        desired=1 if sink.spec.one_table or sink.spec.iceberg is not None else len(sink.spec.topics),
        ready=tables.ready,
        tables=tables.statuses,
        conditions=next_conditions(
            old.conditions, tables.findings, generation=generation, now_ms=context.clock.now_ms()
        ),
        observed_generation=generation,
    )
    return Outcome(status=status, again_after_s=tables.again_after_s)


async def reconcile_topic(context: Context, topic: Topic) -> Outcome:
    """Looks at a Topic and then at its table. Whatever is the matter with the table, the topic is looked after. Raises
    KubeError.
    """
    outcome = await topics.reconcile(context, topic)
    if outcome.status is None or outcome.finished:
        return outcome
    assert isinstance(outcome.status, TopicStatus)
    try:
        ending = topic.metadata.deletion_timestamp is not None
        tables = _while_it_ends(topic) if ending else await _tables_of_topic(context, topic, outcome.status)
    except (KubeError, AdminError) as error:
        _log.warning(
            "a topic's table could not be looked after",
            topic=f"{topic.metadata.namespace}/{topic.metadata.name}",
            why=str(error),
        )
        found = Finding(
            type="ParquetReady", status="Unknown", reason="NotLookedAt", message=f"it is tried again: {error}"
        )
        tables = Tables(findings=[found], statuses=[topic.status.table], again_after_s=SOON_S)
    if tables is None:
        return outcome
    meta, now_ms = topic.metadata, context.clock.now_ms()
    conditions = next_conditions(topic.status.conditions, tables.findings, generation=meta.generation, now_ms=now_ms)
    table = tables.statuses[0] if tables.statuses else TableStatus()
    status = outcome.status.model_copy(update={"conditions": [*outcome.status.conditions, *conditions], "table": table})
    waits = [one for one in (outcome.again_after_s, tables.again_after_s) if one is not None]
    return replace(outcome, status=status, again_after_s=min(waits, default=None))


async def _tables_of_topic(context: Context, topic: Topic, status: TopicStatus) -> Tables | None:
    """None: it has no table, and had none."""
    if topic.spec.parquet is None:
        return await _taken_out(context, topic)
    referred = await refer(context, topic.metadata, topic.spec.cluster_ref)
    if referred.cluster is None or referred.state is ClusterState.NOT_ALLOWED:
        return _not_looked_after(
            topic, "TopicNotReady", "the table is not looked after while its Cluster is out of sight: see Ready"
        )
    if not (status.topic_id and (status.owned or not topic.spec.managed)):
        begun = await _has_begun(context, topic)
        if not begun:
            text = "the table is begun once the topic is there and this resource's own, or managed is false: see Ready"
            waits = _not_looked_after(topic, "TopicNotReady", text)
            return waits if begun is None else replace(waits, statuses=[])
    return await _tables(
        context, jobs_of_topic(topic, referred.cluster), referred, [topic.status.table], prefix="Parquet"
    )


async def _has_begun(context: Context, topic: Topic) -> bool | None:
    """Whether its table is written already, and so is looked after, whosever the topic is by now: `suspend` and a
    stream that ended are matters of the table alone, and with managed: false anybody may have one. None: nobody can
    tell. Raises KubeError."""
    if not context.settings.spark.enabled:
        return None
    try:
        existing = await read_existing(context, topic.metadata.namespace, topic.metadata.uid)
    except NoSparkOperator:
        return None
    return bool(existing.applications or existing.schedules)


async def _taken_out(context: Context, topic: Topic) -> Tables | None:
    """What there is of a table that is asked for no more goes, whatever the status tells of it: that may never have
    been written.
    """
    told = topic.status.table.application
    if not told and not context.settings.spark.enabled:
        return None
    if not told and not _tells_of_a_table(topic) and not await may_have_any(context, topic.metadata):
        return None
    try:
        existing = await read_existing(context, topic.metadata.namespace, topic.metadata.uid)
    except NoSparkOperator:
        return None
    await delete_others(context, existing, [], suspended=False)
    return None


def _tells_of_a_table(topic: Topic) -> bool:
    return topic.status.table != TableStatus() or any(one.type.startswith("Parquet") for one in topic.status.conditions)


def _while_it_ends(topic: Topic) -> Tables | None:
    if not topic.status.table.application:
        return None
    return _not_looked_after(
        topic,
        "Deleting",
        "nothing of its table is changed any more: what runs goes on until this resource is gone, and goes with it",
    )


def _not_looked_after(topic: Topic, reason: str, message: str) -> Tables:
    """What was told of what is there stays."""
    return Tables(
        findings=[Finding(type="ParquetReady", status="Unknown", reason=reason, message=message)],
        statuses=[topic.status.table],
    )


def _obstacle(referred: Referred, sink: ParquetSink) -> Finding | None:
    """A Cluster that does not answer is none: what writes the tables goes on by itself."""
    reference = f"Cluster {referred.title}"
    match referred.state:
        case ClusterState.MISSING:
            text = f"{reference} does not exist: create it, or delete this and write another clusterRef"
            return Finding(status="False", reason="ClusterMissing", message=text)
        case ClusterState.NOT_ALLOWED:
            remedy = f"add it to spec.topicsFrom.namespaces of the Cluster: {sink.metadata.namespace}"
            text = f"{reference} takes no resources of the namespace {sink.metadata.namespace}: {remedy}"
            return Finding(status="False", reason="NamespaceNotAllowed", message=text)
        case ClusterState.ENDING:
            return Finding(
                status="False",
                reason="ClusterEnding",
                message=f"{reference} is being deleted: nothing is changed any more",
            )
        case _:
            pass
    if referred.cluster is None:
        return Finding(status="Unknown", reason="ClusterNotReady", message=f"{reference}: {referred.why}")
    return None


async def _tables(
    context: Context, jobs: Sequence[TableJob], referred: Referred, old: Sequence[TableStatus], *, prefix: str = ""
) -> Tables:
    """All tables of a resource. What is refused of one does not keep the others from being written."""
    ready, settings = f"{prefix}Ready", context.settings.spark
    if not jobs:
        found = Finding(type=ready, status="False", reason="NoTopics", message="no topics are named: name one or more")
        return Tables(findings=[found], statuses=[])
    if not settings.enabled:
        found = Finding(
            type=ready,
            status="False",
            reason="SparkDisabled",
            message="the operator writes no tables: set spark.enabled in bmq's chart",
        )
        return Tables(findings=[found], statuses=list(old))
    meta = jobs[0].owner.meta
    try:
        existing = await read_existing(context, meta.namespace, meta.uid)
    except NoSparkOperator:
        text = (
            "the Spark Operator is not installed: install kubeflow's (docs/kubernetes.md, Tables from topics); "
            "it is noticed by itself"
        )
        found = Finding(type=ready, status="False", reason="SparkOperatorMissing", message=text)
        return Tables(findings=[found], statuses=list(old), again_after_s=LATER_S)
    own = Own(images=(settings.image,), account=settings.service_account)
    # Of several tables all have the same settings.
    path = "parquet" if jobs[0].owner.kind == "Topic" else ""
    beyond = await why_not_allowed(
        context.kube, jobs[0].table, namespace=meta.namespace, allow=context.settings.allow, own=own, path=path
    )
    if beyond is None:
        beyond = await _keys_refused(context, jobs[0], referred)
    wanted: list[Manifest] = []
    reports = []
    before = {one.output: one for one in old}
    since_s = asyncio.get_running_loop().time()
    for job in jobs:
        status = before.get(job.output, TableStatus())
        if (rival := await taken_by(context, job, takes=beyond is None, since_s=since_s)) is not None:
            reports.append(_refused(job, "OutputTaken", _taken(job, rival), TableStatus()))
            continue
        # There may be sixty-four of them, each with a long schema: others' work has its turn between them.
        await asyncio.sleep(0)
        objects = _desired(context, job, existing)
        await asyncio.sleep(0)
        wanted += objects
        if beyond is not None:
            reports.append(_refused(job, beyond.reason, beyond.message, _with_what_is_there(status, job, existing)))
            continue
        reports.append(await _table(context, job, referred, existing=existing, wanted=objects, old=status))
    # What was refused is as it was, and may still read a schema that is written no more.
    changed = all(one.finding.reason not in REFUSED for one in reports)
    await delete_others(context, existing, wanted, suspended=jobs[0].table.suspend, schemas=changed)
    waits = [one.again_after_s for one in reports if one.again_after_s is not None]
    return Tables(
        findings=summed_up(reports, prefix=prefix),
        statuses=[one.status for one in reports],
        ready=sum(one.finding.status == "True" for one in reports),
        again_after_s=min(waits, default=None),
    )


async def _keys_refused(context: Context, job: TableJob, referred: Referred) -> Finding | None:
    """Why the Cluster's keys to the store are not for this table; None: they are, or it has none of them. A Cluster
    borrows a Secret by the same rule as a table does, and what that refuses of the Cluster is not to be had by way of
    it. Raises KubeError."""
    cluster = referred.cluster
    if cluster is None or not job.store.of_cluster:
        return None
    names, own_keys = Names.of(cluster), "name a Secret of your own by store.secretName"
    if job.store.elsewhere:
        text = (
            f"store.endpoint is not that of Cluster {referred.title}, whose keys are for its own server alone: "
            f"leave it out, or {own_keys}"
        )
        return Finding(status="False", reason="NotAllowed", message=text)
    if not cluster.spec.store.minio.embedded:
        credentials, allow = cluster.spec.store.credentials, context.settings.allow
        path = f"store.credentials of Cluster {referred.title}"
        return await why_not_allowed(
            context.kube, credentials, namespace=names.namespace, allow=allow, own=Own(images=()), path=path
        )
    there = await context.kube.get("Secret", names.namespace, names.minio)
    if there is None:
        return Finding(
            status="False",
            reason="SecretMissing",
            message=f"Cluster {referred.title} has made no Secret {names.minio} yet: {own_keys}, or wait",
        )
    if owner_of(there) != cluster.metadata.uid:
        text = f"the Secret {names.minio} is not that of Cluster {referred.title}: delete it, or {own_keys}"
        return Finding(status="False", reason="NotAllowed", message=text)
    return None


def _desired(context: Context, job: TableJob, existing: Existing) -> list[Manifest]:
    """With how often it was begun anew, as long as nothing else of it changes: what was changed begins with a clean
    record.
    """
    there = existing.application(job.name)
    if there is None or job.table.continuous is None:
        return desired(job, context.settings.spark)
    anew = run_of(there).anew
    kept = desired(job, context.settings.spark, anew=anew)
    if not anew.failures:
        return kept
    same = all(was_applied(there, one) for one in kept if one["kind"] == "SparkApplication")
    return kept if same else desired(job, context.settings.spark)


async def _table(
    context: Context,
    job: TableJob,
    referred: Referred,
    *,
    existing: Existing,
    wanted: Sequence[Manifest],
    old: TableStatus,
) -> Report:
    """One table. Raises KubeError where the API server does not answer, or refuses what has nothing to do with this
    one.
    """
    try:
        return await _written(context, job, referred, existing=existing, wanted=wanted, old=old)
    except NameTaken as taken:
        let_go(context, job)
        return _refused(job, "NameTaken", str(taken), _with_what_is_there(old, job, existing))
    except KubeProblem as problem:
        let_go(context, job)
        if problem.status == 409 or problem.lacks_right:
            raise
        return _refused(
            job,
            "Refused",
            f"the API server refuses an object of the table: {problem.message}",
            _with_what_is_there(old, job, existing),
        )


async def _written(
    context: Context,
    job: TableJob,
    referred: Referred,
    *,
    existing: Existing,
    wanted: Sequence[Manifest],
    old: TableStatus,
) -> Report:
    """Brings it about, and has it begun anew where it ended. Raises KubeError, NameTaken."""
    uid, now_ms = job.owner.meta.uid, context.clock.now_ms()
    done = await bring_about(context, existing, wanted, uid=uid)
    recipe = Recipe(
        digest=made_from(next(one for one in wanted if one["metadata"]["name"] == job.name)),
        image=job.table.image or context.settings.spark.image,
    )
    if job.table.continuous is not None:
        application = existing.application(job.name)
        run = None if application is None else run_of(application)
        if application is not None:
            recipe = replace(recipe, since_ms=now_ms if done else written_ms(application))
        pod = await _driver(context, job, run)
        driverless_ms = _driverless(context, application, run, pod, now_ms=now_ms)
        report = of_stream(job, run, pod, old, now_ms=now_ms, wanted=recipe, driverless_ms=driverless_ms)
        if report.begin_anew is not None:
            await _begin_anew(context, job, application, report.begin_anew)
        if report.adopt:
            assert application is not None and pod
            note = {"status": submitted_as(application, pod)}
            await context.kube.merge(
                "SparkApplication",
                job.owner.meta.namespace,
                job.name,
                note,
                part="status",
                uid=application["metadata"]["uid"],
            )
        if report.nudge:
            note = {"metadata": {"annotations": {NUDGED: timestamp(now_ms)}}}
            assert application is not None, "nobody is nudged who is not there"
            await context.kube.merge(
                "SparkApplication", job.owner.meta.namespace, job.name, note, uid=application["metadata"]["uid"]
            )
    else:
        schedule = _schedule(existing, job.name)
        newest = schedule.runs[0] if schedule is not None and schedule.runs else None
        pod = await _driver(context, job, newest)
        report = of_schedule(job, schedule, pod, old, now_ms=now_ms)
        await _give_up(context, existing, newest, pod, recipe, now_ms=now_ms)
    if report.finding.reason not in _RAN and (missing := await _account_missing(context, job)) is not None:
        report = replace(report, finding=missing, again_after_s=SOON_S)
    status = report.status.model_copy(update={"lag": await lag_of(context, job, referred.client)})
    return replace(report, status=status, compaction=await _compaction(context, job, existing))


async def _compaction(context: Context, job: TableJob, existing: Existing) -> Finding | None:
    """How the runs that merge its small files do; None: there are none."""
    if not job.compacted:
        return None
    schedule = _schedule(existing, job.compact_name)
    ended = None if schedule is None else last_ended(schedule)
    return of_compaction(job, schedule, ended, await _driver(context, job, ended), now_ms=context.clock.now_ms())


def _schedule(existing: Existing, name: str) -> Schedule | None:
    scheduled = existing.schedule(name)
    return None if scheduled is None else schedule_of(scheduled, existing.applications)


def _taken(job: TableJob, rival: Rival) -> str:
    field = "output" if job.table.iceberg is None else "iceberg.table"
    why = "which writes it" if rival.owned else "which is older"
    return (
        f"{job.output} is the table of {rival.title}, {why}: write another {field} here, or delete the table "
        "there; then this one is written"
    )


async def _account_missing(context: Context, job: TableJob) -> Finding | None:
    """Without its account a driver's pod is refused, which the Spark Operator tells in many words."""
    name, namespace = job.table.service_account or context.settings.spark.service_account, job.owner.meta.namespace
    if await context.kube.get("ServiceAccount", namespace, name) is not None:
        return None
    text = (
        f"{namespace} has no ServiceAccount {name} for drivers: add the namespace to spark.namespaces of bmq's "
        "chart, or write serviceAccount"
    )
    return Finding(status="False", reason="ServiceAccountMissing", message=text)


def _refused(job: TableJob, reason: str, message: str, old: TableStatus) -> Report:
    finding = Finding(status="False", reason=reason, message=message)
    return Report(
        finding=finding, running=False, status=old.model_copy(update={"output": job.output}), again_after_s=SOON_S
    )


def _with_what_is_there(status: TableStatus, job: TableJob, existing: Existing) -> TableStatus:
    """A refusal of the whole, or of a part, may leave an application as it is."""
    kind = next((one for one in KINDS if existing.get(one, job.name) is not None), "")
    return status.model_copy(update={"kind": kind, "application": job.name if kind else ""})


async def _driver(context: Context, job: TableJob, run: Run | None) -> Manifest | None:
    """The driver's pod of a run of which something has to be found out. Of one that is said to run: empty where it is
    gone.
    """
    if (
        run is None
        or run.state in ("COMPLETED", "SUSPENDED")
        or not (driver := run.driver or (f"{run.name}-driver" if is_waiting(run) else ""))
    ):
        return None
    found = await context.kube.get("Pod", job.owner.meta.namespace, driver)
    return {} if found is None and run.state == "RUNNING" else found


def _driverless(
    context: Context, application: Manifest | None, run: Run | None, pod: Manifest | None, *, now_ms: int
) -> int:
    """Since when a run that the Spark Operator is about to submit was without a driver at each look; an operator that
    just began knows of now.
    """
    known = context.known.driverless
    if application is None or pod or not is_waiting(run):
        known.pop("" if application is None else application["metadata"]["uid"], None)
        return now_ms
    for gone in [uid for uid, since_ms in known.items() if now_ms - since_ms > FORGOTTEN_AFTER_MS]:
        del known[gone]
    return known.setdefault(application["metadata"]["uid"], now_ms)


async def _give_up(
    context: Context, existing: Existing, run: Run | None, pod: Manifest | None, wanted: Recipe, *, now_ms: int
) -> None:
    """A run that cannot start as it was made would keep all later ones, which are made otherwise by now, waiting for
    ever.
    """
    there = None if run is None else existing.application(run.name)
    if there is not None and waiting(pod) and made_otherwise(pod, wanted, now_ms=now_ms):
        meta = there["metadata"]
        await context.kube.delete("SparkApplication", meta["namespace"], meta["name"], uid=meta["uid"])


async def _begin_anew(context: Context, job: TableJob, there: Manifest | None, anew: Anew) -> None:
    """A changed annotation of the driver: the Spark Operator clears the old run away and submits another."""
    for one in desired(job, context.settings.spark, anew=anew):
        if one["kind"] == "SparkApplication":
            await write(context.kube, one, there)
    STREAMS_BEGUN_ANEW.labels(job.owner.kind).inc()
