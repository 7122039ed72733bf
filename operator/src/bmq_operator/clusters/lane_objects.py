"""What a Cluster does for objects of lanes whatever becomes of their Lanes: keys are brought up to date, and what is of
no Lane any more goes.

All else of them is looked after by their Lanes (lanes/reconcile.py), and by nobody while those are refused.
"""

from bmq_operator.clusters.existing import Existing, owner_of
from bmq_operator.clusters.names import LANE_LABEL, OF_LANE, OF_NAMESPACE
from bmq_operator.clusters.rotation import with_keys_of
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, Manifest
from bmq_resources.cluster import Cluster


async def keys_to_lanes(
    context: Context, existing: Existing, base: Manifest, *, dry: bool = False
) -> tuple[list[str], list[str]]:
    """Brings the keys of lanes' nodes to those of `base`; what was done, and what was refused, in words. `dry`: what
    would be done, and nothing is. Raises KubeError."""
    done, refused = [], []
    for (kind, name), there in existing.objects.items():
        if (
            kind != "StatefulSet"
            or not there["metadata"]["labels"].get(LANE_LABEL)
            or with_keys_of(there, base) is None
        ):
            continue
        if dry:
            done.append(f"to give {kind} {name} the newest keys")
            continue
        try:
            await _give(context, there, base)
        except KubeProblem as problem:
            if problem.status == 409:
                raise
            if problem.status != 404:
                refused.append(f"the API server refuses new keys for {kind} {name}: {problem.message}")
        else:
            done.append(f"gave {kind} {name} the newest keys")
    return done, refused


async def _give(context: Context, there: Manifest, base: Manifest) -> None:
    """Only some of what the StatefulSet says was kept of it, and a list of containers is written as a whole."""
    meta = there["metadata"]
    whole = await context.kube.get("StatefulSet", meta["namespace"], meta["name"])
    if whole is None or whole["metadata"]["uid"] != meta["uid"]:
        return
    if (change := with_keys_of(whole, base)) is not None:
        await context.kube.merge("StatefulSet", meta["namespace"], meta["name"], change)


async def delete_without_lane(
    context: Context, cluster: Cluster, existing: Existing, *, dry: bool = False
) -> list[str]:
    """Deletes what the Cluster owns of lanes whose Lanes are gone, as those cannot have taken it with them: without an
    operator nothing else does; what was done, in words. `dry`: what would be done, and nothing is. Raises KubeError."""
    done = []
    gone: dict[tuple[str, str, str], bool] = {}
    for (kind, name), there in existing.objects.items():
        meta = there["metadata"]
        annotations, lane = meta.get("annotations") or {}, meta["labels"].get(LANE_LABEL, "")
        key = annotations.get(OF_NAMESPACE, ""), annotations.get(OF_LANE, ""), lane
        if not all(key) or owner_of(there) != cluster.metadata.uid:
            continue
        if key not in gone:
            gone[key] = await _is_gone(context, cluster, *key)
        if gone[key]:
            if not dry:
                await context.kube.delete(kind, meta["namespace"], name, uid=meta["uid"])
            done.append(
                f"{'to delete' if dry else 'deleted'} {kind} {name}, as there is no Lane {key[0]}/{key[1]} for it "
                "any more"
            )
    return done


async def _is_gone(context: Context, cluster: Cluster, namespace: str, name: str, lane: str) -> bool:
    """Whether no Lane of this name stands for this lane of the Cluster. Of a namespace that is not this operator's
    nobody knows.
    """
    if namespace not in context.settings.watched_namespaces and context.settings.namespaces:
        return False
    there = await context.kube.get("Lane", namespace, name)
    if there is None:
        return True
    spec = there.get("spec") or {}
    reference = spec.get("clusterRef") or {}
    of = reference.get("namespace") or namespace, reference.get("name", "bmq"), spec.get("laneName") or name
    return of != (cluster.metadata.namespace, cluster.metadata.name, lane)
