"""StatefulSets of one pod that Kubernetes rolls by itself: the embedded MinIO and the probe.

One that replaces its pods in order waits for a pod to be ready before it replaces it, so an image that cannot be pulled
would stay after it was corrected. New ones are made otherwise (Parallel); of those that an older operator made
Kubernetes lets nobody change that.
"""

from bmq_operator.clusters.existing import Existing, owner_of
from bmq_operator.clusters.names import COMPONENT_LABEL
from bmq_operator.clusters.nodes import REVISION_LABEL, is_ready, settled
from bmq_operator.context import Context

COMPONENTS = ("minio", "probe")


def pod_management(existing: Existing) -> dict[str, str]:
    """How those that there are replace their pods, by component."""
    sets = existing.stateful_sets()
    return {one: sets[one]["spec"].get("podManagementPolicy", "OrderedReady") for one in COMPONENTS if one in sets}


async def replace_stuck(context: Context, existing: Existing, *, dry: bool = False) -> list[str]:
    """Deletes pods that are not ready and made from an older template than there is now; what was done, in words.
    `dry`: what would be done, and nothing is. Raises KubeError."""
    sets = existing.stateful_sets()
    makers = {sets[one]["metadata"]["uid"]: sets[one] for one in COMPONENTS if one in sets and settled(sets[one])}
    done = []
    for pod in existing.pods:
        meta, maker = pod["metadata"], makers.get(owner_of(pod))
        newest = "" if maker is None else maker.get("status", {}).get("updateRevision", "")
        outdated = bool(newest) and meta["labels"].get(REVISION_LABEL) != newest
        if outdated and not is_ready(pod) and "deletionTimestamp" not in meta:
            if not dry:
                await context.kube.delete("Pod", meta["namespace"], meta["name"], uid=meta["uid"])
            what = (
                f"Pod {meta['name']} ({meta['labels'].get(COMPONENT_LABEL)}), which was not ready and had old settings"
            )
            done.append(f"{'to replace' if dry else 'replaced'} {what}")
    return done
