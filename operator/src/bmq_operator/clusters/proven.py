"""Which settings a Cluster was whole with, and which nodes are replaced although it is not: those with settings that
were never seen to work and are not wanted any more. Pure.

Settings can break a cluster without a pod that looks broken: brokers in a pool that no topic is in, a controller that
listens where nobody reaches it. Whoever corrects them has the nodes that got them replaced, the youngest first and one
at a time, though the cluster is not whole: it would never be, else. Nodes with settings that it was whole with keep
them until it is again. A restart copies no data and loses nothing acknowledged.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from bmq_operator.clusters.doubt import doubtful, roles_unmade
from bmq_operator.clusters.names import ROLES
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.whole import SETTLE_S_MAX, Lack, View, settling_s, why_not_whole

PROVEN: Final = "bmq.io/whole-with"
PATIENCE_SETTLES: Final = 3
PATIENCE_S_MIN: Final = 10.0
"""A controller that takes over, and nodes that register anew, are a matter of seconds, whatever settleSeconds says."""
_TEXT_MAX: Final = 4_000


def noted(annotations: Mapping[str, str]) -> frozenset[str] | None:
    """What `text_of` wrote; None: nothing did."""
    text = annotations.get(PROVEN)
    return None if text is None else frozenset(one for one in text[:_TEXT_MAX].split(",") if one)


def text_of(proven: frozenset[str]) -> str:
    """As a Cluster's annotation."""
    return ",".join(sorted(proven))


def to_note(view: View) -> frozenset[str] | None:
    """The revisions to be noted as proven; None: those are noted that are to be.

    Settings are proven once all nodes of a role have them and the cluster is whole: as long as some have older ones,
    these may be what keeps it so. Where nothing was noted yet, whatever runs in a whole cluster is proven, and where it
    is not whole, and nothing is to be replaced, nothing is.
    """
    if not view.settled or len(view.newest) < len(ROLES):
        return None
    running = frozenset((pod.component, pod.revision) for pod in view.pods)
    now = view.proven
    if why_not_whole(view) is None:
        if view.proven is None or len(running) == len(ROLES):
            now = frozenset(revision for _, revision in running)
    elif view.proven is None and not any(pod.outdated for pod in view.pods):
        now = frozenset()
    return None if now == view.proven else now


def waited_for(view: View) -> frozenset[str]:
    """By uid, the pods that it is the same cluster with: that is not whole for as long as these are there. Empty: it is
    whole. Others may come and go, as an autoscaler's proxies do.
    """
    if why_not_whole(view) is None:
        return frozenset()
    return frozenset(pod.uid for pod in view.pods if not pod.deleting and (pod.outdated or pod.component != "proxy"))


def is_proven(pod: Pod, view: View) -> bool:
    """Whether the cluster was whole with the settings that it has, or may have been, as nobody noted it."""
    return view.proven is None or pod.revision in view.proven


def first_suspect(outdated: Sequence[Pod], view: View) -> Pod | None:
    """The youngest of those that are replaced although the cluster is not whole; None: none is."""
    found = [pod for pod in outdated if pod.ready and not pod.deleting and not is_proven(pod, view)]
    return max(found, key=lambda pod: (pod.made_ms, pod.ordinal), default=None)


def patience_s(lack: Lack, settle_s: float) -> float:
    """For how long a cluster is to have been not whole before such a one is replaced: machines that come and images
    that are pulled take minutes.
    """
    if lack.passes:
        return SETTLE_S_MAX + settle_s
    return min(SETTLE_S_MAX, max(PATIENCE_S_MIN, PATIENCE_SETTLES * settle_s))


def newest_in_doubt(pod: Pod, view: View) -> bool:
    """Whether the newest settings may break nodes themselves, so that not even this one gets them. What the cluster was
    whole with does not.
    """
    before = ROLES[: ROLES.index(pod.component) + 1]
    if view.proven is not None and all(view.newest.get(role) in view.proven for role in before):
        return False
    ended = any(
        one.restarts and one.worked_s < settling_s(one, view.settle_s)
        for one in view.pods
        if not one.outdated and one.component in before
    )
    return ended or doubtful(pod, view.pods, roles_unmade(view.pods, view.current), view.over_quota)
