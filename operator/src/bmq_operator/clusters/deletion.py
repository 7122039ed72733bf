"""What happens to a Cluster that is being deleted with deletionPolicy Delete: its records go, once that is confirmed.

With Retain there is no finalizer: Kubernetes takes the objects away by their owner, and volume and bucket stay.
"""

from dataclasses import replace

from bmq.resources.cluster import Cluster, ClusterStatus
from bmq.resources.references import CONFIRM_DELETION
from bmq_operator.applied import write
from bmq_operator.clusters.desired import owned
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import data_may_go
from bmq_operator.clusters.names import CLUSTER_LABEL, COMPONENT_LABEL, Names
from bmq_operator.clusters.pods import erase_job
from bmq_operator.clusters.troubles import last_words
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_operator.outcome import Outcome

AGAIN_S = 2.0


async def delete(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    """One step of it. Raises KubeError."""
    if context.namespace_ending:
        return Outcome(finished=True)
    if not data_may_go(cluster):
        text = (
            f'the records would be deleted with the Cluster: confirm it by the annotation {CONFIRM_DELETION}: "true", or set deletionPolicy: Retain'
        )
        return _waiting(context, cluster, "DeletionUnconfirmed", text, again_after_s=None)
    for (kind, _), one in existing.objects.items():
        # Those of lanes, too: nothing may write any more.
        if kind == "StatefulSet" and one["metadata"]["labels"].get(COMPONENT_LABEL) != "minio":
            await context.kube.delete("StatefulSet", cluster.metadata.namespace, one["metadata"]["name"], uid=one["metadata"]["uid"])
    nodes = [pod for pod in existing.pods if pod["metadata"]["labels"].get(COMPONENT_LABEL) in ("controller", "broker", "proxy")]
    if nodes:
        return _waiting(context, cluster, "Deleting", f"waiting for {len(nodes)} nodes to end before the records go")
    return await (_delete_volume if cluster.spec.store.minio.embedded else _erase)(context, cluster, existing)


async def _delete_volume(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    names = Names.of(cluster)
    await context.kube.delete("StatefulSet", names.namespace, names.minio)
    await context.kube.delete("PersistentVolumeClaim", names.namespace, names.minio_claim)
    if any(pod["metadata"]["labels"].get(COMPONENT_LABEL) == "minio" for pod in existing.pods):
        return _waiting(context, cluster, "Deleting", "waiting for MinIO to end: its volume goes with it")
    return Outcome(finished=True)


async def _erase(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    names = Names.of(cluster)
    job = existing.get("Job", names.erase)
    if job is None:
        await write(context.kube, owned(cluster, erase_job(cluster, image=context.settings.image)))
        return _waiting(context, cluster, "Deleting", f"the Job {names.erase} deletes the records from the store")
    if job.get("status", {}).get("succeeded"):
        return Outcome(finished=True)
    why = _last_words(existing, names)
    if why:
        text = f"the Job {names.erase} could not delete the records: {why}. It is tried again; with deletionPolicy: Retain the records stay"
        return _waiting(context, cluster, "EraseFailed", text)
    return _waiting(context, cluster, "Deleting", f"the Job {names.erase} deletes the records from the store")


def _last_words(existing: Existing, names: Names) -> str:
    for pod in existing.pods:
        if pod["metadata"]["labels"].get(COMPONENT_LABEL) != "erase" or pod["metadata"]["labels"].get(CLUSTER_LABEL) != names.cluster:
            continue
        for status in pod.get("status", {}).get("containerStatuses", ()):
            ended: Manifest = status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
            if ended.get("exitCode"):
                return last_words(ended.get("message", "")) or f"exit code {ended['exitCode']}"
    return ""


def _waiting(context: Context, cluster: Cluster, reason: str, message: str, *, again_after_s: float | None = AGAIN_S) -> Outcome:
    found = Finding(status="False", reason=reason, message=message)
    generation = cluster.metadata.generation
    conditions = next_conditions(cluster.status.conditions, [found], generation=generation, now_ms=context.clock.now_ms())
    status: ClusterStatus = cluster.status.model_copy(update={"conditions": conditions, "observed_generation": generation})
    return replace(Outcome(status=status), again_after_s=again_after_s)
