"""Whose a table is, where several resources name one place: whoever writes it already, else the older resource's.

Read from the API server once for all that ask within seconds. Who takes a place between two reads is remembered: there
is one operator that leads.
"""

import asyncio
from typing import Final

from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, Manifest
from bmq_operator.rivals import Rival, winner
from bmq_operator.tables.existing import KINDS
from bmq_operator.tables.jobs import TableJob
from bmq_operator.tables.places import OWNER_LABEL, claimant, claims, digest_of, place_of

_KEY: Final = "claims"


async def taken_by(context: Context, job: TableJob, *, takes: bool) -> Rival | None:
    """The resource that the table's place is of; None: it is the job's own, or may be. `takes`: the job is about to
    write it. Raises KubeError.
    """

    async def read() -> tuple[float, dict[str, list[Rival]]]:
        begun_s = asyncio.get_running_loop().time()
        unseen: set[str] = set()
        listed = {kind: await _list(context, kind, unseen) for kind in ("Topic", "ParquetSink", "Cluster", *KINDS)}
        written = [one for kind in KINDS for one in listed[kind]]
        return begun_s, claims(
            topics=listed["Topic"],
            sinks=listed["ParquetSink"],
            clusters=listed["Cluster"],
            applications=written,
            unseen=unseen,
        )

    known, place, uid = context.known.table_claims, digest_of(place_of(job)), job.owner.meta.uid
    read_s, found = await known.get(_KEY, read)
    # read before this resource said so, and so perhaps before an older one did
    if all(one.uid != uid for one in found.get(place, ())):
        known.forget(_KEY)
        read_s, found = await known.get(_KEY, read)
    # From here on nothing is awaited.
    rivals = {one.uid: one for one in found.get(place, ())}
    context.known.places_taken.add_to(rivals, place, read_s=read_s)
    own = rivals.pop(uid, None)
    best = winner(job.owner.meta, owned=own is not None and own.owned, rivals=rivals.values())
    if best is None and takes:
        context.known.places_taken.take(place, claimant(job, owned=True), now_s=asyncio.get_running_loop().time())
    return best


def let_go(context: Context, job: TableJob) -> None:
    """Nothing could be made of it: the place is not taken."""
    context.known.places_taken.let_go(digest_of(place_of(job)), job.owner.meta.uid)


async def _list(context: Context, kind: str, unseen: set[str]) -> list[Manifest]:
    return [
        one
        for namespace in context.settings.watched_namespaces
        for one in await _list_in(context, kind, namespace, unseen)
    ]


async def _list_in(context: Context, kind: str, namespace: str, unseen: set[str]) -> list[Manifest]:
    """`unseen`: gets the namespaces whose applications the operator may not look at. With a namespace that is being
    deleted, or that was made anew, the chart's roles there are gone: its own resources tell so, and no others."""
    try:
        return await context.kube.list(kind, namespace, labels={OWNER_LABEL: ""} if kind in KINDS else None)
    except KubeProblem as problem:
        if problem.status == 404 and kind in KINDS:
            return []  # the Spark Operator is gone, and all that it ran with it
        if problem.status == 403 and namespace and kind in KINDS:
            unseen.add(namespace)
            return []
        if problem.status == 403 and namespace and await context.kube.get("Namespace", "", namespace) is None:
            return []  # the namespace is gone, and with it what gave the right to look
        raise
