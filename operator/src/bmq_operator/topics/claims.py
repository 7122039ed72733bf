"""Which Topics stand for which topics of which Clusters. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from bmq_operator.kube import Manifest
from bmq_operator.rivals import Rival
from bmq_resources.topic import Topic

Claim: TypeAlias = tuple[str, str, str]
"""Namespace and name of a Cluster, and a topic of it."""


def claim_of(topic: Topic) -> Claim:
    """What the resource stands for."""
    reference = topic.spec.cluster_ref
    return reference.namespace or topic.metadata.namespace, reference.name, topic.topic_name


def claims(manifests: Iterable[Mapping[str, object]]) -> dict[Claim, list[Rival]]:
    """Who claims which topic, of all Topics as the API server lists them: those that manage what they stand for."""
    found: defaultdict[Claim, list[Rival]] = defaultdict(list)
    for manifest in manifests:
        meta, spec, status = (_part(manifest, name) for name in ("metadata", "spec", "status"))
        if not spec.get("managed", True):
            continue
        reference = _part(spec, "clusterRef")
        claim = (
            reference.get("namespace") or meta["namespace"],
            reference.get("name", "bmq"),
            spec.get("topicName") or meta["name"],
        )
        found[claim].append(
            Rival(
                kind="Topic",
                namespace=meta["namespace"],
                name=meta["name"],
                uid=meta["uid"],
                created=meta.get("creationTimestamp", ""),
                owned=status.get("owned", False),
            )
        )
    return dict(found)


def _part(manifest: Mapping[str, object], name: str) -> Manifest:
    part = manifest.get(name)
    return part if isinstance(part, dict) else {}
