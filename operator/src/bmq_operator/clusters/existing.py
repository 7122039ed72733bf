"""What there is of a Cluster in Kubernetes: read, made, changed and deleted. Which objects those are is decided in
`desired`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from bmq_operator.answers import Allowance, TooMuch, without_fields
from bmq_operator.applied import as_wanted, write
from bmq_operator.clusters.lane_room import LaneRoom
from bmq_operator.clusters.listed import kept_of_orphan, kept_of_pod
from bmq_operator.clusters.names import (
    CLUSTER_LABEL,
    COMPONENT_LABEL,
    LABEL_LENGTH_MAX,
    LANE_LABEL,
    LISTENER_LABEL,
    MANAGED_LABEL,
    NAME_LABEL,
    ROLES,
)
from bmq_operator.conditions import first_of
from bmq_operator.kube import Kube, KubeFailed, KubeProblem, Manifest, too_much
from bmq_resources.cluster import Cluster

KINDS: Final = (
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "NetworkPolicy",
    "Service",
    "StatefulSet",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "Job",
)
"""Kinds of objects that a Cluster owns."""
KINDS_OF_LANES: Final = frozenset(("Service", "StatefulSet", "PodDisruptionBudget"))
"""Those that lanes have: a lane's label at others says nothing."""
REFUSED_MAX: Final = 5
"""How many Services of one listener are refused in one look before the rest of them waits for the next."""
IN_A_TURN: Final = 50
"""How many objects are compared with what they are to be before others' work has its turn: there may be a thousand."""
OF_CHART: Final = "bmq-operator"
"""The name of the application whose objects bmq's chart makes."""
_VERBS: Final = (("made", "changed"), ("to make", "to change"))


class ObjectTaken(Exception):
    """An object of a name that the Cluster needs belongs to somebody else."""


@dataclass(slots=True)
class Done:
    """What was done so far, in words, of which Services the API server refuses what they are to be, and which ones of
    listeners have a name that is somebody else's: it counts whatever keeps the rest from being done.
    """

    what: list[str] = field(default_factory=list)
    refused: str = ""
    taken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """All objects of the Cluster and of its lanes, and their pods. A label says nothing of whose an object is: anybody
    may write it.
    """

    objects: Mapping[tuple[str, str], Manifest]
    """By kind and name."""
    pods: tuple[Manifest, ...]
    """Those that the StatefulSets and the Job among `objects` made."""
    strangers: tuple[Manifest, ...] = ()
    """Further pods with the Cluster's label: copies for debugging, or pods whose StatefulSet is gone already."""
    orphans: tuple[Manifest, ...] = ()
    """StatefulSets of nodes with the Cluster's label and no owner: which they are."""
    left_out: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Lanes of whose pods nothing else is known, as there is too much to read of them: the Secrets that their nodes
    take keys from (empty: none), each with the name of one."""

    def get(self, kind: str, name: str) -> Manifest | None:
        return self.objects.get((kind, name))

    def stateful_sets(self) -> dict[str, Manifest]:
        """The StatefulSets of the base, by component."""
        return {
            one["metadata"]["labels"].get(COMPONENT_LABEL, ""): one
            for (kind, _), one in self.objects.items()
            if kind == "StatefulSet" and not one["metadata"]["labels"].get(LANE_LABEL)
        }

    def sets_of_lane(self, lane: str) -> dict[str, Manifest]:
        """The StatefulSets of a lane, by component."""
        return {
            one["metadata"]["labels"].get(COMPONENT_LABEL, ""): one
            for (kind, _), one in self.objects.items()
            if kind == "StatefulSet" and one["metadata"]["labels"].get(LANE_LABEL) == lane
        }


async def read_existing(kube: Kube, cluster: Cluster) -> Existing:
    """All of it takes no more memory than an Allowance and a LaneRoom. Raises KubeError; KubeProblem, `too_large`,
    where it would: the heaviest lanes are left out before.
    """
    meta = cluster.metadata
    if len(meta.name) > LABEL_LENGTH_MAX:
        return Existing(objects={}, pods=())  # nothing could be labelled so, and the API server refuses to look
    labels = {CLUSTER_LABEL: meta.name}
    allowance, lanes = Allowance(), LaneRoom()

    def keep(one: Manifest) -> Manifest | None:
        lane = _lane_of(one)
        if lane and one["kind"] == "Pod":
            lanes.keep_pod(lane, one)
            return None
        if lane and one["kind"] in KINDS_OF_LANES and _is_of(one, cluster):
            return lanes.keep_object(lane, one)
        kept = _kept(one, cluster)
        return None if kept is None else allowance.keep(kept)

    try:
        objects = await asyncio.gather(*(kube.each(kind, meta.namespace, keep=keep, labels=labels) for kind in KINDS))
        pods = await kube.each("Pod", meta.namespace, keep=keep, labels=labels)
    except TooMuch:
        raise too_much(f"objects in {meta.namespace} with the label {CLUSTER_LABEL}={meta.name}") from None
    by_name = {
        (one["kind"], one["metadata"]["name"]): lanes.whole(_lane_of(one), one)
        for found in objects
        for one in found
        if _is_of(one, cluster)
    }
    pods += lanes.pods()
    makers = {
        str(one["metadata"].get("uid", "")): one for (kind, _), one in by_name.items() if kind in ("StatefulSet", "Job")
    }
    own = {id(pod) for pod in pods if made_by(pod, makers.get(owner_of(pod)))}
    return Existing(
        objects=by_name,
        pods=tuple(pod for pod in pods if id(pod) in own),
        strangers=tuple(pod for pod in pods if id(pod) not in own),
        orphans=tuple(one for found in objects for one in found if one["kind"] == "StatefulSet" and not owner_of(one)),
        left_out=lanes.left_out,
    )


async def bring_about(
    kube: Kube,
    cluster: Cluster,
    existing: Existing,
    wanted: Iterable[Manifest],
    *,
    done: Done,
    restored: Set[str] = frozenset(),
    going: Set[str] = frozenset(),
    dry: bool = False,
) -> None:
    """Makes and changes what differs, and deletes what the Cluster owns and no longer needs; `done` tells it.
    `restored`: Secrets that are taken where nobody owns them. `going`: Services that are needed no more, but are yet.
    `dry`: what would be done, and nothing is.

    A Service that is refused, or a listener's whose name is somebody else's, keeps nothing else from being done, but
    that no Service goes for one that cannot be. Raises KubeError, ObjectTaken.
    """
    refused: dict[str, list[str]] = {}
    taken: list[str] = []
    keys = set()
    for number, manifest in enumerate(wanted):
        if number % IN_A_TURN == 0:
            await asyncio.sleep(0)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        keys.add((kind, name))
        there = existing.get(kind, name)
        if there is None:
            there = await kube.get(kind, cluster.metadata.namespace, name)
        if not (there is not None and kind == "Secret" and name in restored and not owner_of(there)):
            try:
                untaken(there, cluster, listener=listener_of(manifest))
            except ObjectTaken as problem:
                if not listener_of(manifest):
                    raise
                taken.append(str(problem))
                continue
        if there is None or not as_wanted(there, manifest):
            if not dry and not await _written(kube, manifest, there, refused):
                continue
            done.what.append(f"{_VERBS[dry][there is not None]} {kind} {name}")
    for (kind, name), there in existing.objects.items():
        if (
            (kind, name) not in keys
            and not (kind == "Service" and (name in going or taken))
            and owner_of(there) == cluster.metadata.uid
            and not there["metadata"]["labels"].get(LANE_LABEL)
            and kind != "Job"
        ):
            if not dry:
                await kube.delete(kind, cluster.metadata.namespace, name, uid=there["metadata"]["uid"])
            done.what.append(f"{'to delete' if dry else 'deleted'} {kind} {name}")
    done.refused = first_of([text for texts in refused.values() for text in texts])
    done.taken = taken[0] if taken else ""


async def _written(kube: Kube, manifest: Manifest, there: Manifest | None, refused: dict[str, list[str]]) -> bool:
    """Whether it is as it is to be. Of a Service that is refused, why goes to those of its listener. Raises KubeError
    for all else."""
    if manifest["kind"] != "Service":
        await write(kube, manifest, there)
        return True
    meta = manifest["metadata"]
    of_listener = refused.setdefault(listener_of(manifest), [])
    if len(of_listener) >= REFUSED_MAX:
        return False
    try:
        await write(kube, manifest, there)
    except KubeFailed as error:
        of_listener.append(f"Service {meta['name']}: {error}")
    except KubeProblem as problem:
        if problem.status == 409 or problem.lacks_right:
            raise  # somebody else wrote meanwhile, or it is so of all objects
        of_listener.append(f"Service {meta['name']}: {problem.message}")
    else:
        return True
    return False


async def make(kube: Kube, cluster: Cluster, manifest: Manifest) -> Manifest:
    """An object that was not listed; what is there then. Raises KubeError, ObjectTaken."""
    there = await kube.get(manifest["kind"], cluster.metadata.namespace, manifest["metadata"]["name"])
    untaken(there, cluster)
    return await write(kube, manifest, there)


def listener_of(manifest: Manifest) -> str:
    """The listener that an object is for; empty: none."""
    return str((manifest["metadata"].get("labels") or {}).get(LISTENER_LABEL, ""))


def untaken(there: Manifest | None, cluster: Cluster, *, listener: str = "") -> None:
    """Raises ObjectTaken where what is there under a name that the Cluster, or a listener of its, needs is not its
    own.
    """
    if there is None or owner_of(there) == cluster.metadata.uid:
        return
    whose = "belongs to another object" if owner_of(there) else "was there before"
    what = f"{there['kind']} {there['metadata']['name']}"
    needs = f"the listener {listener}" if listener else "this Cluster"
    remedy = f"Choose another name for the listener {listener}" if listener else "Create the Cluster with another name"
    raise ObjectTaken(f"{what} {whose}: {needs} needs that name. {_remedy(there, remedy)}")


def _remedy(there: Manifest, remedy: str) -> str:
    """What others rely on nobody is told to delete, for which this Cluster may have the name: a ServiceAccount is what
    pods run as, this operator's perhaps.
    """
    labels = there["metadata"].get("labels") or {}
    if labels.get(NAME_LABEL) == OF_CHART:
        own = "or have what is of bmq's chart called otherwise (serviceAccount.name, fullnameOverride)"
        return f"{remedy}, {own}: it is the operator's"
    if there["kind"] == "ServiceAccount" or owner_of(there) or labels.get(MANAGED_LABEL) == "Helm":
        return f"{remedy}: others may rely on that object"
    return f"{remedy}, or delete that object if nobody needs it"


def owner_of(manifest: Manifest) -> str:
    """The id of the object that controls it; empty: none does."""
    return next(
        (str(one["uid"]) for one in manifest["metadata"].get("ownerReferences", ()) if one.get("controller")), ""
    )


def _kept(one: Manifest, cluster: Cluster) -> Manifest | None:
    """What is needed of an object with the Cluster's label; None: it is not the Cluster's. Anybody may have labelled
    it.
    """
    if one["kind"] == "Pod":
        return kept_of_pod(one)
    if _is_of(one, cluster):
        return without_fields(one)
    orphan = one["kind"] == "StatefulSet" and not owner_of(one)
    return kept_of_orphan(one) if orphan and one["metadata"]["labels"].get(COMPONENT_LABEL) in ROLES else None


def _lane_of(manifest: Manifest) -> str:
    """Empty: it is of the base."""
    return str(manifest["metadata"].get("labels", {}).get(LANE_LABEL, ""))


def _is_of(manifest: Manifest, cluster: Cluster) -> bool:
    """Objects of a lane are owned by the Lane where that is in the Cluster's namespace."""
    meta = manifest["metadata"]
    if owner_of(manifest) == cluster.metadata.uid:
        return True
    owner: Manifest = next((one for one in meta.get("ownerReferences", ()) if one.get("controller")), {})
    return bool(meta.get("labels", {}).get(LANE_LABEL)) and (owner.get("kind"), owner.get("apiVersion")) == (
        "Lane",
        cluster.api_version,
    )


def made_by(pod: Manifest, maker: Manifest | None) -> bool:
    """Whether its controller made it, which for a StatefulSet its name and labels tell: what a pod says of its owner
    anybody may have written.
    """
    if maker is None:
        return False
    if maker["kind"] == "Job":
        return True
    name, _, number = pod["metadata"]["name"].rpartition("-")
    ours, its = maker["metadata"]["labels"], pod["metadata"].get("labels", {})
    same = all(ours.get(label, "") == its.get(label, "") for label in (COMPONENT_LABEL, LANE_LABEL))
    return same and name == maker["metadata"]["name"] and number.isdecimal() and str(int(number)) == number
