"""Fewer controllers or proxies, or nodes of a lane: how many may go now. Kubernetes takes those with the highest
numbers away, whoever works. Pure.

- While one that would stay does not work, or has yet to work for a while, none goes that does: those that are left may
  be nobody. What does not work goes at once.
- Where all that keeps those that stay from working is that there is no room for them, and others work, those that go
  make room, one after the other: all but the last one that works.
- One that the newest settings broke stays while others have yet to get these: nothing else tells that they had better
  not.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from bmq_operator.clusters.doubt import doubtful, roles_unmade
from bmq_operator.clusters.names import Component
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.whole import settling_s
from bmq_operator.conditions import first_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """`replicas`: how many of a role there are to be now; `why`: what keeps more of them from going, empty: nothing."""

    replicas: int
    why: str = ""


def fewer(
    pods: Sequence[Pod],
    component: Component,
    *,
    wanted: int,
    current: int,
    over_quota: Set[Component] = frozenset(),
    settle_s: float = 0,
) -> Fewer:
    """`pods` are those of all roles, of the base or of one lane; `current`: how many of this one there are to be so
    far; `over_quota`: roles of which a quota has no room for more; `settle_s`: how long a node has to work before it is
    relied on."""
    own = {pod.ordinal: pod for pod in pods if pod.component == component}
    if wanted == 0 or not own:
        return Fewer(replicas=wanted)
    if (why := _why_a_witness(pods, component, wanted=wanted, current=current, over_quota=over_quota)) is not None:
        return Fewer(replicas=current, why=why)
    working = {ordinal for ordinal, pod in own.items() if _works(pod)}
    idle = [ordinal for ordinal in range(wanted) if ordinal not in working]
    kept = max(wanted, 1 + max(working, default=-1))
    why = _why_not_relied_on(own, idle, wanted=wanted, settle_s=settle_s)
    if not why or kept == wanted:
        return Fewer(replicas=wanted)
    kept = min(kept, current)  # there may be more yet, which are on their way out
    leaves = any(ordinal >= kept for ordinal in own)
    some_work = len(idle) < wanted or len(working) > 1
    for_room = bool(idle) and some_work and all(_lacks_room(own.get(one), component, over_quota) for one in idle)
    return Fewer(replicas=kept - 1 if for_room and not leaves else kept, why=why)


def _why_a_witness(
    pods: Sequence[Pod], component: Component, *, wanted: int, current: int, over_quota: Set[Component]
) -> str | None:
    """Why one that would go is kept though it does not work: without it the newest settings would be given to another
    one. That there is no room for it says nothing of them."""
    staying = [pod for pod in pods if pod.component != component or pod.ordinal < wanted]
    own = [pod for pod in staying if pod.component == component]
    if any(not pod.outdated and _works(pod) for pod in own):
        return None
    unmade = roles_unmade(pods, {component: current}) - over_quota
    unmade_of_staying = roles_unmade(staying, {component: wanted}) - over_quota
    with_room, staying_with_room = _with_room(pods), _with_room(staying)
    # As room says nothing, it is the same for all of a role.
    next_ones = {pod.component: pod for pod in reversed(staying) if pod.outdated and not pod.deleting}
    for pod in reversed(next_ones.values()):
        if doubtful(pod, with_room, unmade, frozenset()) and not doubtful(
            pod, staying_with_room, unmade_of_staying, frozenset()
        ):
            name = _witness(pods, component, wanted=wanted, current=current)
            return (
                f"{name}, which would go, does not work with the newest settings, and {pod.name}, which stays, has yet "
                f"to get them: correct them, or delete the pod {pod.name}, so that they are tried there"
            )
    return None


def _witness(pods: Iterable[Pod], component: Component, *, wanted: int, current: int) -> str:
    own = {pod.ordinal: pod for pod in pods if pod.component == component}
    for ordinal in range(wanted, current):
        there = own.get(ordinal)
        if there is None or not (there.ready or there.outdated):
            return _name(own, ordinal)
    return _name(own, current - 1)


def _why_not_relied_on(own: Mapping[int, Pod], idle: Sequence[int], *, wanted: int, settle_s: float) -> str:
    """Empty: those that stay do all work, and have for a while."""
    if idle:
        names = first_of([_name(own, ordinal) for ordinal in idle])
        return f"{names}, which would stay, {'is' if len(idle) == 1 else 'are'} not ready"
    for pod in (own[ordinal] for ordinal in range(wanted)):
        if pod.worked_s < (needed_s := settling_s(pod, settle_s)):
            return f"{pod.name}, which would stay, is to work for {needed_s:g} s first"
    return ""


def _lacks_room(pod: Pod | None, component: Component, over_quota: Set[Component]) -> bool:
    return component in over_quota if pod is None else pod.without_room


def _name(own: Mapping[int, Pod], ordinal: int) -> str:
    return f"{next(iter(own.values())).name.rpartition('-')[0]}-{ordinal}"


def _with_room(pods: Iterable[Pod]) -> list[Pod]:
    return [replace(pod, without_room=False) for pod in pods]


def _works(pod: Pod) -> bool:
    return pod.ready and not pod.deleting
