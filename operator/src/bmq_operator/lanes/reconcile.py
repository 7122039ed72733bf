"""Brings what is there to what a Lane says: declares it in its Cluster by the admin REST API, and has its own proxies
and brokers run.
"""

import asyncio
import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, AdminProblem
from bmq_operator.answers import part_of
from bmq_operator.applied import as_wanted, make_way, write
from bmq_operator.borrowed import Own, why_never_allowed
from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.gathering import may_be
from bmq_operator.clusters.names import OF_LANE, OF_NAMESPACE, Names, selector_of
from bmq_operator.clusters.refused import NotToBe
from bmq_operator.clusters.unmade import lacks_pods, why_unmade
from bmq_operator.conditions import REFUSED, Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, Manifest
from bmq_operator.lanes.claims import Claim, LaneClaims, claim_of, lane_claims
from bmq_operator.lanes.desired import all_names, desired, names_of, why_unusable
from bmq_operator.lanes.kept import kept
from bmq_operator.lanes.plan import (
    BROKERS_STARTING,
    CHANGE_REFUSED,
    LATER_S,
    PROXIES_STARTING,
    ChangeLane,
    CreateLane,
    DeleteLane,
    DeleteResource,
    Plan,
    may_be_over,
    plan,
    told_expiry,
)
from bmq_operator.lanes.situation import PresentLane, Ready, Situation, present_from
from bmq_operator.lanes.slots import free_from, is_slot
from bmq_operator.outcome import Event, Outcome
from bmq_operator.references import SOON_S, ClusterState, Referred, allowed, refer, unanswered
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane, LaneStatus

STEPS_MAX: Final = 5
_OLD_KNOWLEDGE: Final = frozenset((404, 409, 412))
_NOT_A_LANE: Final = "UnknownLane"
_IN_USE: Final = "LaneInUse"
_CLAIMS: Final = "claims"
_STARTING: Final = frozenset((BROKERS_STARTING, PROXIES_STARTING))


def holds(lane: Lane) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then. It is there before the
    lane is.
    """
    return bool(lane.status.lane_name)


async def reconcile(context: Context, lane: Lane) -> Outcome:
    """Looks at the lane once, takes the next step, and says what is the case. Raises KubeError."""
    events: dict[str, Event] = {}
    referred = await refer(context, lane.metadata, lane.spec.cluster_ref)
    situation = await _situation(context, lane, referred)
    planned = plan(situation)
    if planned.lane_name and not lane.status.lane_name:
        # What it is about to stand for another one may have taken since all were read.
        situation = await _situation(context, lane, referred, since_s=asyncio.get_running_loop().time())
        planned = plan(situation)
    if situation.present is None and (
        (planned.lane_name and not lane.status.lane_name) or (planned.declaring and not lane.status.declaring)
    ):
        context.known.intents.mean(lane.metadata.uid)
    for _ in range(STEPS_MAX):
        if planned.action is None:
            break
        try:
            lane = await _carry_out(context, lane, referred, planned)
            events |= {event.reason: event for event in planned.events}
            if isinstance(planned.action, DeleteResource):
                planned = replace(planned, action=None, events=())
                break
        except AdminProblem as problem:
            if problem.passes:
                referred = unanswered(context, referred, problem)
            elif problem.status not in _OLD_KNOWLEDGE or problem.code == _IN_USE:
                reason = REFUSED if isinstance(planned.action, CreateLane) else CHANGE_REFUSED
                refused = Finding(
                    status="False", reason=reason, message=f"the cluster refuses it: {problem.why}: {problem.remedy}"
                )
                # Pods of a lane that there is not would be of no use.
                objects = None if isinstance(planned.action, CreateLane) else planned.objects
                planned = replace(
                    planned, finding=refused, action=None, events=(), objects=objects, again_after_s=LATER_S
                )
                break
        except AdminError as error:
            referred = unanswered(context, referred, error)
        situation = await _situation(context, lane, referred)
        planned = plan(situation)
    else:
        planned = replace(planned, action=None, events=(), again_after_s=SOON_S)
    if planned.objects is not None and referred.cluster is not None:
        planned = await _bring_about(context, lane, referred.cluster, situation, planned)
    events |= {event.reason: event for event in planned.events}
    return Outcome(
        status=await _status(context, lane, referred.cluster, planned, expires_at=told_expiry(situation)),
        events=tuple(events.values()),
        again_after_s=planned.again_after_s,
        finished=planned.finished,
    )


async def _situation(context: Context, lane: Lane, referred: Referred, *, since_s: float = float("-inf")) -> Situation:
    """`since_s`: by the loop's clock, how new the claims of all Lanes have to be."""
    present: PresentLane | None = None
    cluster_ms: int | None = None
    tells_time = True
    if referred.state is ClusterState.READY:
        try:
            present = await _present(_client(referred), lane.lane_name)
            if may_be_over(lane, present, now_ms=context.clock.now_ms()):
                cluster_ms, tells_time = await _time(_client(referred))
        except AdminError as error:
            referred = unanswered(context, referred, error)
    claims = await _claims(context, lane, since_s=since_s)
    claim = claim_of(lane)
    lane = _without_a_slot_of_another(lane, claims.node_ids.get(claim[:2], {}))
    others = [rival for rival in claims.rivals.get(claim, ()) if rival.uid != lane.metadata.uid]
    cluster = referred.cluster
    return Situation(
        lane=lane,
        cluster_name=referred.title,
        cluster=referred.state,
        now_ms=context.clock.now_ms(),
        kube_ms=context.kube.now_ms(),
        cluster_ms=cluster_ms,
        tells_time=tells_time,
        why=referred.why,
        unusable="" if cluster is None else why_unusable(names_of(cluster, lane)),
        beyond=why_never_allowed(
            lane.spec,
            allow=context.settings.allow,
            own=Own(
                images=(),
                elsewhere=cluster.metadata.namespace
                if cluster is not None and cluster.metadata.namespace != lane.metadata.namespace
                else "",
            ),
        ),
        present=present,
        rivals=[rival for rival in others if cluster is not None and allowed(cluster, rival.namespace)],
        free_node_ids_from=_slot(context, lane, claim, claims),
        proxies=await _ready(context, cluster, lane, "proxy"),
        brokers=await _ready(context, cluster, lane, "broker"),
        namespace_ending=context.namespace_ending,
        made_none=context.known.intents.made_none(lane.metadata.uid),
    )


async def _present(client: AdminClient, name: str) -> PresentLane | None:
    """Raises AdminError; a cluster that knows nothing of lanes is one that cannot be used for them."""
    try:
        return present_from(await client.ask(pages.lane(name)))
    except AdminProblem as problem:
        if problem.missing and problem.code == _NOT_A_LANE:
            return None
        raise


async def _time(client: AdminClient) -> tuple[int | None, bool]:
    """By which time the cluster deletes lanes (None: by none now), and whether it can be asked. Raises AdminError."""
    try:
        told = await client.ask(pages.clock())
    except AdminProblem as problem:
        if problem.missing:
            return None, False
        raise
    return (told["now_ms"] if told["trusted"] else None), True


async def _claims(context: Context, lane: Lane, *, since_s: float) -> LaneClaims:
    """The claims of all Lanes, read once within a few seconds for all of them, and anew for one that was not there
    yet.
    """

    async def read() -> LaneClaims:
        keep = functools.partial(part_of, spec=("clusterRef", "laneName"), status=("laneName", "nodeIdsFrom"))
        return lane_claims(
            [
                one
                for namespace in context.settings.watched_namespaces
                for one in await context.kube.each("Lane", namespace, keep=keep)
            ]
        )

    asked_s = asyncio.get_running_loop().time()
    found: LaneClaims = await context.known.lane_claims.get(_CLAIMS, read, since_s=since_s)
    if lane.metadata.uid not in found.uids and lane.metadata.deletion_timestamp is None:
        found = await context.known.lane_claims.get(_CLAIMS, read, since_s=asked_s)
    return found


def _without_a_slot_of_another(lane: Lane, node_ids: Mapping[str, int]) -> Lane:
    """Statuses that were brought back, or copied, may name one slot twice: the smaller uid keeps it. What is no slot is
    nobody's.
    """
    mine = lane.status.node_ids_from
    if mine < 0 or (
        is_slot(mine) and all(first != mine or uid >= lane.metadata.uid for uid, first in node_ids.items())
    ):
        return lane
    return lane.model_copy(update={"status": lane.status.model_copy(update={"node_ids_from": -1})})


def _slot(context: Context, lane: Lane, claim: Claim, claims: LaneClaims) -> int:
    """Slots are given out one after the other by the one operator that leads; what it gave is remembered until the
    status tells it.
    """
    if lane.status.node_ids_from >= 0:
        return lane.status.node_ids_from
    given = context.known.slots.setdefault(claim[:2], {})
    if lane.metadata.uid not in given:
        alive = claims.uids
        for uid in [uid for uid in given if uid not in alive and uid != lane.metadata.uid]:
            del given[uid]
        given[lane.metadata.uid] = free_from([*claims.node_ids.get(claim[:2], {}).values(), *given.values()])
    return given[lane.metadata.uid]


async def _ready(context: Context, cluster: Cluster | None, lane: Lane, component: str) -> Ready:
    if cluster is None:
        return Ready()
    names = names_of(cluster, lane)
    there = await context.kube.get("StatefulSet", names.namespace, names.role(component))
    status = {} if there is None else there.get("status", {})
    why = await why_unmade(context.kube, there) if there is not None and lacks_pods(there) else ""
    return Ready(there=int(status.get("replicas", 0)), ready=int(status.get("readyReplicas", 0)), why=why)


async def _carry_out(context: Context, lane: Lane, referred: Referred, planned: Plan) -> Lane:
    """Takes the step; the resource as the next plan is to see it."""
    match planned.action:
        case CreateLane(body=body):
            with context.known.intents.asking(lane.metadata.uid):
                made = await _client(referred).ask(pages.create_lane(body))
            known = {"number": made["number"], "created_ms": made["created_ms"], "declaring": False}
            return lane.model_copy(update={"status": lane.status.model_copy(update=known)})
        case ChangeLane(body=body, version=version):
            await _client(referred).ask(pages.change_lane(lane.lane_name, body, version=version))
        case DeleteLane(version=version):
            await _client(referred).ask(pages.delete_lane(lane.lane_name, version=version))
        case DeleteResource():
            await context.kube.delete("Lane", lane.metadata.namespace, lane.metadata.name, uid=lane.metadata.uid)
        case None:
            pass
        case _ as never:
            assert_never(never)
    return lane


async def _bring_about(context: Context, lane: Lane, cluster: Cluster, situation: Situation, planned: Plan) -> Plan:
    """Makes, changes and deletes the lane's objects in the Cluster's namespace; the plan, with what kept it from
    that.
    """
    names = names_of(cluster, lane)
    if not planned.objects:
        await _delete(context, all_names(names), names.namespace, lane, cluster)
        return planned
    base = await context.kube.get("StatefulSet", names.namespace, Names.of(cluster).role("proxy"))
    if base is None:
        finding = Finding(
            status="Unknown",
            reason="ClusterNotReady",
            message=f"Cluster {situation.cluster_name} has no proxies of its own yet",
        )
        return replace(planned, finding=finding, again_after_s=SOON_S)
    own_brokers = situation.present is not None and situation.present.own_brokers
    with_brokers = lane.spec.brokers.replicas > 0
    wanted = desired(lane, cluster, base, node_ids_from=planned.node_ids_from, with_brokers=with_brokers)
    try:
        there = await asyncio.gather(
            *(context.kube.get(one["kind"], names.namespace, one["metadata"]["name"]) for one in wanted)
        )
        wanted, why_kept = await kept(context, lane, cluster, wanted, there)
        differs = any(found is None or not as_wanted(found, one) for one, found in zip(wanted, there, strict=True))
        if differs and (obstacle := await _obstacle(context, cluster, base, situation.cluster_name)) is not None:
            return replace(planned, finding=obstacle, again_after_s=SOON_S)
        for one, found in zip(wanted, there, strict=True):
            if found is not None and (other := _of_another(found, lane, cluster)):
                finding = Finding(
                    status="False",
                    reason="NameTaken",
                    message=f"{one['kind']} {one['metadata']['name']} belongs to {other}: delete it",
                )
                return replace(planned, finding=finding, again_after_s=SOON_S)
            if found is None or not as_wanted(found, one):
                await make_way(context.kube, found)
                await write(context.kube, one, found)
        if not with_brokers and not own_brokers:
            await _delete(
                context,
                [(kind, name) for kind, name in all_names(names) if name == names.role("broker")],
                names.namespace,
                lane,
                cluster,
            )
    except KubeProblem as problem:
        if problem.status == 409:
            raise
        finding = Finding(
            status="False", reason="Refused", message=f"the API server refuses an object of the lane: {problem.message}"
        )
        return replace(planned, finding=finding)
    if why_kept and (planned.finding.status == "True" or planned.finding.reason in _STARTING):
        finding = Finding(status="False", reason="Scaling", message=why_kept)
        return replace(planned, finding=finding, again_after_s=SOON_S)
    return replace(planned, again_after_s=SOON_S) if why_kept else planned


async def _obstacle(context: Context, cluster: Cluster, base: Manifest, name: str) -> Finding | None:
    """Why nothing may be made or changed by the Cluster's spec now, of which a lane's pods have image, keys and
    settings. None: it may.
    """
    stays = "nothing of the lane is made or changed until then"
    if owner_of(base) != cluster.metadata.uid:
        text = f"StatefulSet {base['metadata']['name']} is not that of Cluster {name}: delete it, {stays}"
        return Finding(status="False", reason="NameTaken", message=text)
    if cluster.spec.paused:
        return Finding(
            status="Unknown",
            reason="ClusterPaused",
            message=f"Cluster {name} is paused: write paused: false there, {stays}",
        )
    try:
        await may_be(context, cluster)
    except NotToBe as why:
        text = f"Cluster {name} cannot be as it says ({why.finding.reason}: {why.finding.message}): {stays}"
        return Finding(status="False", reason="ClusterRefused", message=text)
    return None


async def _delete(
    context: Context, objects: Iterable[tuple[str, str]], namespace: str, lane: Lane, cluster: Cluster
) -> None:
    for kind, name in objects:
        found = await context.kube.get(kind, namespace, name)
        if found is not None and not _of_another(found, lane, cluster):
            await context.kube.delete(kind, namespace, name, uid=found["metadata"]["uid"])


def _of_another(manifest: Manifest, lane: Lane, cluster: Cluster) -> str:
    """Whose an object is where it is not this lane's; empty: it is. What a label says anybody may have written: its
    owner counts.
    """
    meta = manifest["metadata"]
    annotations = meta.get("annotations") or {}
    of_lane = (annotations.get(OF_NAMESPACE), annotations.get(OF_LANE)) == (lane.metadata.namespace, lane.metadata.name)
    owner = next((one for one in meta.get("ownerReferences", ()) if one.get("controller")), None)
    if owner is not None and (owner["uid"] == lane.metadata.uid or (owner["uid"] == cluster.metadata.uid and of_lane)):
        return ""
    return "somebody else" if owner is None else f"{owner['kind']} {owner['name']}"


async def _status(
    context: Context, lane: Lane, cluster: Cluster | None, planned: Plan, *, expires_at: str
) -> LaneStatus:
    generation = lane.metadata.generation
    names = None if cluster is None or not planned.lane_name else names_of(cluster, lane)
    proxies = await _ready(context, cluster, lane, "proxy") if names is not None else Ready()
    selector = {} if names is None else selector_of(names.cluster, "proxy", names.lane)
    return LaneStatus(
        lane_name=planned.lane_name,
        number=planned.known.number,
        created_ms=planned.known.created_ms,
        declaring=planned.declaring,
        node_ids_from=planned.node_ids_from,
        topics=planned.topics,
        bootstrap_servers=names.bootstrap_servers if names is not None and lane.spec.proxies.replicas else "",
        replicas=proxies.there,
        selector=",".join(f"{key}={value}" for key, value in selector.items()),
        expires_at=expires_at,
        conditions=next_conditions(
            lane.status.conditions, [planned.finding], generation=generation, now_ms=context.clock.now_ms()
        ),
        observed_generation=generation,
    )


def _client(referred: Referred) -> AdminClient:
    assert referred.client is not None, "nothing is done about a cluster that is not ready"
    return referred.client
