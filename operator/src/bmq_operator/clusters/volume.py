"""The embedded MinIO's volume stays when its StatefulSet goes, whoever deletes that: the operator alone deletes the
claim, in `deletion`.

An older operator had Kubernetes delete both together (whenDeleted: Delete). What it left is brought to Retain by every
look, even at a Cluster that is paused or refused: else a deletion that is to keep the records, or a StatefulSet that is
deleted as a remedy, would lose them.
"""

from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.names import Names
from bmq_operator.clusters.nodes import settled
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster


async def keep_volume(context: Context, cluster: Cluster) -> str:
    """Why the volume may still go with its StatefulSet; empty: it stays. Raises KubeError."""
    names = Names.of(cluster)
    if not cluster.spec.store.minio.embedded:
        return ""
    there = await context.kube.get("StatefulSet", names.namespace, names.minio)
    if there is None or owner_of(there) != cluster.metadata.uid:
        return ""
    uid = there["metadata"]["uid"]
    if there["spec"].get("persistentVolumeClaimRetentionPolicy", {}).get("whenDeleted") == "Delete":
        stays = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}}
        there = await context.kube.merge("StatefulSet", names.namespace, names.minio, stays, uid=uid)
    claim = await context.kube.get("PersistentVolumeClaim", names.namespace, names.minio_claim)
    owners = [] if claim is None else claim["metadata"].get("ownerReferences", [])
    others = [one for one in owners if one["uid"] != uid]
    if claim is None or len(others) == len(owners):
        return ""
    if not settled(there):
        return f"waiting for Kubernetes to see that the claim {names.minio_claim} is to stay"
    # Kubernetes itself takes the owner away only while MinIO's pod is ready.
    version = claim["metadata"]["resourceVersion"]
    body = {"metadata": {"ownerReferences": others, "resourceVersion": version}}
    await context.kube.merge(
        "PersistentVolumeClaim", names.namespace, names.minio_claim, body, uid=claim["metadata"]["uid"]
    )
    return ""


async def claim_of_minio(context: Context, cluster: Cluster) -> Manifest | None:
    """The claim of its volume; None: there is none. Raises KubeError."""
    names = Names.of(cluster)
    return (
        await context.kube.get("PersistentVolumeClaim", names.namespace, names.minio_claim)
        if cluster.spec.store.minio.embedded
        else None
    )
