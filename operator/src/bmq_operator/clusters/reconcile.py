"""Brings what is there to what a Cluster says."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from bmq_operator.clusters.asking import Answer, ask
from bmq_operator.clusters.deletion import (
    AGAIN_S,
    WAITING_AGAIN_S,
    delete,
    end_nodes,
    nodes_gone,
    serves_on,
    store_ran_over,
)
from bmq_operator.clusters.desired import desired, owned
from bmq_operator.clusters.doubt import roles_unmade
from bmq_operator.clusters.drained import back_in_use, unused_note, why_left
from bmq_operator.clusters.existing import (
    Done,
    Existing,
    ObjectTaken,
    bring_about,
    listener_of,
    make,
    owner_of,
    read_existing,
    untaken,
)
from bmq_operator.clusters.gathering import gather, is_ipv6
from bmq_operator.clusters.halted import take_back
from bmq_operator.clusters.lane_nodes import LaneNodes, lanes_status, next_lane_step
from bmq_operator.clusters.lane_objects import delete_without_lane, keys_to_lanes
from bmq_operator.clusters.lane_room import left_out_note
from bmq_operator.clusters.listeners import addresses_note, advertised_file, listener_statuses, node_address
from bmq_operator.clusters.minio import volume_note
from bmq_operator.clusters.names import ADVERTISED_HASH, COMPONENT_LABEL, LANE_LABEL, ROLES, Component, Names
from bmq_operator.clusters.node_ports import in_the_way
from bmq_operator.clusters.nodes import (
    Pod,
    by_own_clock,
    is_ready,
    lanes_seen,
    newest_revision,
    pods_seen,
    replicas,
    settled,
)
from bmq_operator.clusters.probe import COMPONENT as PROBE
from bmq_operator.clusters.proven import noted, to_note, waited_for
from bmq_operator.clusters.refused import NotToBe
from bmq_operator.clusters.report import Found, counts, report
from bmq_operator.clusters.rolled import replace_stuck
from bmq_operator.clusters.rotation import halted, nodes_behind, of_nobody, replacing
from bmq_operator.clusters.services import nodes_service, of_going
from bmq_operator.clusters.steps import marked, note_proven, taken
from bmq_operator.clusters.stores import SHARED, gives_way, has_not_begun, use_of_store
from bmq_operator.clusters.troubles import trouble
from bmq_operator.clusters.unmade import over_quota, probe_note, refused
from bmq_operator.clusters.upgrade import Idle, Step, Wait, next_step
from bmq_operator.clusters.volume import claim_of_minio, keep_volume
from bmq_operator.clusters.whole import View
from bmq_operator.clusters.workloads import scaling_note
from bmq_operator.conditions import Finding, next_conditions, pace_s
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, Manifest
from bmq_operator.outcome import Event, Outcome
from bmq_resources.base import Condition
from bmq_resources.cluster import Cluster

UNREADY_AGAIN_S = 5.0
UNREADY_AGAIN_MOST_S = 30.0
"""Where nothing is under way and Ready is not True: at first, and once it has been so for minutes."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Whether objects were changed, why they cannot be, and what is worth a condition."""

    changed: bool = False
    obstacle: Finding | None = None
    note: Finding | None = None
    refused: str = ""
    """Services that the API server refuses; the rest is done."""
    taken: str = ""
    """A listener's Service whose name is somebody else's; the rest is done."""
    held: Sequence[str] = ()
    """What would be changed if the Cluster were not paused, in words."""


def holds(cluster: Cluster) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then."""
    return cluster.spec.deletion_policy == "Delete"


async def reconcile(context: Context, cluster: Cluster) -> Outcome:
    """Looks at the cluster once, takes the next step, and says what is the case. Raises KubeError."""
    await keep_volume(context, cluster)
    existing = await read_existing(context.kube, cluster)
    if cluster.metadata.deletion_timestamp is not None:
        return await _ending(context, cluster, existing)
    nodes = await _node_addresses(context, cluster)
    brought = await _bring_about(context, cluster, existing, nodes)
    if brought.changed:
        del existing  # both would be held while it is read
        existing = await read_existing(context.kube, cluster)
    sets = existing.stateful_sets()
    now_ms = context.clock.now_ms()
    pods = by_own_clock(pods_seen(existing.pods, sets, now_ms=now_ms), context.known.waits, now_ms=now_ms)
    answer = await ask(context, cluster, pods)
    over = await _over_quota(context, pods, sets, wanted=_wanted(cluster, sets))
    view = _view(cluster, sets, answer, pods, over_quota=over)
    proving = view is not None and await _note_proven(context, cluster, view, obstacle=brought.obstacle)
    lanes = await _lanes(context, existing, now_ms=now_ms)
    of_base: Step = Idle()
    if brought.obstacle is None:
        of_base = Wait(reason="Starting", message="the nodes are yet to be made")
        if view is not None:
            lasts = context.known.waits.waited_s(cluster.metadata.uid, "", waited_for(view), now_ms=now_ms)
            of_base = next_step(replace(view, waited_s=lasts))
    elif (back := back_in_use(pods, answer.state, marked(cluster, sets.get("broker")))) is not None:
        of_base = back
    step = of_base
    if brought.obstacle is None and isinstance(of_base, Idle):
        lanes = _with_waits(context, cluster, lanes, now_ms=now_ms)
        step = next_lane_step(lanes, settle_s=settle_s(cluster))
    claim = await claim_of_minio(context, cluster)
    events: tuple[Event, ...] = ()
    if not cluster.spec.paused and not isinstance(step, Idle | Wait):
        _log.info(
            "a step",
            cluster=f"{cluster.metadata.namespace}/{cluster.metadata.name}",
            step=type(step).__name__,
            why=step.message,
        )
        done = await taken(context, cluster, sets.get("broker"), step)
        step, of_base = done, done if step is of_base else of_base
        events = () if isinstance(step, Wait) else (Event(reason=type(step).__name__, message=step.message),)
    autoscaler = existing.get("HorizontalPodAutoscaler", Names.of(cluster).role("proxy"))
    notes = (
        brought.note,
        volume_note(cluster, sets.get("minio"), claim),
        of_nobody(existing),
        left_out_note(existing.left_out, existing.objects),
        scaling_note(cluster, autoscaler, now_ms=now_ms),
        addresses_note(cluster, existing, nodes),
        unused_note(
            pods,
            answer,
            marked(cluster, sets.get("broker")),
            left=why_left(step, paused=cluster.spec.paused, halted=brought.obstacle is not None),
        ),
        await probe_note(context.kube, sets.get(PROBE), existing.pods, now_ms=context.kube.now_ms()),
    )
    found = Found(
        pods=pods,
        wanted=_wanted(cluster, sets),
        answer=answer,
        step=step,
        of_base=of_base,
        lanes=lanes_status(lanes),
        trouble=trouble((pod for pod in existing.pods if _counts(pod)), now_ms=context.kube.now_ms())
        or await refused(context.kube, (sets[one] for one in (*ROLES, "minio") if one in sets)),
        obstacle=brought.obstacle,
        refused=brought.refused,
        taken=brought.taken,
        held=brought.held,
        listeners=listener_statuses(cluster, existing, nodes),
        ran_over=store_ran_over(cluster, existing),
        store_use=use_of_store(cluster, existing),
        notes=[note for note in notes if note is not None],
    )
    status = report(cluster, found, now_ms=now_ms)
    again_s = _again_after(step, status.conditions[0], proving=proving, now_ms=now_ms)
    # One that is paused and runs nothing is as it was until somebody changes it, which is heard of.
    idle = cluster.spec.paused and not sets and not existing.pods
    return Outcome(status=status, events=events, again_after_s=None if idle else again_s)


async def _ending(context: Context, cluster: Cluster, existing: Existing) -> Outcome:
    """One that is being deleted. As long as nobody confirms it, or it is paused, its nodes serve on, all of them, if it
    is not deleted in the foreground: what was drained gets partitions again. Raises KubeError.
    """
    outcome = await delete(context, cluster, existing)
    if outcome.status is None:
        return outcome
    sets, now_ms = existing.stateful_sets(), context.clock.now_ms()
    there = Found(
        pods=pods_seen(existing.pods, sets, now_ms=now_ms),
        wanted={role: replicas(sets[role]) for role in ROLES if role in sets},
        lanes=lanes_status(await _lanes(context, existing, now_ms=now_ms)),
    )
    status = outcome.status.model_copy(update=counts(there))
    outcome = replace(outcome, status=status)
    if not serves_on(context, cluster) or nodes_gone(cluster, existing):
        return outcome
    note, again_s = await take_back(context, cluster, existing)
    if note is not None:
        old, generation = cluster.status.conditions, cluster.metadata.generation
        found = next_conditions(old, [note], generation=generation, now_ms=now_ms)
        outcome = replace(outcome, status=status.model_copy(update={"conditions": status.conditions + found}))
    return replace(outcome, again_after_s=again_s)


def settle_s(cluster: Cluster) -> float:
    """How long a node that was replaced has to work before the next one is."""
    return float(cluster.spec.rollout.settle_seconds)


async def _note_proven(context: Context, cluster: Cluster, view: View, *, obstacle: Finding | None) -> bool:
    """Notes with which settings the Cluster is whole, before any of them is replaced; whether that is yet to be seen of
    the newest. Raises KubeError.
    """
    if cluster.spec.paused or obstacle is not None:
        return False
    found = to_note(view)
    if found is not None:
        await note_proven(context, cluster, found)
    proven = view.proven if found is None else found
    return not frozenset(view.newest.values()) <= (proven or frozenset())


async def _over_quota(
    context: Context, pods: tuple[Pod, ...], sets: dict[str, Manifest], *, wanted: Mapping[Component, int] | None = None
) -> frozenset[Component]:
    """Asked for where it counts: at pods that are broken and outdated, and where there are to be fewer than there are
    (`wanted`). Raises KubeError."""
    counts = any(role in sets and replicas(sets[role]) > count for role, count in (wanted or {}).items())
    broken = any(pod.outdated and not pod.ready for pod in pods)
    return await over_quota(context.kube, sets) if counts or broken else frozenset()


async def _lanes(context: Context, existing: Existing, *, now_ms: int) -> dict[str, LaneNodes]:
    found = {}
    sets = [one for (kind, _), one in existing.objects.items() if kind == "StatefulSet"]
    for lane in lanes_seen(sets):
        if lane and lane not in existing.left_out:
            own = existing.sets_of_lane(lane)
            seen = pods_seen(existing.pods, own, now_ms=now_ms, lane=lane)
            pods = by_own_clock(seen, context.known.waits, now_ms=now_ms)
            of_roles = {role: replicas(own[role]) for role in ROLES if role in own}
            found[lane] = LaneNodes(
                lane=lane,
                pods=pods,
                wanted=sum(replicas(one) for one in own.values()),
                settled=all(settled(one) for one in own.values()),
                unmade=roles_unmade(pods, of_roles),
                over_quota=await _over_quota(context, pods, own),
            )
    return found


def _with_waits(
    context: Context, cluster: Cluster, lanes: dict[str, LaneNodes], *, now_ms: int
) -> dict[str, LaneNodes]:
    waits, uid = context.known.waits, cluster.metadata.uid
    return {
        lane: replace(nodes, waited_s=waits.waited_s(uid, lane, nodes.left, now_ms=now_ms))
        for lane, nodes in lanes.items()
    }


def _counts(pod: Manifest) -> bool:
    """Whether the Cluster cannot be ready without it: neither a lane's pods nor the probe are meant."""
    labels = pod["metadata"]["labels"]
    return labels.get(COMPONENT_LABEL) in (*ROLES, "minio") and not labels.get(LANE_LABEL)


async def _bring_about(context: Context, cluster: Cluster, existing: Existing, nodes: dict[str, str]) -> Brought:
    """Makes and changes objects, or says why nothing is, or no more."""
    done = Done()
    try:
        return await _try_to(context, cluster, existing, nodes, done)
    except NotToBe as reason:
        obstacle = reason.finding
    except ObjectTaken as taken:
        obstacle = Finding(status="False", reason="NameTaken", message=str(taken))
    except KubeProblem as problem:
        if problem.status == 409 or problem.too_large:
            raise
        obstacle = Finding(
            status="False", reason="Refused", message=f"the API server refuses an object: {problem.message}"
        )
    has_not_begun(context, cluster)
    if obstacle.reason == SHARED and gives_way(cluster):
        done.what += await end_nodes(context, existing)
    auth = await context.kube.get("Secret", cluster.metadata.namespace, Names.of(cluster).auth)
    changed = bool(done.what) and not cluster.spec.paused
    return Brought(changed=changed, obstacle=obstacle, note=halted(cluster, existing, auth, reason=obstacle.reason))


async def _try_to(context: Context, cluster: Cluster, existing: Existing, nodes: dict[str, str], done: Done) -> Brought:
    """`done` tells what was done. Raises KubeError, NotToBe, ObjectTaken."""
    names, dry = Names.of(cluster), cluster.spec.paused
    advertised = advertised_file(cluster, existing, nodes)
    inputs = await gather(context, cluster, existing, advertised=advertised)
    if not dry and existing.get("Service", names.nodes) is None:
        # Of what family addresses are is known once there is a first Service, and pods are made with it.
        service = await make(context.kube, cluster, owned(cluster, nodes_service(cluster)))
        done.what.append(f"made Service {names.nodes}")
        existing = replace(existing, objects={**existing.objects, ("Service", names.nodes): service})
        inputs = replace(inputs, ipv6=is_ipv6(service))
    wanted = desired(cluster, inputs)
    await asyncio.sleep(0)  # of the longest spec that takes a good part of what a turn may
    existing = await _make_way(context, cluster, existing, wanted, done, dry=dry)
    now = _now(cluster, existing, wanted)
    going = of_going(cluster, inputs.proxies_there)
    await bring_about(context.kube, cluster, existing, now, done=done, restored=inputs.restored, going=going, dry=dry)
    done.what += await delete_without_lane(context, cluster, existing, dry=dry)
    done.what += await replace_stuck(context, existing, dry=dry)
    base = next(one for one in wanted if (one["kind"], one["metadata"]["name"]) == ("StatefulSet", names.role("proxy")))
    given, unchanged = await keys_to_lanes(context, existing, base, dry=dry)
    done.what += given
    behind = nodes_behind(names, existing, inputs.keys_name)
    if dry:
        has_not_begun(context, cluster)
        note = replacing(inputs, behind) if existing.stateful_sets() else None
        return Brought(held=done.what, note=note, taken=done.taken)
    await _show_addresses(context, cluster, existing, advertised)
    if done.what:
        title = f"{cluster.metadata.namespace}/{cluster.metadata.name}"
        _log.info("objects brought about", cluster=title, done=done.what)
    note = replacing(inputs, behind, unchanged)
    return Brought(changed=bool(done.what), note=note, refused=done.refused, taken=done.taken)


async def _make_way(
    context: Context, cluster: Cluster, existing: Existing, wanted: list[Manifest], done: Done, *, dry: bool
) -> Existing:
    """Deletes Services that have a node port of another one's, which `done` tells; what there is without them. `dry`:
    nothing is. Raises KubeError; ObjectTaken, and none is deleted, where another one's name is somebody else's."""
    going = [one for one in in_the_way(existing, wanted) if owner_of(one) == cluster.metadata.uid and not dry]
    for one in wanted if going else ():
        kind, name = one["kind"], one["metadata"]["name"]
        if kind == "Service" and existing.get(kind, name) is None:
            there = await context.kube.get(kind, cluster.metadata.namespace, name)
            untaken(there, cluster, listener=listener_of(one))
    for one in going:
        meta = one["metadata"]
        await context.kube.delete("Service", meta["namespace"], meta["name"], uid=meta["uid"])
        done.what.append(f"deleted Service {meta['name']}, whose node port another one is to have")
    names = {("Service", one["metadata"]["name"]) for one in going}
    return replace(existing, objects={key: one for key, one in existing.objects.items() if key not in names})


async def _show_addresses(context: Context, cluster: Cluster, existing: Existing, advertised: str) -> None:
    """A change of a pod has its volumes brought up to date at once; else a proxy would see new addresses up to a minute
    later.
    """
    if not cluster.spec.listeners:
        return
    digest = hashlib.sha256(advertised.encode()).hexdigest()[:16]
    for pod in existing.pods:
        meta = pod["metadata"]
        of_base = meta["labels"].get(COMPONENT_LABEL) == "proxy" and not meta["labels"].get(LANE_LABEL)
        if of_base and (meta.get("annotations") or {}).get(ADVERTISED_HASH) != digest:
            note = {"metadata": {"annotations": {ADVERTISED_HASH: digest}}}
            await context.kube.merge("Pod", meta["namespace"], meta["name"], note, uid=meta["uid"])


def _now(cluster: Cluster, existing: Existing, wanted: list[Manifest]) -> list[Manifest]:
    """Nodes are first made once the embedded MinIO is ready: without a store they would only end, and be started later
    and later.
    """
    minio_ready = any(
        pod["metadata"]["labels"].get(COMPONENT_LABEL) == "minio" and is_ready(pod) for pod in existing.pods
    )
    if not cluster.spec.store.minio.embedded or minio_ready or "controller" in existing.stateful_sets():
        return wanted
    return [
        one for one in wanted if one["kind"] != "StatefulSet" or one["metadata"]["labels"][COMPONENT_LABEL] == "minio"
    ]


async def _node_addresses(context: Context, cluster: Cluster) -> dict[str, str]:
    """The addresses of Kubernetes nodes, by name, where a listener needs them and the operator may look; else none."""
    if not any(one.type == "NodePort" and not one.advertised_host for one in cluster.spec.listeners):
        return {}
    try:
        return dict(await context.kube.each("Node", keep=lambda one: (str(one["metadata"]["name"]), node_address(one))))
    except KubeProblem as problem:
        _log.warning("addresses of nodes are not known: give listeners an advertisedHost", why=str(problem))
        return {}


def _view(
    cluster: Cluster,
    sets: dict[str, Manifest],
    answer: Answer,
    pods: tuple[Pod, ...],
    *,
    over_quota: frozenset[Component] = frozenset(),
) -> View | None:
    if not {"controller", "broker", "proxy"} <= sets.keys():
        return None
    wanted = _wanted(cluster, sets)
    return View(
        pods=pods,
        wanted=wanted,
        current={role: replicas(sets[role]) for role in wanted},
        settled=all(settled(sets[role]) for role in wanted),
        state=answer.state,
        why_no_state=answer.why_not,
        marked=marked(cluster, sets["broker"]),
        settle_s=settle_s(cluster),
        over_quota=over_quota,
        newest={role: found for role in wanted if (found := newest_revision(sets[role]))},
        proven=noted(cluster.metadata.annotations),
    )


def _wanted(cluster: Cluster, sets: dict[str, Manifest]) -> dict[Component, int]:
    spec = cluster.spec
    proxies = spec.proxies.replicas
    if spec.proxies.autoscaling.enabled and "proxy" in sets:
        proxies = min(max(1, replicas(sets["proxy"])), spec.proxies.autoscaling.max_replicas)
    return {"controller": spec.controllers.replicas, "broker": spec.brokers.replicas, "proxy": proxies}


def _again_after(step: Step, ready: Condition, *, proving: bool, now_ms: int) -> float | None:
    if isinstance(step, Wait):
        return pace_s(ready, first_s=AGAIN_S, most_s=WAITING_AGAIN_S, now_ms=now_ms)
    if not isinstance(step, Idle):
        return AGAIN_S
    if proving:
        return UNREADY_AGAIN_S
    if ready.status == "True":
        return None
    return pace_s(ready, first_s=UNREADY_AGAIN_S, most_s=UNREADY_AGAIN_MOST_S, now_ms=now_ms)
