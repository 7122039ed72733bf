"""A resource's applications in Kubernetes: read, made, changed, deleted. Which there are to be is decided in
`desired`.
"""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

import structlog

from bmq_operator.answers import Allowance, TooMuch, part_of, without_fields
from bmq_operator.applied import as_wanted, write
from bmq_operator.context import Context
from bmq_operator.kube import KubeError, KubeProblem, Manifest, too_much
from bmq_operator.tables.desired import selector
from bmq_operator.tables.places import OWNER_LABEL
from bmq_operator.tables.runs import ENDED, is_run_of_schedule, run_of
from bmq_resources.base import ObjectMeta

KINDS: Final = ("SparkApplication", "ScheduledSparkApplication")
RESCHEDULED: Final = "bmq.io/rescheduled"
"""Annotation of a schedule that was changed, until what the Spark Operator noted of the old one is cleared."""
LOOK_S: Final = 4.0
"""How long all that have no table wait to hear so: less than the answer is used for."""

_log = structlog.get_logger()


class NoSparkOperator(Exception):
    """The API server does not know its kinds."""


class NameTaken(Exception):
    """An object of a name that a table needs is somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """All that belongs to one resource."""

    applications: Sequence[Manifest]
    schedules: Sequence[Manifest]
    schemas: Sequence[Manifest] = ()
    """Which ConfigMaps there are of schemas that are written in the resource itself."""

    def application(self, name: str) -> Manifest | None:
        return next((one for one in self.applications if one["metadata"]["name"] == name), None)

    def schedule(self, name: str) -> Manifest | None:
        return next((one for one in self.schedules if one["metadata"]["name"] == name), None)

    def get(self, kind: str, name: str) -> Manifest | None:
        return self.application(name) if kind == "SparkApplication" else self.schedule(name)


async def read_existing(context: Context, namespace: str, uid: str) -> Existing:
    """All of it takes no more memory than an Allowance. Raises NoSparkOperator, KubeError; KubeProblem, `too_large`,
    where it would.
    """
    allowance, labels = Allowance(), selector(uid)

    def application(one: Manifest) -> Manifest | None:
        own = one["metadata"]["labels"].get(OWNER_LABEL) == uid
        return allowance.keep(without_fields(one)) if own else None

    def schema(one: Manifest) -> Manifest | None:
        return allowance.keep({"kind": one["kind"], **part_of(one)}) if _owned(one, uid) else None

    try:
        applications, schedules = [
            await context.kube.each(kind, namespace, keep=application, labels=labels) for kind in KINDS
        ]
        schemas = await context.kube.each("ConfigMap", namespace, keep=schema, labels=labels)
    except TooMuch:
        raise too_much(f"objects in {namespace} with the label {OWNER_LABEL}={uid}") from None
    except KubeProblem as problem:
        if problem.status == 404:
            raise NoSparkOperator from None
        raise
    return Existing(applications=applications, schedules=schedules, schemas=schemas)


async def may_have_any(context: Context, meta: ObjectMeta) -> bool:
    """Whether anything is there of a resource that tells of nothing; read once within a few seconds for all of them. Of
    what cannot be listed nothing is known: the next look that can tells."""
    watched = context.settings.watched_namespaces
    where = "" if "" in watched else meta.namespace

    async def read() -> Set[str]:
        try:
            async with asyncio.timeout(LOOK_S):
                found = await asyncio.gather(
                    *(
                        context.kube.each(kind, where, keep=_owner, labels={OWNER_LABEL: ""})
                        for kind in (*KINDS, "ConfigMap")
                    )
                )
        except (KubeError, TimeoutError) as error:
            if not (isinstance(error, KubeProblem) and error.status == 404):  # there is no Spark Operator
                _log.warning(
                    "what is left of tables could not be looked for",
                    namespace=where,
                    why=str(error) or "it took too long",
                )
            return frozenset()
        return frozenset().union(*found)

    return meta.uid in await context.known.with_tables.get(where, read)


async def bring_about(context: Context, existing: Existing, wanted: Sequence[Manifest], *, uid: str) -> list[str]:
    """Makes what is missing and changes what differs; what was done, in words. Raises KubeError, NameTaken."""
    done = []
    for manifest in wanted:
        kind, meta = manifest["kind"], manifest["metadata"]
        there = (
            existing.get(kind, meta["name"])
            if kind in KINDS
            else await context.kube.get(kind, meta["namespace"], meta["name"])
        )
        if there is None and kind in KINDS:
            there = await context.kube.get(kind, meta["namespace"], meta["name"])
        if there is not None and not _owned(there, uid):
            raise NameTaken(
                f"{kind} {meta['name']} belongs to somebody else: delete it, or give this resource another name"
            )
        if there is not None and as_wanted(there, manifest):
            continue
        done.append(f"{'made' if there is None else 'changed'} {kind} {meta['name']}")
        if there is not None and _scheduled_otherwise(there, manifest):
            there = await _reschedule(context, manifest, there)
        await write(context.kube, manifest, there)
    return done


async def delete_others(
    context: Context, existing: Existing, wanted: Sequence[Manifest], *, suspended: bool, schemas: bool = True
) -> list[str]:
    """Deletes what is no longer wanted, and of what is suspended the runs that go on; what was done, in words.
    `schemas`: those, too, as no application is as it was before. Raises KubeError."""
    names = {(one["kind"], one["metadata"]["name"]) for one in wanted}
    done = []
    for one in (*existing.applications, *existing.schedules, *(existing.schemas if schemas else ())):
        kind, meta = one["kind"], one["metadata"]
        ongoing = (
            suspended and run_of(one).state not in ENDED
            if kind == "SparkApplication" and is_run_of_schedule(one)
            else (kind, meta["name"]) not in names
        )
        if ongoing:
            await context.kube.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
            done.append(f"deleted {kind} {meta['name']}")
    return done


async def _reschedule(context: Context, wanted: Manifest, there: Manifest) -> Manifest:
    """What the Spark Operator noted of the old schedule would hold until its next run, and what it refused for ever. It
    is cleared once the new one is there, and an annotation says until then that it is yet to be. Raises KubeError."""
    kind, meta = wanted["kind"], wanted["metadata"]
    marked = {**wanted, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), RESCHEDULED: "true"}}}
    written = await write(context.kube, marked, there)
    note = {"status": {"scheduleState": "", "nextRun": None, "reason": ""}}
    await context.kube.merge(kind, meta["namespace"], meta["name"], note, part="status", uid=there["metadata"]["uid"])
    return written


def _owner(manifest: Manifest) -> str:
    """The uid that it says that it is of."""
    return str(manifest["metadata"]["labels"][OWNER_LABEL])


def _owned(there: Manifest, uid: str) -> bool:
    return any(one.get("uid") == uid for one in there["metadata"].get("ownerReferences", ()))


def _scheduled_otherwise(there: Manifest, wanted: Manifest) -> bool:
    if wanted["kind"] != "ScheduledSparkApplication":
        return False
    refused = there.get("status", {}).get("scheduleState") == "FailedValidation"
    begun = RESCHEDULED in (there["metadata"].get("annotations") or {})
    return refused or begun or any(there["spec"].get(name) != wanted["spec"][name] for name in ("schedule", "timeZone"))
