"""What to do next to the nodes of lanes, which go by the same rules as the base's: one at a time, and only once the
base is done. Pure.

A lane's brokers hand their partitions over when they are told to stop, and what they do concerns the lane alone: they
are not drained before.

As of the base, settings that break nodes break one: the next one waits until the one before works, for ever where it
never does. Two things go on after `PATIENCE_S` without it. Settings that work on another node of that role in the lane
are not what is wrong. And what has old keys is replaced even where it is the last that works: a Lane's author may be
none of those who rotate the keys, the old key counts in the whole Cluster for as long as one node has it, and a lane
without a node that works is that lane's loss alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bmq_operator.clusters.doubt import doubtful
from bmq_operator.clusters.names import Component
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.upgrade import DeletePod, Idle, Step, Wait
from bmq_operator.clusters.whole import SETTLE_S_MAX, settling_s, why_settling
from bmq_resources.cluster import RoleStatus

PATIENCE_S: Final = SETTLE_S_MAX
"""How long a lane's next node waits for the one before, at the longest, where it does not have to: autoscalers bring
machines, and those pull images, within minutes, and no node is given longer to prove itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneNodes:
    """The nodes of one lane. `wanted`: how many its StatefulSets want; `settled`: whether Kubernetes has seen their
    newest templates; `waited_s`: for how long the same pods have been left to be replaced; `unmade`: roles of which
    there are fewer pods than they want; `over_quota`: those of them of which a quota has no room for more.
    """

    lane: str
    pods: tuple[Pod, ...]
    wanted: int
    settled: bool
    waited_s: float = 0
    unmade: frozenset[Component] = frozenset()
    over_quota: frozenset[Component] = frozenset()

    @property
    def left(self) -> frozenset[str]:
        """Pods to be replaced, by uid: those with old keys alone where there are any, as a Lane's author may change the
        settings of all again and again."""
        outdated = [pod for pod in self.pods if pod.outdated and not pod.deleting]
        return frozenset(pod.uid for pod in ([pod for pod in outdated if pod.old_keys] or outdated))


def next_lane_step(lanes: Mapping[str, LaneNodes], *, settle_s: float) -> Step:
    """The next one. A lane that cannot go on does not keep others from it."""
    steps = [step for one in lanes.values() if not isinstance(step := _of(one, settle_s=settle_s), Idle)]
    return next((step for step in steps if isinstance(step, DeletePod)), steps[0] if steps else Idle())


def lanes_status(lanes: Mapping[str, LaneNodes]) -> RoleStatus:
    """All of them together."""
    pods = [pod for one in lanes.values() for pod in one.pods]
    return RoleStatus(
        desired=sum(one.wanted for one in lanes.values()),
        replicas=len(pods),
        ready=sum(pod.ready and not pod.deleting for pod in pods),
        updated=sum(not pod.outdated and not pod.deleting for pod in pods),
    )


def _of(nodes: LaneNodes, *, settle_s: float) -> Step:
    outdated = [pod for pod in nodes.pods if pod.outdated and not pod.deleting]
    if not outdated:
        return Idle()
    where = f"lane {nodes.lane}"
    if not nodes.settled:
        return Wait(reason="Updating", message=f"{where}: Kubernetes has yet to see the newest settings")
    broken = next(
        (pod for pod in outdated if not pod.ready and not doubtful(pod, nodes.pods, nodes.unmade, nodes.over_quota)),
        None,
    )
    if broken is not None:
        return DeletePod(
            reason="Upgrading",
            message=f"{where}: {broken.name} is not ready and has old settings: it is replaced at once",
            pod=broken.name,
            uid=broken.uid,
        )
    why_not_yet = _why_not_yet(nodes, settle_s)
    if why_not_yet is None:
        text = f"{where}: {outdated[0].name} is replaced, {len(outdated) - 1} left after it"
        return DeletePod(reason="Upgrading", message=text, pod=outdated[0].name, uid=outdated[0].uid)
    patience_s = PATIENCE_S + settle_s
    found = _all_the_same(nodes, outdated, settle_s)
    if found is None:
        return Wait(reason="Upgrading", message=f"{where}: before the next one is replaced: {why_not_yet}")
    pod, why = found
    if nodes.waited_s < patience_s:
        text = f"{why_not_yet}. After {patience_s:g} s {pod.name} is replaced all the same, as {why}"
        return Wait(reason="Upgrading", message=f"{where}: before the next one is replaced: {text}")
    text = f"{where}: {pod.name} is replaced all the same, as {why}, though for {nodes.waited_s:g} s {why_not_yet}"
    return DeletePod(reason="Upgrading", message=text, pod=pod.name, uid=pod.uid)


def _why_not_yet(nodes: LaneNodes, settle_s: float) -> str | None:
    ready = sum(pod.ready and not pod.deleting for pod in nodes.pods)
    if ready < nodes.wanted:
        return f"{ready} of {nodes.wanted} pods are ready"
    return why_settling(nodes.pods, settle_s)


def _all_the_same(nodes: LaneNodes, outdated: list[Pod], settle_s: float) -> tuple[Pod, str] | None:
    """Which of the outdated pods goes first where the others never work, and why it may; None: none may. What serves
    nobody goes first.
    """
    proven = {
        pod.component
        for pod in nodes.pods
        if pod.ready and not pod.outdated and not pod.deleting and pod.worked_s >= settling_s(pod, settle_s)
    }
    outdated = sorted(outdated, key=lambda pod: pod.ready)
    for pod in outdated:
        if pod.component in proven:
            return pod, f"the newest settings work on another {pod.component} of the lane"
    for pod in outdated:
        if pod.old_keys:
            return pod, "it has old keys, which count until then"
    return None
