"""A Cluster's status from what was found. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.drained import IN_USE
from bmq_operator.clusters.names import ADMIN_PORT, KAFKA_PORT, ROLES, Component, Names, selector_of
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.pods import split_image
from bmq_operator.clusters.troubles import STORE_REASONS
from bmq_operator.clusters.upgrade import Idle, Step, Wait
from bmq_operator.conditions import Finding, condition, first_of, next_conditions
from bmq_resources.cluster import Cluster, ClusterStatus, ListenerStatus, RoleStatus, StoreUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one look found."""

    pods: tuple[Pod, ...] = ()
    wanted: Mapping[Component, int] = field(default_factory=dict)
    answer: Answer = Answer()
    step: Step = Idle()
    of_base: Step = Idle()
    """The base's own, where `step` may be about a lane."""
    lanes: RoleStatus = RoleStatus()
    trouble: Finding | None = None
    """What keeps pods from being ready."""
    obstacle: Finding | None = None
    """Why the Cluster cannot be as its spec says."""
    refused: str = ""
    """Services that the API server refuses."""
    taken: str = ""
    """A listener's Service whose name is somebody else's."""
    held: Sequence[str] = ()
    """What would be changed if the Cluster were not paused, in words."""
    listeners: Sequence[ListenerStatus] = ()
    ran_over: str = ""
    """The store of its nodes."""
    store_use: StoreUse = ""
    notes: Sequence[Finding] = ()
    """What else is worth a condition."""


def report(cluster: Cluster, found: Found, *, now_ms: int) -> ClusterStatus:
    """The whole status."""
    names = Names.of(cluster)
    store = _store(cluster, found)
    findings = [_ready(cluster, found, store), _progressing(cluster, found), store, *found.notes]
    brokers = selector_of(names.cluster, "broker")
    return ClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=next_conditions(
            cluster.status.conditions, findings, generation=cluster.metadata.generation, now_ms=now_ms
        ),
        cluster_id=cluster.cluster_id,
        store=cluster.status.store or found.ran_over,
        store_use=found.store_use,
        version=_version(found.pods) or cluster.status.version,
        bootstrap_servers=f"{names.host(names.bootstrap)}:{KAFKA_PORT}",
        admin_url=f"http://{names.host(names.admin)}:{ADMIN_PORT}",
        listeners=list(found.listeners),
        selector=",".join(f"{key}={value}" for key, value in brokers.items()),
    ).model_copy(update=counts(found))


def counts(found: Found) -> dict[str, RoleStatus]:
    """The fields of a status that say how many nodes there are."""
    return {
        "controllers": _role(found, "controller"),
        "brokers": _role(found, "broker"),
        "proxies": _role(found, "proxy"),
        "lanes": found.lanes,
    }


def _ready(cluster: Cluster, found: Found, store: Finding) -> Finding:
    if found.obstacle is not None:
        return found.obstacle
    if found.taken:
        rest = "" if cluster.spec.paused else ". What else there is to do is done"
        return Finding(status="False", reason="NameTaken", message=f"{found.taken}{rest}")
    if found.refused:
        text = f"the API server refuses {found.refused}; what else there is to do is done. It is tried again"
        return Finding(status="False", reason="Refused", message=text)
    without_store = replace(store, type="Ready") if store.status == "False" else None
    missing = [text for role in ROLES if (text := _missing(found, role))]
    if missing:
        return (
            found.trouble
            or without_store
            or Finding(status="False", reason="PodsNotReady", message=f"waiting for pods: {', '.join(missing)}")
        )
    if found.answer.finding is not None:
        return without_store or found.answer.finding
    state = found.answer.state
    if state is None:
        return Finding(status="Unknown", reason="NotAsked", message="no controller has been asked yet")
    if not state.store_ok:
        return Finding(
            status="False",
            reason="StoreUnavailable",
            message=f"the store does not answer as it should: {state.store_detail}",
        )
    absent = [pod.name for pod in found.pods if pod.ordinal < found.wanted[pod.component] and not _alive(found, pod)]
    # Of fewer proxies, or controllers, those that work may be enough, and one that does not holds them up.
    why = f": {found.trouble.message}" if found.trouble is not None and found.of_base.reason == "Scaling" else ""
    if absent:
        waits = f"; {found.of_base.message}{why}" if isinstance(found.of_base, Wait) else ""
        text = f"not alive to the leading controller: {', '.join(absent)}{waits}"
        return Finding(status="False", reason="NodesMissing", message=text)
    if not isinstance(found.of_base, Idle):
        held = "spec.paused is true, and there is something to do: " if cluster.spec.paused else ""
        return Finding(
            status="False",
            reason="Paused" if held else found.of_base.reason,
            message=f"{held}{found.of_base.message}{why}",
        )
    if found.held:
        text = f"spec.paused is true, and there is something to do: {first_of(found.held)}"
        return Finding(status="False", reason="Paused", message=text)
    if state.unowned:
        text = f"{state.unowned} partitions have no owner: nobody reads or writes them until a broker takes them. "
        text += "Where the newest settings keep the brokers from it (BMQ_POOL), correct them: what has them is replaced"
        return Finding(status="False", reason="PartitionsUnowned", message=text)
    also = "".join(f"; {note.message}" for note in found.notes if note.type in ("KeysAsWritten", IN_USE))
    if state.unowned_of_lanes:
        also += f"; {state.unowned_of_lanes} partitions wait for brokers of their lane's own"
    return Finding(
        status="True", reason="Ready", message=f"a controller leads, all pods are ready, the store answers{also}"
    )


def _progressing(cluster: Cluster, found: Found) -> Finding:
    if cluster.spec.paused:
        return Finding(
            type="Progressing", status="False", reason="Paused", message="nothing is changed while spec.paused is true"
        )
    if found.obstacle is not None:
        return Finding(
            type="Progressing",
            status="False",
            reason=found.obstacle.reason,
            message="nothing is changed until this is corrected",
        )
    done = isinstance(found.step, Idle)
    return Finding(
        type="Progressing", status="False" if done else "True", reason=found.step.reason, message=found.step.message
    )


def _store(cluster: Cluster, found: Found) -> Finding:
    """What was wrong with it is so until somebody says otherwise: without a store nodes end, and nobody may be left to
    ask.
    """
    state = found.answer.state
    if state is not None and state.store_ok:
        return Finding(
            type="StoreAvailable", status="True", reason="Answers", message="a controller reads from the store"
        )
    if state is not None:
        return Finding(type="StoreAvailable", status="False", reason="StoreUnavailable", message=state.store_detail)
    if found.trouble is not None and found.trouble.reason in STORE_REASONS:
        return Finding(
            type="StoreAvailable", status="False", reason=found.trouble.reason, message=found.trouble.message
        )
    if found.answer.store_trouble:
        return Finding(
            type="StoreAvailable", status="False", reason="StoreUnavailable", message=found.answer.store_trouble
        )
    before = condition(cluster.status.conditions, "StoreAvailable")
    if before is not None and before.status == "False":
        return Finding(type="StoreAvailable", status="False", reason=before.reason, message=before.message)
    return Finding(
        type="StoreAvailable", status="Unknown", reason="NotAsked", message="no controller answers that could be asked"
    )


def _missing(found: Found, role: Component) -> str:
    wanted = found.wanted.get(role, 0)
    ready = _count(found, role, lambda pod: pod.ready)
    return f"{role} {ready} of {wanted} ready" if ready < wanted else ""


def _alive(found: Found, pod: Pod) -> bool:
    state = found.answer.state
    return state is not None and (node := state.nodes.get(pod.node_id)) is not None and node.alive


def _role(found: Found, role: Component) -> RoleStatus:
    return RoleStatus(
        desired=found.wanted.get(role, 0),
        replicas=sum(pod.component == role for pod in found.pods),
        ready=_count(found, role, lambda pod: pod.ready),
        updated=_count(found, role, lambda pod: not pod.outdated),
    )


def _count(found: Found, role: Component, counts: Callable[[Pod], bool]) -> int:
    return sum(pod.component == role and not pod.deleting and counts(pod) for pod in found.pods)


def _version(pods: Iterable[Pod]) -> str:
    """The tag that all of them run, without its digest; empty while they differ."""
    tags = {split_image(pod.image)[1].partition("@")[0] for pod in pods}
    return tags.pop() if len(tags) == 1 else ""
