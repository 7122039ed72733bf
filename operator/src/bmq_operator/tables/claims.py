"""Whose a table is, where several resources name one place: whoever writes it already, else the older resource's.

Read from the API server once for all that ask within seconds. Who takes a place between two reads is remembered: there
is one operator that leads.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, Manifest
from bmq_operator.rivals import Rival, winner
from bmq_operator.tables.existing import KINDS
from bmq_operator.tables.jobs import TableJob
from bmq_operator.tables.places import (
    OWNER_LABEL,
    claimant,
    claimed_by,
    claims,
    cluster_of_tables,
    digest_of,
    place_of,
    writer,
)

T = TypeVar("T")
_KEY: Final = "claims"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableClaims:
    """What all resources claim, as it was read at `read_s` by the loop's clock."""

    read_s: float
    places: dict[str, list[Rival]]
    """By the digest of a place."""
    seen: dict[str, int]
    """The generation in which each resource was there, by its uid, whatever it claims."""


async def taken_by(context: Context, job: TableJob, *, takes: bool, since_s: float) -> Rival | None:
    """The resource that the table's place is of; None: it is the job's own, or may be. `takes`: the job is about to
    write it. `since_s`: when the look at its resource began, by the loop's clock: what was read since is new enough.
    Raises KubeError.
    """

    async def read() -> TableClaims:
        begun_s = asyncio.get_running_loop().time()
        unseen: set[str] = set()
        found = await _each(context, "Cluster", cluster_of_tables, unseen)
        clusters = {(one.metadata.namespace, one.metadata.name): one for one in found}
        keep = functools.partial(claimed_by, clusters=clusters)
        claimed = [one for kind in ("Topic", "ParquetSink") for one in await _each(context, kind, keep, unseen)]
        written = [one for kind in KINDS for one in await _each(context, kind, writer, unseen)]
        return TableClaims(
            read_s=begun_s,
            places=claims(claimed, written, unseen=unseen),
            seen={one.meta.uid: one.generation for one in claimed},
        )

    known, place, meta = context.known.table_claims, digest_of(place_of(job)), job.owner.meta
    uid = meta.uid
    found: TableClaims = await known.get(_KEY, read)
    # Read before this resource said so, and so perhaps before an older one did. One that is refused claims nothing
    # however often all is read: that it was seen as it is now is enough.
    unsaid = all(one.uid != uid for one in found.places.get(place, ()))
    if unsaid and found.read_s < since_s and (takes or found.seen.get(uid) != meta.generation):
        found = await known.get(_KEY, read, since_s=since_s)
    # From here on nothing is awaited.
    rivals = {one.uid: one for one in found.places.get(place, ())}
    context.known.places_taken.add_to(rivals, place, read_s=found.read_s)
    own = rivals.pop(uid, None)
    best = winner(job.owner.meta, owned=own is not None and own.owned, rivals=rivals.values())
    if best is None and takes:
        context.known.places_taken.take(place, claimant(job, owned=True), now_s=asyncio.get_running_loop().time())
    return best


def let_go(context: Context, job: TableJob) -> None:
    """Nothing could be made of it: the place is not taken."""
    context.known.places_taken.let_go(digest_of(place_of(job)), job.owner.meta.uid)


async def _each(context: Context, kind: str, keep: Callable[[Manifest], T | None], unseen: set[str]) -> list[T]:
    return [
        one
        for namespace in context.settings.watched_namespaces
        for one in await _each_in(context, kind, namespace, keep, unseen)
    ]


async def _each_in(
    context: Context, kind: str, namespace: str, keep: Callable[[Manifest], T | None], unseen: set[str]
) -> list[T]:
    """`unseen`: gets the namespaces whose applications the operator may not look at. With a namespace that is being
    deleted, or that was made anew, the chart's roles there are gone: its own resources tell so, and no others."""
    labels = {OWNER_LABEL: ""} if kind in KINDS else None
    try:
        return await context.kube.each(kind, namespace, keep=keep, labels=labels)
    except KubeProblem as problem:
        if problem.status == 404 and kind in KINDS:
            return []  # the Spark Operator is gone, and all that it ran with it
        if problem.status == 403 and namespace and kind in KINDS:
            unseen.add(namespace)
            return []
        if problem.status == 403 and namespace and await context.kube.get("Namespace", "", namespace) is None:
            return []  # the namespace is gone, and with it what gave the right to look
        raise
