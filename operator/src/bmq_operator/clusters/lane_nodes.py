"""What to do next to the nodes of lanes, which go by the same rules as the base's: one at a time, and only once the base is done. Pure.

A lane's brokers hand their partitions over when they are told to stop, and what they do concerns the lane alone: they are not drained before.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bmq.resources.cluster import RoleStatus
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.upgrade import DeletePod, Idle, Step, Wait, why_settling


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneNodes:
    """Of one lane. `wanted`: how many its StatefulSets want; `settled`: whether Kubernetes has seen their newest templates."""

    lane: str
    pods: tuple[Pod, ...]
    wanted: int
    settled: bool


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
    doubtful = {pod.component for pod in nodes.pods if not pod.outdated and not pod.ready and pod.restarts}
    broken = next((pod for pod in outdated if not pod.ready and pod.component not in doubtful), None)
    if broken is not None:
        return DeletePod(
            reason="Upgrading",
            message=f"{where}: {broken.name} is not ready and has old settings: it is replaced at once",
            pod=broken.name,
            uid=broken.uid,
        )
    ready = sum(pod.ready and not pod.deleting for pod in nodes.pods)
    if ready < nodes.wanted:
        return Wait(reason="Upgrading", message=f"{where}: before the next one is replaced: {ready} of {nodes.wanted} pods are ready")
    if (settling := why_settling(nodes.pods, settle_s)) is not None:
        return Wait(reason="Upgrading", message=f"{where}: before the next one is replaced: {settling}")
    text = f"{where}: {outdated[0].name} is replaced, {len(outdated) - 1} left after it"
    return DeletePod(reason="Upgrading", message=text, pod=outdated[0].name, uid=outdated[0].uid)
