"""What to do next to running nodes: roll out a change, drain brokers before they go, take them back into use. Pure; one
step at a time.

- A node that is outdated and not ready is replaced at once: it serves nobody.
- Where a node with the newest settings has ended already, or cannot be made or started, they are not given to others of
  its role, or of one that is replaced later, though those are broken: the settings may be what breaks them.
- Otherwise nothing is taken away unless everything else is there: all pods ready, a leading controller that answers,
  all nodes alive, all partitions owned, and what was replaced before has worked for a while. Controllers first, the
  leading one last of them; then brokers, each drained before; then proxies.
- What the operator drained it notes (`marked`), so that it uncordons that and nothing that somebody else cordoned.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from bmq_operator.clusters.names import NODE_IDS_FROM, ROLES, Component
from bmq_operator.clusters.nodes import ClusterState, Node, Pod

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The base: `reason` is one word for programs, `message` says what is done or waited for, and why."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Step):
    """Everything is as it is to be."""

    reason: str = "Done"
    message: str = "every node runs what the spec says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Step):
    """Something has to happen first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod(Step):
    """Its StatefulSet makes it anew from the newest template. `uid`: this very pod is meant, and not one that was made
    in its place meanwhile.
    """

    pod: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(Step):
    """Move a broker's partitions to others. `pod` is deleted instead where nobody could take them; empty: not."""

    node_id: int
    pod: str = ""
    uid: str = ""
    mark: bool = True
    """Whether the operator takes it back into use afterwards: not where somebody else had cordoned it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncordon(Step):
    """Give a broker partitions again."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink(Step):
    """Let the drained brokers at the end go."""

    replicas: int


def next_step(view: View) -> Step:
    """The next step. Taken again and again, this ends in Idle."""
    if (broken := _outdated_and_broken(view)) is not None:
        return broken
    if (unused := _drained_in_vain(view)) is not None:
        return unused
    if view.current["broker"] > view.wanted["broker"]:
        return _shrink(view)
    outdated = [pod for pod in view.pods if pod.outdated and pod.ordinal < view.wanted[pod.component]]
    if not view.settled:
        return Wait(reason="Updating", message="Kubernetes has yet to see the newest settings")
    if not outdated:
        return _complete(view) or Idle()
    if (missing := _not_all_there(view)) is not None:
        return missing
    assert view.state is not None
    return _replace(_first(outdated, view.state), view, view.state, left=len(outdated))


def _outdated_and_broken(view: View) -> Step | None:
    if not view.settled:
        return None
    unmade = roles_unmade(view.pods, view.current)
    for pod in view.pods:
        if (
            pod.outdated
            and not pod.ready
            and not pod.deleting
            and not doubtful(pod, view.pods, unmade, view.over_quota)
        ):
            return DeletePod(
                reason="Upgrading",
                message=f"{pod.name} is not ready and has old settings: it is replaced at once",
                pod=pod.name,
                uid=pod.uid,
            )
    return None


def roles_unmade(pods: Iterable[Pod], wanted: Mapping[Component, int]) -> frozenset[Component]:
    """Those of which there are fewer pods than their StatefulSets want."""
    made = Counter(pod.component for pod in pods)
    return frozenset(role for role, count in wanted.items() if made[role] < count)


def doubtful(pod: Pod, pods: Iterable[Pod], unmade: Set[Component], over_quota: Set[Component]) -> bool:
    """Whether the newest settings may be what breaks nodes, so that this one, which starts by itself with its own, had
    better keep them.

    Where others of a role work with them, they are not what keeps one from being started, or made (`unmade`: roles of
    which there are fewer pods than there are to be, as a quota or a webhook refuses some). Nor are they why one has no
    room, on a machine or by a quota (`over_quota`), where this pod's successor needs no other than it has.
    """
    before = ROLES[: ROLES.index(pod.component) + 1]
    newest = [one for one in pods if not one.outdated and one.component in before]
    work = {one.component for one in newest if one.ready}
    broken = [one for one in newest if not one.ready]
    missing = [role for role in before if role in unmade and role not in work]
    if any(one.restarts for one in broken) or any(role not in over_quota or not pod.same_room for role in missing):
        return True
    return any(one.held_back or (one.without_room and not pod.same_room) for one in broken if one.component not in work)


def _drained_in_vain(view: View) -> Step | None:
    """A marked broker that is back, is wanted after all, or is gone."""
    if view.state is None:
        return None
    pods = {pod.node_id: pod for pod in view.pods if pod.component == "broker"}
    for node_id in sorted(view.marked):
        pod, node = pods.get(node_id), view.state.nodes.get(node_id)
        ordinal = node_id - NODE_IDS_FROM["broker"]
        if pod is None and ordinal >= view.current["broker"]:
            return Uncordon(
                reason="Scaling",
                message=f"broker {node_id} is gone: if it comes back it may have partitions",
                node_id=node_id,
            )
        back = pod is not None and pod.ready and not pod.outdated and not pod.deleting and view.settled
        if back and ordinal < view.wanted["broker"] and node is not None and node.alive:
            return Uncordon(
                reason="Upgrading", message=f"broker {node_id} is back: it gets partitions again", node_id=node_id
            )
    return None


def _shrink(view: View) -> Step:
    """Brokers beyond the wanted number are emptied, the highest first, and go together once they are empty."""
    if view.state is None:
        return Wait(reason="Scaling", message=f"brokers are to be drained before they go, and {view.why_no_state}")
    wanted = view.wanted["broker"]
    leaving = range(view.current["broker"] - 1, wanted - 1, -1)
    full: list[Node] = []
    for node_id in (NODE_IDS_FROM["broker"] + ordinal for ordinal in leaving):
        node = view.state.nodes.get(node_id)
        if node is None or not node.alive:
            continue  # its partitions are others' already
        if not _is_drained(node) and not node.draining:
            return Drain(reason="Scaling", message=f"broker {node_id} is drained before it goes", node_id=node_id)
        if not _is_drained(node):
            full.append(node)
    if full:
        left = ", ".join(f"broker {node.node_id} has {node.partitions}" for node in full)
        return Wait(reason="Scaling", message=f"partitions are moving away: {left}")
    return Shrink(reason="Scaling", message=f"the brokers above the first {wanted} are empty and go", replicas=wanted)


def _complete(view: View) -> Step | None:
    """Whether pods are still missing."""
    for role in ROLES:
        ready = sum(pod.ready and not pod.deleting for pod in view.pods if pod.component == role)
        if ready < view.wanted[role]:
            return Wait(reason="Starting", message=f"{ready} of {view.wanted[role]} pods of the {role} role are ready")
    return None


def _not_all_there(view: View) -> Step | None:
    """What has to be there before a node is taken away."""
    if (missing := _complete(view)) is not None:
        return Wait(reason="Upgrading", message=f"before the next one is replaced: {missing.message}")
    if view.state is None:
        return Wait(reason="Upgrading", message=f"nothing is replaced while {view.why_no_state}")
    for pod in view.pods:
        node = view.state.nodes.get(pod.node_id)
        if pod.ordinal < view.wanted[pod.component] and (node is None or not node.alive):
            return Wait(
                reason="Upgrading",
                message=f"nothing is replaced while node {pod.node_id} ({pod.name}) is not alive to the controller",
            )
    if (settling := why_settling(view.pods, view.settle_s)) is not None:
        return Wait(reason="Upgrading", message=f"before the next one is replaced: {settling}")
    if view.state.unowned:
        return Wait(
            reason="Upgrading", message=f"nothing is replaced while {view.state.unowned} partitions have no owner"
        )
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


def _first(outdated: list[Pod], state: ClusterState) -> Pod:
    """Standbys before the leading controller; a broker that is being drained before the others."""

    def order(pod: Pod) -> tuple[int, bool, bool, int]:
        node = state.nodes[pod.node_id]
        return ROLES.index(pod.component), node.leads, not node.cordoned, pod.ordinal

    return min(outdated, key=order)


def _replace(pod: Pod, view: View, state: ClusterState, *, left: int) -> Step:
    more = f"{left} left" if left > 1 else "the last one"
    delete = DeletePod(reason="Upgrading", message=f"{pod.name} is replaced, {more}", pod=pod.name, uid=pod.uid)
    if pod.component != "broker":
        return delete
    node = state.nodes[pod.node_id]
    if not any(one.component == "broker" and one != pod and _takes_partitions(one, view, state) for one in view.pods):
        return delete  # nobody could take its partitions: they wait for the moment that it is away
    if not _is_drained(node) and not node.draining:
        text = f"{pod.name} is drained before it is replaced, {more}"
        mark = not node.cordoned or pod.node_id in view.marked
        return Drain(reason="Upgrading", message=text, node_id=pod.node_id, pod=pod.name, uid=pod.uid, mark=mark)
    if not _is_drained(node):
        return Wait(reason="Upgrading", message=f"{pod.name} is being drained: {node.partitions} partitions are left")
    return delete


def _takes_partitions(pod: Pod, view: View, state: ClusterState) -> bool:
    """Not one that goes, as there are to be fewer: the controller may have forgotten it already."""
    node = state.nodes.get(pod.node_id)
    return (
        node is not None
        and node.alive
        and not node.cordoned
        and not pod.deleting
        and pod.ordinal < view.wanted["broker"]
    )


def _is_drained(node: Node) -> bool:
    """Whether nothing is on it, and nothing will be."""
    return node.cordoned and not node.partitions and not node.moving
