"""What to do next to running nodes: roll out a change, drain brokers before they go, take them back into use. Pure; one
step at a time.

- A node that is outdated and not ready is replaced at once: it serves nobody.
- Where a node with the newest settings has ended already, or cannot be made or started, they are not given to others of
  its role, or of one that is replaced later, though those are broken: the settings may be what breaks them.
- Otherwise nothing is taken away unless everything else is there: all pods ready, a leading controller that answers,
  all nodes alive, all partitions owned, and what was replaced before has worked for a while. Controllers first, the
  leading one last of them; then brokers, each drained before; then proxies.
- But nodes with settings that the cluster was never whole with are replaced although it is not, once that was so for a
  while: see `proven`.
- Fewer controllers and proxies there are only once those that stay work: see `fewer`.
- What the operator drained it notes (`marked`), so that it uncordons that and nothing that somebody else cordoned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bmq_operator.clusters.doubt import doubtful, roles_unmade
from bmq_operator.clusters.fewer import fewer
from bmq_operator.clusters.names import NODE_IDS_FROM, ROLES, Component
from bmq_operator.clusters.nodes import ClusterState, Node, Pod
from bmq_operator.clusters.proven import first_suspect, is_proven, newest_in_doubt, patience_s
from bmq_operator.clusters.whole import Lack, View, why_incomplete, why_not_whole

_NOUNS: Final[tuple[tuple[Component, str], ...]] = (("controller", "controllers"), ("proxy", "proxies"))


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
    """Move a broker's partitions to others, as its `pod` is to be replaced; empty: as the broker goes."""

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
    """Let those at the end go: brokers that are drained, controllers or proxies that are not needed."""

    replicas: int
    component: Component = "broker"


def next_step(view: View) -> Step:
    """The next step. Taken again and again, this ends in Idle."""
    if (broken := _outdated_and_broken(view)) is not None:
        return broken
    if (unused := _drained_in_vain(view)) is not None:
        return unused
    outdated = _outdated(view)
    lack = why_not_whole(view)
    if view.current["broker"] > view.wanted["broker"]:
        step = _shrink(view)
        if isinstance(step, Wait) and view.settled and isinstance(others := _fewer(view), Shrink):
            return others  # which may be what makes the room that is waited for
        waits = isinstance(step, Wait) and view.settled and lack is not None
        return _suspect(outdated, view, lack) or step if waits and lack is not None else step
    if not view.settled:
        return Wait(reason="Updating", message="Kubernetes has yet to see the newest settings")
    if (step_down := _fewer(view)) is not None:
        waits = isinstance(step_down, Wait) and lack is not None
        return _suspect(outdated, view, lack) or step_down if waits and lack is not None else step_down
    if not outdated:
        missing = why_incomplete(view)
        return Idle() if missing is None else Wait(reason="Starting", message=missing)
    if lack is not None:
        return _suspect(outdated, view, lack) or _left_alone(outdated, view, lack)
    assert view.state is not None
    return _replace(_first(outdated, view), view, view.state, left=len(outdated))


def _outdated_and_broken(view: View) -> Step | None:
    if not view.settled:
        return None
    unmade = roles_unmade(view.pods, view.current)
    for pod in view.pods:
        if (
            pod.outdated
            and not pod.ready
            and not pod.deleting
            and _stays(pod, view)
            and not doubtful(pod, view.pods, unmade, view.over_quota)
        ):
            return DeletePod(
                reason="Upgrading",
                message=f"{pod.name} is not ready and has old settings: it is replaced at once",
                pod=pod.name,
                uid=pod.uid,
            )
    return None


def _stays(pod: Pod, view: View) -> bool:
    """Others go as they are, for which they need not work: with the newest settings they would be looked at for what
    these do. A broker has to work to be drained."""
    return pod.component == "broker" or pod.ordinal < view.wanted[pod.component]


def _drained_in_vain(view: View) -> Step | None:
    """A marked broker that is back, is wanted after all, or is gone; or that is to be replaced once more, and something
    else comes before that, or keeps it from that for longer than a while: it may be long, and have to be its
    partitions' heir.
    """
    if view.state is None:
        return None
    next_pod = _replaced_next(view)
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
        back = pod is not None and pod.ready and pod != next_pod and not pod.deleting and view.settled
        if pod is not None and back and ordinal < view.wanted["broker"] and node is not None and node.alive:
            why = "is not replaced next" if pod.outdated else "is back"
            return Uncordon(
                reason="Upgrading", message=f"broker {node_id} {why}: it gets partitions again", node_id=node_id
            )
    return None


def _replaced_next(view: View) -> Pod | None:
    """Whose turn it is to be replaced; None: nobody's, as none is outdated, or brokers are to leave before, or the
    cluster has not been whole for a while.
    """
    outdated = _outdated(view)
    if not outdated or view.current["broker"] > view.wanted["broker"]:
        return None
    lack = why_not_whole(view)
    if lack is not None and view.waited_s >= patience_s(lack, view.settle_s):
        return first_suspect(outdated, view)
    return None if isinstance(_fewer(view), Wait) else _first(outdated, view)


def _outdated(view: View) -> list[Pod]:
    return [pod for pod in view.pods if pod.outdated and pod.ordinal < view.wanted[pod.component]]


def _shrink(view: View) -> Step:
    """Brokers beyond the wanted number are drained, the highest first, and go together once they are empty."""
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
            if node.partitions and (why := _why_no_heir(view, view.state)) is not None:
                return Wait(reason="Scaling", message=f"broker {node_id} cannot be drained, as {why}")
            return Drain(reason="Scaling", message=f"broker {node_id} is drained before it goes", node_id=node_id)
        if not _is_drained(node):
            full.append(node)
    if full:
        left = ", ".join(f"broker {node.node_id} has {node.partitions}" for node in full)
        return Wait(reason="Scaling", message=f"partitions are moving away: {left}")
    return Shrink(reason="Scaling", message=f"the brokers above the first {wanted} are empty and go", replicas=wanted)


def _fewer(view: View) -> Step | None:
    """Controllers and proxies beyond the wanted number go as far as they may, those of one role at a time; None: there
    are none of either."""
    waits: Step | None = None
    for role, noun in _NOUNS:
        wanted, current = view.wanted[role], view.current[role]
        if current > wanted:
            found = fewer(
                view.pods,
                role,
                wanted=wanted,
                current=current,
                over_quota=view.over_quota,
                settle_s=view.settle_s,
            )
            if found.replicas < current:
                text = f"the {noun} above the first {found.replicas} go"
                return Shrink(reason="Scaling", message=text, replicas=found.replicas, component=role)
            waits = waits or Wait(reason="Scaling", message=found.why)
    return waits


def _why_no_heir(view: View, state: ClusterState) -> str | None:
    """Why none of the brokers that stay takes partitions of those that go; None: one does."""
    staying = [pod for pod in view.pods if pod.component == "broker" and pod.ordinal < view.wanted["broker"]]
    if any(_takes_partitions(pod, view, state) for pod in staying):
        return None
    theirs = [pod for pod in staying if pod.node_id in state.nodes and pod.node_id not in view.marked]
    cordoned = [pod.name for pod in theirs if state.nodes[pod.node_id].cordoned]
    remedy = f"take one back into use (kubectl bmq drain {cordoned[0]} --undo), or " if cordoned else ""
    return f"none of the brokers that stay is alive and takes partitions: {remedy}ask for more brokers"


def _suspect(outdated: Sequence[Pod], view: View, lack: Lack) -> Step | None:
    """What becomes of nodes with settings that the cluster was never whole with; None: there are none."""
    pod = first_suspect(outdated, view)
    if pod is None:
        return None
    why = "the cluster was never whole with the settings that it has"
    if newest_in_doubt(pod, view):
        text = (
            f"{lack.message}. {pod.name} would be next, as {why}, but the newest ones do not work where they are: "
            "correct them"
        )
        return Wait(reason="Upgrading", message=text)
    needed_s = patience_s(lack, view.settle_s)
    if lack.passes and view.waited_s < patience_s(replace(lack, passes=False), view.settle_s):
        return Wait(reason="Upgrading", message=lack.message)  # as in any roll
    if view.waited_s < needed_s:
        text = f"{lack.message}. Once that was so for {needed_s:g} s, {pod.name} is replaced all the same, as {why}"
        return Wait(reason="Upgrading", message=text)
    text = f"{pod.name} is replaced, {_left(len(outdated))}, as {why}, though {lack.text}"
    return DeletePod(reason="Upgrading", message=text, pod=pod.name, uid=pod.uid)


def _left_alone(outdated: Sequence[Pod], view: View, lack: Lack) -> Wait:
    """Those that are left run with settings that worked: what the next one would be, and what helps."""
    if lack.passes:
        return Wait(reason="Upgrading", message=lack.message)
    name = _first(outdated, view).name
    worked = (
        "keeps until then the settings that the cluster was whole with" if view.proven else "is left alone till then"
    )
    text = (
        f"{lack.message}. {name} is next, and {worked}. Mend that first: where the newest settings are to blame, "
        f"correct them, and what has them is replaced. All the same: kubectl delete pod {name}"
    )
    return Wait(reason="Upgrading", message=text)


def _first(outdated: Sequence[Pod], view: View) -> Pod:
    """Which pod of a role is first: a standby before the leading controller; one that never worked before one that did;
    a broker that is being drained before the others, and one in a pool that no topic is in before those that own some:
    it may be the only one that could take theirs once it is where they are.
    """
    nodes = {} if view.state is None else view.state.nodes
    owned = {node.pool for node in nodes.values() if node.partitions}

    def order(pod: Pod) -> tuple[int, bool, bool, bool, bool, int]:
        node = nodes.get(pod.node_id, Node(node_id=pod.node_id, alive=False))
        role, is_of_use = ROLES.index(pod.component), node.pool in owned
        return role, node.leads, is_proven(pod, view), not node.cordoned, is_of_use, pod.ordinal

    return min(outdated, key=order)


def _left(count: int) -> str:
    return f"{count} left" if count > 1 else "the last one"


def _replace(pod: Pod, view: View, state: ClusterState, *, left: int) -> Step:
    more = _left(left)
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
