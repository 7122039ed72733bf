"""What an upgrade is decided from, and whether a Cluster is whole: all of it is there and has worked for a while. Only
then is a node taken away that works. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bmq_operator.clusters.names import ROLES, Component
from bmq_operator.clusters.nodes import ClusterState, Pod

SETTLE_S_MAX: Final = 600.0
_DOUBLED_MAX: Final = 16
"""Beyond this nothing is doubled any more: pods that ended a thousand times make numbers that floats do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the decision is made from."""

    pods: tuple[Pod, ...]
    wanted: Mapping[Component, int]
    """How many pods the spec, or the autoscaler, wants of each role."""
    current: Mapping[Component, int]
    """How many the StatefulSets have now."""
    settled: bool = True
    """Whether Kubernetes has seen the newest templates, and so knows which pods are outdated."""
    state: ClusterState | None = None
    why_no_state: str = ""
    marked: frozenset[int] = field(default_factory=frozenset)
    """Brokers, by node id, that the operator itself drained."""
    settle_s: float = 0
    """How long a node that was replaced has to work before the next one is."""
    over_quota: frozenset[Component] = field(default_factory=frozenset)
    """Roles of which Kubernetes makes no more pods, as a quota has no room for them."""
    newest: Mapping[Component, str] = field(default_factory=dict)
    """The revisions of the templates that pods are made from now, by role."""
    proven: frozenset[str] | None = None
    """Revisions with which the Cluster was whole last; empty: it never was; None: nobody noted it yet."""
    waited_s: float = 0
    """For how long it has not been whole with these very pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What a cluster is not whole for. `passes`: Kubernetes, or time alone, is to bring it."""

    text: str
    passes: bool = False

    @property
    def message(self) -> str:
        return f"{'before the next one is replaced:' if self.passes else 'nothing is replaced while'} {self.text}"


def why_not_whole(view: View) -> Lack | None:
    """What is missing; None: a node may be taken away."""
    if (missing := why_incomplete(view)) is not None:
        return Lack(text=missing, passes=True)
    if view.state is None:
        return Lack(text=view.why_no_state)
    for pod in view.pods:
        node = view.state.nodes.get(pod.node_id)
        if pod.ordinal < view.wanted[pod.component] and (node is None or not node.alive):
            return Lack(text=f"node {pod.node_id} ({pod.name}) is not alive to the controller")
    if (settling := why_settling(view.pods, view.settle_s)) is not None:
        return Lack(text=settling, passes=True)
    if view.state.unowned:
        return Lack(text=f"{view.state.unowned} partitions have no owner")
    if (alone := _in_vain_pool(view.pods, view.state)) is not None:
        name, pool = alone
        text = f"{name} is in the pool {pool!r} (BMQ_POOL), of which no topic is, and the brokers that it left are not"
        return Lack(text=text)
    return None


def _in_vain_pool(pods: Iterable[Pod], state: ClusterState) -> tuple[str, str] | None:
    """A broker whose newest settings put it where nothing is for it to own, and that pool: the last one that gets them
    would leave partitions without an owner.
    """
    brokers = [
        (pod, node)
        for pod in pods
        if pod.component == "broker" and (node := state.nodes.get(pod.node_id)) is not None and node.alive
    ]
    left = {node.pool for pod, node in brokers if pod.outdated and node.partitions}
    owned = {node.pool for _, node in brokers if node.partitions}
    found = ((pod.name, node.pool) for pod, node in brokers if not pod.outdated and left and node.pool not in owned)
    return next(found, None)


def why_incomplete(view: View) -> str | None:
    """Which role has pods that are missing, or not ready; None: none has."""
    for role in ROLES:
        ready = sum(pod.ready and not pod.deleting for pod in view.pods if pod.component == role)
        if ready < view.wanted[role]:
            return f"{ready} of {view.wanted[role]} pods of the {role} role are ready"
    return None


def settling_s(pod: Pod, settle_s: float) -> float:
    """How long it is to have worked before the next one is replaced."""
    return min(SETTLE_S_MAX, settle_s * 2.0 ** min(pod.restarts, _DOUBLED_MAX))


def why_settling(pods: Iterable[Pod], settle_s: float) -> str | None:
    """Which pod with the newest settings has yet to work for a while: the longer, the more often it ended; None: all
    have.
    """
    for pod in pods:
        needed_s = settling_s(pod, settle_s)
        if not pod.outdated and pod.worked_s < needed_s:
            ended = f", as it ended {pod.restarts} times" if pod.restarts else ""
            return f"{pod.name} is to work for {needed_s:g} s first{ended}"
    return None
