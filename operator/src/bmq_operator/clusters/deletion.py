"""What happens to a Cluster that is being deleted with deletionPolicy Delete: its records go, once that is confirmed.

With Retain there is no finalizer: Kubernetes takes the objects away by their owner, and volume and bucket stay.

The Job that erases runs by the spec, as nodes do: it is held to what they are held to, as it is now. It erases no store
but the one over which this very Cluster had nodes, which is in its status: by the chart's rights the operator alone
writes that. What is deleted is this Cluster's by its owner, and each request names the uid of what was looked at.
"""

from dataclasses import replace
from typing import Final

from bmq_operator.applied import was_applied, write
from bmq_operator.clusters.configuration import account, store_of_nodes, store_url
from bmq_operator.clusters.desired import owned
from bmq_operator.clusters.existing import Existing, ObjectTaken, owner_of, untaken
from bmq_operator.clusters.gathering import data_may_go, may_be
from bmq_operator.clusters.names import COMPONENT_LABEL, ROLES, Names, claim_is_of_minio
from bmq_operator.clusters.pods import config_map_of, erase_job
from bmq_operator.clusters.refused import NotToBe, not_to_be
from bmq_operator.clusters.stores import has_reached, use_of_store
from bmq_operator.clusters.troubles import last_words, trouble
from bmq_operator.clusters.unmade import why_unmade
from bmq_operator.conditions import Finding, condition, next_conditions, pace_s
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_operator.outcome import Outcome
from bmq_resources.cluster import Cluster, ClusterStatus
from bmq_resources.references import CONFIRM_DELETION

AGAIN_S: Final = 2.0
"""How soon to look again while something is under way, with a Cluster that is deleted or with any other."""
WAITING_AGAIN_S: Final = 10.0
"""The same once it has been so for minutes: of most it is heard that it ended."""
_GONE: Final = (
    "its nodes are gone, and nothing serves: Kubernetes' garbage collector waits for nobody where a deletion is in the "
    "foreground (kubectl delete --cascade=foreground). The records stay"
)
_RETAIN: Final = "with deletionPolicy: Retain the records stay, and nothing is waited for"


async def delete(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    """One step of it. Raises KubeError."""
    if context.namespace_ending:
        return Outcome(finished=True)
    gone = nodes_gone(cluster, existing)
    if not data_may_go(cluster):
        text = (
            f"the records would be deleted with the Cluster: confirm it by the annotation {CONFIRM_DELETION}: "
            '"true", or set deletionPolicy: Retain'
        )
        if gone:
            text = (
                f"{_GONE}: set deletionPolicy: Retain, and apply the Cluster anew once this one is gone, which goes on "
                f'with them, or have them deleted by the annotation {CONFIRM_DELETION}: "true"'
            )
        return _waiting(context, cluster, "DeletionUnconfirmed", text, again_after_s=None)
    if cluster.spec.paused:
        text = f"spec.paused is true, and nodes and records stay until it is not: write paused: false; {_RETAIN}"
        if gone:
            text = (
                f"{_GONE} until spec.paused is not true any more: write paused: false, which deletes them; {_RETAIN}, "
                "and a Cluster that is applied anew goes on with them"
            )
        return _waiting(context, cluster, "Paused", text, again_after_s=None)
    known = {
        "store": cluster.status.store or store_ran_over(cluster, existing),
        "store_use": use_of_store(cluster, existing),
    }
    if known != {"store": cluster.status.store, "store_use": cluster.status.store_use}:
        # Once the nodes are gone nothing else tells it.
        noted = cluster.model_copy(update={"status": cluster.status.model_copy(update=known)})
        return _waiting(context, noted, "Deleting", "the nodes are to end before the records go", again_after_s=0.0)
    await end_nodes(context, existing)
    if nodes := _pods(existing, *ROLES):
        text = (
            f"waiting for {len(nodes)} nodes to end before the records go: "
            f"{', '.join(nodes[:3])}{', ...' if len(nodes) > 3 else ''}"
        )
        return _waiting(context, cluster, "Deleting", text)
    return await (_delete_volume if cluster.spec.store.minio.embedded else _erase)(context, cluster, existing)


def serves_on(context: Context, cluster: Cluster) -> bool:
    """Whether the deletion waits for somebody before it touches anything."""
    return not context.namespace_ending and (not data_may_go(cluster) or cluster.spec.paused)


def nodes_gone(cluster: Cluster, existing: Existing) -> bool:
    """Whether a Cluster that had nodes has none any more, of no role."""
    return bool(cluster.status.store) and not set(ROLES) & set(existing.stateful_sets())


async def end_nodes(context: Context, existing: Existing) -> list[str]:
    """Those of lanes, too: nothing may write any more. The names of their StatefulSets. Raises KubeError."""
    found = [one["metadata"] for (kind, _), one in existing.objects.items() if kind == "StatefulSet"]
    nodes = [meta for meta in found if meta["labels"].get(COMPONENT_LABEL) != "minio"]
    for meta in nodes:
        await context.kube.delete("StatefulSet", meta["namespace"], meta["name"], uid=meta["uid"])
    return [meta["name"] for meta in nodes]


def store_ran_over(cluster: Cluster, existing: Existing) -> str:
    """The store that the Cluster's nodes are made with; empty: it has none. Their configuration says it."""
    nodes = existing.stateful_sets().get("controller")
    return (
        ""
        if nodes is None
        else store_of_nodes(existing.get("ConfigMap", config_map_of(nodes["spec"]["template"]["spec"])))
    )


async def _delete_volume(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    names = Names.of(cluster)
    minio = existing.get("StatefulSet", names.minio)
    claim = await context.kube.get("PersistentVolumeClaim", names.namespace, names.minio_claim)
    ran = minio is not None or cluster.status.store == store_url(cluster)
    own = claim is not None and ran and claim_is_of_minio(claim, names)
    if claim is not None and own:
        await context.kube.delete(
            "PersistentVolumeClaim", names.namespace, names.minio_claim, uid=claim["metadata"]["uid"]
        )
    if minio is not None:
        await context.kube.delete("StatefulSet", names.namespace, names.minio, uid=minio["metadata"]["uid"])
    if own or minio is not None or _pods(existing, "minio"):
        # Looked at once more: until its StatefulSet is gone Kubernetes may make the claim anew.
        return _waiting(
            context, cluster, "Deleting", f"waiting for MinIO to end, and for its volume {names.minio_claim} to go"
        )
    return Outcome(finished=True)


async def _erase(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    names = Names.of(cluster)
    job = await context.kube.get("Job", names.namespace, names.erase)
    wanted = owned(cluster, erase_job(cluster, image=context.settings.image))
    ended = job is not None and bool(job.get("status", {}).get("succeeded"))
    to_be_made = not ended and (job is None or not was_applied(job, wanted) or _has_failed(job))
    try:
        untaken(job, cluster)
        if to_be_made:
            await _may_erase(context, cluster)
    except NotToBe as why:
        return _waiting(
            context, cluster, why.finding.reason, f"the records are not erased: {why.finding.message}. Else {_RETAIN}"
        )
    except ObjectTaken as taken:
        return _waiting(context, cluster, "NameTaken", f"the records are not erased: {taken}. Else {_RETAIN}")
    if ended:
        return Outcome(finished=True)
    if to_be_made and job is not None:
        # Kubernetes lets nobody change what a Job runs.
        await context.kube.delete("Job", names.namespace, names.erase, uid=job["metadata"]["uid"])
        return _waiting(context, cluster, "Deleting", f"the Job {names.erase} is made anew, by the spec as it is now")
    if job is None:
        await write(context.kube, wanted, None)
    elif why_failed := await _why_not_erased(context, existing, job):
        text = (
            f"the Job {names.erase} could not delete the records: {why_failed}. It is tried again; with "
            "deletionPolicy: Retain the records stay"
        )
        return _waiting(context, cluster, "EraseFailed", text)
    return _waiting(context, cluster, "Deleting", f"the Job {names.erase} deletes the records from the store")


def _has_failed(job: Manifest) -> bool:
    """Whether Kubernetes tries no more."""
    return any(
        (one["type"], one["status"]) == ("Failed", "True") for one in job.get("status", {}).get("conditions", ())
    )


async def _may_erase(context: Context, cluster: Cluster) -> None:
    """Raises KubeError; NotToBe, ObjectTaken where the Job may not run by this spec."""
    await may_be(context, cluster)
    if cluster.status.store != store_url(cluster) or not has_reached(cluster):
        had = "it never had any" if not cluster.status.store else f"they ran over {cluster.status.store}"
        had = had if cluster.status.store != store_url(cluster) else "none of its controllers was ever ready"
        text = (
            f"nodes of this Cluster are not known to have run over {store_url(cluster)} ({had}), so what is "
            "there may be another's"
        )
        raise not_to_be("NeverRan", text)
    there = await context.kube.get("ServiceAccount", cluster.metadata.namespace, Names.of(cluster).cluster)
    untaken(there, cluster)
    if there is None:
        await write(context.kube, owned(cluster, account(cluster)), there)


def _pods(existing: Existing, *components: str) -> list[str]:
    """Names of all pods with the Cluster's labels, whoever made them: their StatefulSets are gone before them, and any
    of them may still write. Of a lane that is left out it is one.
    """
    pods = (*existing.pods, *existing.strangers)
    found = [
        str(pod["metadata"]["name"]) for pod in pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) in components
    ]
    left_out = [name for nodes in existing.left_out.values() for name in nodes.values()]
    return found + (left_out if set(ROLES) <= set(components) else [])


async def _why_not_erased(context: Context, existing: Existing, job: Manifest) -> str:
    """What a pod of the Job said last, or what keeps one from running, or from being made; empty: nothing is known
    to.
    """
    pods = [pod for pod in existing.pods if owner_of(pod) == job["metadata"]["uid"]]
    if not pods:
        return await why_unmade(context.kube, job)
    found = trouble(pods, now_ms=context.kube.now_ms())
    return _last_words(pods) or ("" if found is None else found.message)


def _last_words(pods: list[Manifest]) -> str:
    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses", ()):
            ended: Manifest = (
                status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
            )
            if ended.get("exitCode"):
                return last_words(ended.get("message", "")) or f"exit code {ended['exitCode']}"
    return ""


def _waiting(
    context: Context, cluster: Cluster, reason: str, message: str, *, again_after_s: float | None = AGAIN_S
) -> Outcome:
    found = Finding(status="False", reason=reason, message=message)
    generation = cluster.metadata.generation
    conditions = next_conditions(
        cluster.status.conditions, [found], generation=generation, now_ms=context.clock.now_ms()
    )
    status: ClusterStatus = cluster.status.model_copy(
        update={"conditions": conditions, "observed_generation": generation}
    )
    if again_after_s:
        ready, now_ms = condition(conditions), context.clock.now_ms()
        again_after_s = pace_s(ready, first_s=again_after_s, most_s=WAITING_AGAIN_S, now_ms=now_ms)
    return replace(Outcome(status=status), again_after_s=again_after_s)
