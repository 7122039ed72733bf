"""Which of several Clusters that name one store has it.

Whose nodes read from a store has it: a controller of its own was ready, which takes that it has proved itself there. To
name a store, or to have nodes that wait for keys, is no more than a beginning: it keeps others out for `CLAIM_S`, so
that of two that begin at once one does, and an owner is kept out no longer by who never gets there. What a Cluster's
own MinIO keeps is that Cluster's, whoever named it before.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from bmq_operator.clusters.configuration import store_place, store_url
from bmq_operator.clusters.existing import Existing, owner_of
from bmq_operator.clusters.names import COMPONENT_LABEL, LANE_LABEL, Names
from bmq_operator.clusters.nodes import is_ready
from bmq_operator.clusters.refused import not_to_be
from bmq_operator.context import Context
from bmq_operator.known import CLUSTERS_MAX
from bmq_operator.kube import KubeProblem, Manifest
from bmq_operator.understood import understood, which
from bmq_resources.base import ObjectMeta
from bmq_resources.cluster import Cluster, StoreUse

CLAIM_S: Final = 600
"""How long a Cluster that has begun keeps others from a store that it has yet to reach: images are pulled and machines
come within minutes."""
BEGUN: Final = "Begun"
REACHED: Final = "Reached"
SHARED: Final = "StoreShared"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """Another Cluster that names the same store. `begun_s`: how long ago it began to have the nodes that it has; None:
    it has none.
    """

    meta: ObjectMeta
    embedded: bool
    reached: bool
    noted: bool
    """It has, or had, nodes."""
    begun_s: float | None
    waits: bool
    """It would begin, were the store not another one's."""
    unseen: bool = False
    """The operator may not look which nodes it has, and so makes it none."""

    @property
    def title(self) -> str:
        return f"Cluster {self.meta.namespace}/{self.meta.name}"


async def nobody_shares_the_store(context: Context, cluster: Cluster) -> None:
    """What is to be erased nobody else may have reached, nor, unless this one has, begun with. Raises KubeError;
    NotToBe.
    """
    own, ending = cluster.metadata, cluster.metadata.deletion_timestamp is not None
    if not ending and (cluster.spec.store.minio.embedded or has_reached(cluster)):
        return  # whoever comes later is refused
    place = store_place(cluster)
    others = await _others(context, cluster, place)
    has_nodes = await _nodes(context, own) is not None
    # There may be hundreds that wait for one store, and nodes are asked for one by one: what statuses tell is enough
    # for most.
    for other in sorted(others, key=lambda one: not one.reached):
        _let_in(cluster, other, has_nodes=has_nodes)
    others = [await _with_nodes(context, other) for other in others]
    # From here on nothing is awaited: of two Clusters that have yet to begin one begins, as there is one operator that
    # leads.
    begins = context.known.stores_taken
    taker = begins.get(place)
    for other in others:
        takes = taker is not None and taker.uid == other.meta.uid and not other.unseen
        _let_in(cluster, other, has_nodes=has_nodes, takes=takes)
    if not ending:
        if place not in begins and len(begins) >= CLUSTERS_MAX:
            del begins[next(iter(begins))]
        begins[place] = which(own)


def has_not_begun(context: Context, cluster: Cluster) -> None:
    """Nothing could be made of it: its store is not taken."""
    place = store_place(cluster)
    taker = context.known.stores_taken.get(place)
    if taker is not None and taker.uid == cluster.metadata.uid:
        del context.known.stores_taken[place]


def has_reached(cluster: Cluster) -> bool:
    """Whether its nodes are known to have read from its store. An older operator noted only that there were some: that
    counts as much.
    """
    return cluster.status.store_use == REACHED or (not cluster.status.store_use and bool(cluster.status.store))


def use_of_store(cluster: Cluster, existing: Existing) -> StoreUse:
    """What the status is to say of it."""
    if cluster.status.store_use == REACHED or any(_is_controller(pod) and is_ready(pod) for pod in existing.pods):
        return REACHED
    if not cluster.status.store and "controller" in existing.stateful_sets():
        return BEGUN
    return cluster.status.store_use


def gives_way(cluster: Cluster) -> bool:
    """Whether its nodes, if it has any, are to end where another one has the store: they never read from it, so nobody
    is served by them, and once they could there would be two that write."""
    return cluster.status.store_use == BEGUN and not cluster.spec.paused


def _let_in(cluster: Cluster, other: _Other, *, has_nodes: bool, takes: bool = False) -> None:
    """Raises NotToBe."""
    if why := _why_kept_out(cluster, other, has_nodes=has_nodes, takes=takes):
        remedy = "give each a bucket or a prefix of its own"
        raise not_to_be(SHARED, f"store.url {store_url(cluster)!r} {why}: {remedy}")


def _why_kept_out(cluster: Cluster, other: _Other, *, has_nodes: bool, takes: bool) -> str:
    """Why this other one keeps the Cluster from the store; empty: it does not."""
    ending = cluster.metadata.deletion_timestamp is not None
    if other.embedded:
        return f"is the MinIO of {other.title}"
    # Of nodes that nobody may look at nobody knows whether they serve from it.
    if other.reached or (ending and other.noted and (other.unseen or not has_reached(cluster))):
        return f"is the store of {other.title}"
    if ending or has_nodes:
        return ""
    if (takes and other.begun_s is None) or (other.begun_s is not None and other.begun_s < CLAIM_S):
        return f"is that of {other.title}, which has begun with it, and keeps it if it reaches it within {CLAIM_S} s"
    older = (other.meta.creation_timestamp, other.meta.uid) < (
        cluster.metadata.creation_timestamp,
        cluster.metadata.uid,
    )
    return f"is waited for by {other.title}, which is older" if other.waits and older else ""


async def _others(context: Context, cluster: Cluster, place: tuple[str, ...]) -> list[_Other]:
    """As their statuses tell: it is to be asked which nodes they have. Raises KubeError."""

    def same(manifest: Manifest) -> _Other | None:
        if manifest["metadata"].get("uid") == cluster.metadata.uid:
            return None
        # Its store alone comes first: there may be hundreds of others, each of which looks at all.
        named = _with_a_store(manifest, whole=False)
        other = _with_a_store(manifest) if named is not None and store_place(named) == place else None
        if other is None:
            return None
        return _Other(
            meta=which(other.metadata),
            embedded=other.spec.store.minio.embedded,
            reached=has_reached(other) or other.status.controllers.ready > 0,
            noted=bool(other.status.store),
            begun_s=None,
            waits=_waits(manifest) and not other.spec.paused and other.metadata.deletion_timestamp is None,
        )

    return [
        one
        for namespace in context.settings.watched_namespaces
        for one in await context.kube.each("Cluster", namespace, keep=same)
    ]


async def _with_nodes(context: Context, other: _Other) -> _Other:
    """What its status tells is all where the operator may not look: with a namespace that was made anew, or by who
    administers one, the chart's roles there are gone, and that is nobody else's affair."""
    try:
        nodes = await _nodes(context, other.meta)
    except KubeProblem as problem:
        if problem.status != 403:
            raise
        return replace(other, unseen=True)
    if nodes is None:
        return other
    return replace(
        other,
        reached=other.reached or bool(nodes.get("status", {}).get("readyReplicas")),
        noted=True,
        begun_s=_age_s(nodes, now_ms=_made_by_ms(context)),
    )


def _with_a_store(manifest: Manifest, *, whole: bool = True) -> Cluster | None:
    """The Cluster, or, of one that this operator does not understand, or not `whole`, what it says of its store, or ran
    over; None: it says nothing. It may run.
    """
    spec, status = _part(manifest, "spec"), _part(manifest, "status")
    stores = ({"store": spec.get("store")}, {"store": {"url": status.get("store")}})
    for known in (spec, *stores) if whole else stores:
        try:
            found = understood(Cluster, {**manifest, "spec": known, **({} if whole else {"status": {}})})
        except ValidationError:
            continue
        if found.spec.store.url or found.spec.store.minio.embedded:
            return found
    return None


def _waits(manifest: Manifest) -> bool:
    conditions = _part(manifest, "status").get("conditions")
    listed = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return any((one.get("type"), one.get("reason")) == ("Ready", SHARED) for one in listed)


async def _nodes(context: Context, meta: ObjectMeta) -> Manifest | None:
    """A Cluster's controllers' StatefulSet, which the operator may have made and ended before it noted it."""
    made = await context.kube.get("StatefulSet", meta.namespace, Names(meta.name, meta.namespace).role("controller"))
    return made if made is not None and owner_of(made) == meta.uid else None


def _made_by_ms(context: Context) -> int:
    """The time by the clock that says when objects were made, as far as that is known."""
    told_ms = context.kube.now_ms()
    return context.clock.now_ms() if told_ms is None else told_ms


def _age_s(manifest: Manifest, *, now_ms: int) -> float:
    made = manifest["metadata"].get("creationTimestamp")
    return 0.0 if not made else now_ms / 1000 - datetime.fromisoformat(made).timestamp()


def _is_controller(pod: Manifest) -> bool:
    labels = pod["metadata"]["labels"]
    return labels.get(COMPONENT_LABEL) == "controller" and not labels.get(LANE_LABEL)


def _part(manifest: Manifest, name: str) -> dict[str, Any]:
    part = manifest.get(name)
    return part if isinstance(part, dict) else {}
