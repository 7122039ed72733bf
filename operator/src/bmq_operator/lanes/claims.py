"""Which Lanes stand for which lanes of which Clusters, and which node ids they have. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from bmq_operator.kube import Manifest
from bmq_operator.lanes.slots import is_slot
from bmq_operator.rivals import Rival
from bmq_resources.lane import Lane

Claim: TypeAlias = tuple[str, str, str]
"""Namespace and name of a Cluster, and a lane of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneClaims:
    """What all Lanes stand for, and which node ids they have."""

    rivals: dict[Claim, list[Rival]]
    node_ids: dict[tuple[str, str], dict[str, int]]
    """The first node ids of each Cluster's Lanes, by their uid."""
    uids: frozenset[str]


def claim_of(lane: Lane) -> Claim:
    """What the resource stands for."""
    reference = lane.spec.cluster_ref
    return reference.namespace or lane.metadata.namespace, reference.name, lane.lane_name


def lane_claims(manifests: Iterable[Manifest]) -> LaneClaims:
    """The claims of all Lanes, as the API server lists them."""
    rivals: defaultdict[Claim, list[Rival]] = defaultdict(list)
    node_ids: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    uids = set()
    for manifest in manifests:
        meta, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        reference = spec.get("clusterRef", {})
        cluster = (reference.get("namespace") or meta["namespace"], reference.get("name", "bmq"))
        uids.add(meta["uid"])
        if is_slot(status.get("nodeIdsFrom", -1)):
            node_ids[cluster][meta["uid"]] = status["nodeIdsFrom"]
        rivals[*cluster, spec.get("laneName") or meta["name"]].append(
            Rival(
                kind="Lane",
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                created=meta.get("creationTimestamp", ""),
                owned=bool(status.get("laneName")),
            )
        )
    return LaneClaims(rivals=dict(rivals), node_ids=dict(node_ids), uids=frozenset(uids))
