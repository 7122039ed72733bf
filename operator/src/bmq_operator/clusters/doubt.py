"""Whether the newest settings may be what breaks nodes. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from bmq_operator.clusters.names import ROLES, Component
from bmq_operator.clusters.nodes import Pod


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
