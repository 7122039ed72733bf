"""Pods and nodes of a Cluster as they are: what the API server lists and what the leading controller tells, as values.
Pure.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

from bmq_admin import documents
from bmq_operator.applied import covers
from bmq_operator.clusters.keys import reference
from bmq_operator.clusters.names import COMPONENT_LABEL, LANE_LABEL, NODE_IDS_FROM, ROLES, Component
from bmq_operator.kube import Manifest
from bmq_operator.waits import Waits

REVISION_LABEL = "controller-revision-hash"
PULLING: Final = frozenset(
    ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
)
UNSTARTED: Final = frozenset(("CreateContainerConfigError", "CreateContainerError", "RunContainerError"))
"""What a container waits for that Kubernetes cannot start."""
ROOM: Final = ("nodeSelector", "affinity", "topologySpreadConstraints", "priorityClassName", "tolerations")
"""What of a pod's spec, besides what its containers ask for, says on which machines there is room for it."""
_GIVEN: Final = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of the base or of a lane, and not of MinIO."""

    name: str
    component: Component
    ordinal: int
    """Its number among those of its StatefulSet."""
    ready: bool
    outdated: bool
    """It was made from an older template than its StatefulSet has now."""
    deleting: bool = False
    image: str = ""
    restarts: int = 0
    """How often its container has ended."""
    held_back: bool = False
    """Kubernetes cannot start it: the image is not to be had, a Secret that it names is not there."""
    without_room: bool = False
    """No machine has room for it."""
    same_room: bool = False
    """Its successor needs no more, and no other, room than it has itself."""
    worked_s: float = math.inf
    """For how long it has been ready without a break."""
    lane: str = ""
    """Empty: it is of the base."""
    revision: str = ""
    """Which revision of the template it was made from."""
    made_ms: int = 0
    """When, in ms since 1970."""
    uid: str = ""
    """Its successor of the same name has another one."""
    old_keys: bool = False
    """It takes its keys from another Secret than its StatefulSet names now: as long as it does, an old key counts."""

    @property
    def node_id(self) -> int:
        return NODE_IDS_FROM[self.component] + self.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the leading controller sees it."""

    node_id: int
    alive: bool
    leads: bool = False
    cordoned: bool = False
    draining: bool = False
    """Its partitions are being moved away. A new leading controller knows nothing of that."""
    partitions: int = 0
    moving: int = 0
    """Partitions on their way from or to it."""
    pool: str = ""
    """A broker owns partitions of the topics of this pool alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What the leading controller says of the cluster."""

    cluster_id: str = ""
    nodes: Mapping[int, Node] = field(default_factory=dict)
    unowned: int = 0
    """Partitions that nobody owns, but those that wait for brokers of a lane's own: what becomes of these is the lane's
    affair."""
    unowned_of_lanes: int = 0
    store_ok: bool | None = None
    store_detail: str = ""


def pods_seen(
    manifests: Iterable[Manifest], sets: Mapping[str, Manifest], *, now_ms: int, lane: str = ""
) -> tuple[Pod, ...]:
    """The pods of the base, or of a lane, by role and number. `sets` are its StatefulSets by component."""
    found = [_pod(one, sets, now_ms=now_ms) for one in manifests if _lane_of_node(one) == lane]
    return tuple(sorted(found, key=lambda pod: (ROLES.index(pod.component), pod.ordinal)))


def by_own_clock(pods: Iterable[Pod], waits: Waits, *, now_ms: int) -> tuple[Pod, ...]:
    """The same pods. One that would have begun to work in the future is on a machine whose clock is ahead: it has
    worked since it was first seen so.
    """
    return tuple(
        replace(
            pod,
            worked_s=waits.waited_s(
                pod.uid, "works", frozenset((str(round(now_ms - pod.worked_s * 1000)),)), now_ms=now_ms
            ),
        )
        if pod.worked_s < 0
        else pod
        for pod in pods
    )


def lanes_seen(manifests: Iterable[Manifest]) -> list[str]:
    """The lanes that have nodes of their own."""
    return sorted({lane for one in manifests if (lane := _lane_of_node(one))})


def is_ready(pod: Manifest) -> bool:
    """Whether Kubernetes counts it as ready."""
    return any(
        one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", ())
    )


def late_s(pod: Manifest, *, now_ms: int) -> float:
    """For how many seconds it has been there after it was to be gone, which its time to end counts to; 0: it is not
    late, or nobody deletes it."""
    due_ms = _ms(pod["metadata"].get("deletionTimestamp"))
    return 0.0 if due_ms is None else max(0.0, (now_ms - due_ms) / 1000)


def unschedulable(pod: Manifest) -> Manifest | None:
    """The condition of a pod for which no machine has room."""
    conditions = pod.get("status", {}).get("conditions", ())
    wanted = ("PodScheduled", "False", "Unschedulable")
    return next((one for one in conditions if (one["type"], one["status"], one.get("reason")) == wanted), None)


def newest_revision(stateful_set: Manifest) -> str:
    """The newest revision of its template, as Kubernetes calls it; empty: it has yet to see it."""
    return str(stateful_set.get("status", {}).get("updateRevision", ""))


def replicas(stateful_set: Manifest) -> int:
    """How many pods it is to have."""
    return int(stateful_set["spec"].get("replicas", 1))


def settled(stateful_set: Manifest) -> bool:
    """Whether Kubernetes has seen its newest version: only then does its status say which pods are outdated."""
    return bool(
        stateful_set.get("status", {}).get("observedGeneration", 0) >= stateful_set["metadata"].get("generation", 0)
    )


def state_from(cluster: documents.Cluster, nodes: Iterable[documents.Node], store: documents.Store) -> ClusterState:
    """From the answers to /v1/cluster, /v1/nodes and /v1/debug/store."""
    return ClusterState(
        cluster_id=cluster["cluster_id"],
        nodes={
            one["node_id"]: Node(
                node_id=one["node_id"],
                alive=one["state"] == "alive",
                leads=one["leads"],
                cordoned=one["cordoned"],
                draining=one["draining"],
                partitions=one["partitions"],
                moving=one["moving_away"] + one["moving_here"],
                pool=one.get("pool", ""),
            )
            for one in nodes
        },
        unowned=cluster["partitions_unowned"] - cluster.get("partitions_unowned_of_lanes", 0),
        unowned_of_lanes=cluster.get("partitions_unowned_of_lanes", 0),
        store_ok=store["ok"],
        store_detail=failed_step(store),
    )


def failed_step(store: documents.Store) -> str:
    """What the answer to /v1/debug/store says that failed; empty: nothing."""
    failed = next((step for step in store["steps"] if not step["ok"]), None)
    return "" if failed is None else f"{failed['name']}: {failed['detail']}"


def _lane_of_node(manifest: Manifest) -> str | None:
    """Empty: of the base; None: it is no node."""
    labels = manifest["metadata"].get("labels", {})
    return str(labels.get(LANE_LABEL, "")) if labels.get(COMPONENT_LABEL) in ROLES else None


def _held_back(pod: Manifest) -> bool:
    states = [one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", ())]
    return any(one.get("waiting", {}).get("reason") in PULLING | UNSTARTED for one in states)


def _room(pod_spec: Manifest) -> Manifest:
    """What of a pod, or of a template, says on which machines there is room for it. Kubernetes gives each pod the
    tolerations of `_GIVEN`.
    """
    tolerations = [one for one in pod_spec.get("tolerations", ()) if one.get("key") not in _GIVEN]
    resources = [one.get("resources", {}) for one in pod_spec.get("containers", ())]
    return {key: pod_spec[key] for key in ROOM if key in pod_spec} | {
        "tolerations": tolerations,
        "resources": resources,
    }


def _ready_since_ms(pod: Manifest) -> int | None:
    times = (
        one.get("lastTransitionTime") for one in pod.get("status", {}).get("conditions", ()) if one["type"] == "Ready"
    )
    return _ms(next(times, None))


def _ms(text: str | None) -> int | None:
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else None


def _pod(manifest: Manifest, sets: Mapping[str, Manifest], *, now_ms: int) -> Pod:
    meta = manifest["metadata"]
    since_ms = _ready_since_ms(manifest)
    worked_s = math.inf if since_ms is None else (now_ms - since_ms) / 1000
    component = cast(Component, meta["labels"][COMPONENT_LABEL])
    maker = sets.get(component, {})
    newest = newest_revision(maker)
    template = maker.get("spec", {}).get("template", {}).get("spec", {})
    keys_name, _ = reference(template)
    return Pod(
        name=meta["name"],
        component=component,
        ordinal=int(meta["name"].rpartition("-")[2]),
        ready=is_ready(manifest),
        outdated=bool(newest) and meta["labels"].get(REVISION_LABEL) != newest,
        deleting="deletionTimestamp" in meta,
        image=str(manifest["spec"]["containers"][0].get("image", "")),
        restarts=sum(one.get("restartCount", 0) for one in manifest.get("status", {}).get("containerStatuses", ())),
        held_back=_held_back(manifest),
        without_room=unschedulable(manifest) is not None,
        same_room=bool(template) and covers(_room(manifest["spec"]), _room(template)),
        worked_s=worked_s,
        lane=meta["labels"].get(LANE_LABEL, ""),
        revision=str(meta["labels"].get(REVISION_LABEL, "")),
        made_ms=_ms(meta.get("creationTimestamp")) or 0,
        uid=str(meta.get("uid", "")),
        old_keys=bool(keys_name) and reference(manifest["spec"])[0] != keys_name,
    )
