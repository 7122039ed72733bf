"""Why Kubernetes makes no pods of a StatefulSet or a Job: a quota, a Pod Security Standard, a webhook. No status says
so, only its events do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.names import ROLES, Component
from bmq_operator.clusters.nodes import replicas
from bmq_operator.clusters.troubles import trouble
from bmq_operator.conditions import Finding
from bmq_operator.kube import Kube, KubeProblem, Manifest

REFUSED: Final = "PodsRefused"
PROBE_RUNS: Final = "ProbeRuns"
_REASON: Final = "FailedCreate"
_LENGTH_MAX: Final = 1_000
_QUOTA: Final = "exceeded quota"
"""As Kubernetes says it of what a ResourceQuota has no room for."""


async def refused(kube: Kube, makers: Iterable[Manifest]) -> Finding | None:
    """Why Kubernetes makes no pods of the first of these StatefulSets that lack pods and of which it is known; None: it
    is known of none. Raises KubeError.
    """
    for one in makers:
        if lacks_pods(one) and (why := await why_unmade(kube, one)):
            text = (
                f"Kubernetes makes no pods of {one['kind']} {one['metadata']['name']}: {why}. It is tried "
                "again: correct what this names"
            )
            return Finding(status="False", reason=REFUSED, message=text)
    return None


async def probe_note(
    kube: Kube, probe: Manifest | None, pods: Iterable[Manifest], *, now_ms: int | None
) -> Finding | None:
    """What is told of a probe that does not run, though a Cluster is ready without it: then nobody measures. None:
    nothing is known to keep it. Raises KubeError.
    """
    if probe is None:
        return None
    own = [one for one in pods if owner_of(one) == probe["metadata"].get("uid")]
    found = trouble(own, now_ms=now_ms) or await refused(kube, (probe,))
    return None if found is None else replace(found, type=PROBE_RUNS, status="False")


async def over_quota(kube: Kube, sets: Mapping[str, Manifest]) -> frozenset[Component]:
    """The roles of which Kubernetes makes no more pods, as a quota has no room for them. `sets` are by component.
    Raises KubeError.
    """
    lacking = [role for role in ROLES if role in sets and lacks_pods(sets[role])]
    return frozenset([role for role in lacking if _QUOTA in await why_unmade(kube, sets[role])])


def lacks_pods(stateful_set: Manifest) -> bool:
    """Whether there are fewer than it wants."""
    return bool(stateful_set.get("status", {}).get("replicas", 0) < replicas(stateful_set))


async def why_unmade(kube: Kube, maker: Manifest) -> str:
    """What its newest event says of it; empty: nothing is known. Raises KubeError."""
    meta = maker["metadata"]
    about = {
        "involvedObject.kind": maker["kind"],
        "involvedObject.name": meta["name"],
        "involvedObject.uid": meta.get("uid", ""),
        "reason": _REASON,
    }
    newest = ("", "")

    def note(event: Manifest) -> None:
        nonlocal newest
        newest = max(newest, _said(event))

    try:
        await kube.each("Event", meta["namespace"], keep=note, fields=about)
    except KubeProblem as problem:
        if problem.status != 403:
            raise
        return ""  # the chart is older than this operator, and lets it read no events
    return newest[1].strip().rstrip(".")


def _said(event: Manifest) -> tuple[str, str]:
    return _at(event), str(event.get("message") or "")[:_LENGTH_MAX]


def _at(event: Manifest) -> str:
    """Times of Kubernetes are ordered as their texts."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
