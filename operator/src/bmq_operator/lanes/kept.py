"""Which nodes of a lane are kept, though its Lane asks for fewer: as many as there are, as long as one that would stay
does not work.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from bmq_operator.clusters.existing import made_by, owner_of
from bmq_operator.clusters.fewer import fewer
from bmq_operator.clusters.listed import kept_of_pod
from bmq_operator.clusters.names import CLUSTER_LABEL, COMPONENT_LABEL, LANE_LABEL, Component
from bmq_operator.clusters.nodes import by_own_clock, pods_seen, replicas, settled
from bmq_operator.clusters.unmade import over_quota
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane


async def kept(
    context: Context, lane: Lane, cluster: Cluster, wanted: Sequence[Manifest], there: Iterable[Manifest | None]
) -> tuple[list[Manifest], str]:
    """The same objects, with as many nodes as there are to be now; and why there are to be more than the Lane says,
    empty: there are not. `there`: what there is of each. Raises KubeError."""
    pairs = list(zip(wanted, there, strict=True))
    sets: dict[str, Manifest] = {
        _component(one): found for one, found in pairs if one["kind"] == "StatefulSet" and found is not None
    }
    lowered = {
        _component(one): (replicas(one), replicas(found))
        for one, found in pairs
        if found is not None and one["kind"] == "StatefulSet" and 0 < replicas(one) < replicas(found)
    }
    if not lowered:
        return list(wanted), ""
    now = await _counts(context, lane, cluster, sets, lowered)
    changed = [
        one | {"spec": one["spec"] | {"replicas": now[_component(one)][0]}}
        if one["kind"] == "StatefulSet" and _component(one) in now
        else one
        for one in wanted
    ]
    return changed, "; ".join(why for _, why in now.values() if why)


async def _counts(
    context: Context,
    lane: Lane,
    cluster: Cluster,
    sets: Mapping[str, Manifest],
    lowered: Mapping[Component, tuple[int, int]],
) -> dict[Component, tuple[int, str]]:
    """How many nodes of these roles there are to be now, and why not as few as is asked for."""
    if not all(settled(one) for one in sets.values()):
        why = "Kubernetes has yet to see the newest settings"
        return {role: (current, why) for role, (_, current) in lowered.items()}
    makers = {one["metadata"]["uid"]: one for one in sets.values()}
    meta = cluster.metadata
    manifests = await context.kube.each(
        "Pod",
        meta.namespace,
        keep=lambda pod: kept_of_pod(pod) if made_by(pod, makers.get(owner_of(pod))) else None,
        labels={CLUSTER_LABEL: meta.name, LANE_LABEL: lane.lane_name},
    )
    now_ms = context.clock.now_ms()
    seen = pods_seen(manifests, sets, now_ms=now_ms, lane=lane.lane_name)
    pods = by_own_clock(seen, context.known.waits, now_ms=now_ms)
    over = await over_quota(context.kube, sets)
    settle_s = float(cluster.spec.rollout.settle_seconds)
    found = {
        role: fewer(pods, role, wanted=wanted, current=current, over_quota=over, settle_s=settle_s)
        for role, (wanted, current) in lowered.items()
    }
    return {role: (one.replicas, one.why) for role, one in found.items()}


def _component(manifest: Manifest) -> Component:
    return cast(Component, manifest["metadata"]["labels"][COMPONENT_LABEL])
