"""What is to be done about a Lane in its cluster, and what is to be said of it. Pure.

A Lane's time is over when its cluster says so: by one machine's clock, which may be wrong, nobody's topics are deleted.

As with Topics: `plan` is asked again after its action was carried out. A Lane whose status has a lane's name stands for
that lane; it is written down before the lane is declared, when the finalizer is not on the resource yet, and so a crash
leaves nothing behind that nobody knows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias, assert_never

from bmq_operator.conditions import Finding, condition, pace_s, timestamp, was_refused
from bmq_operator.lanes.situation import PresentLane, Situation
from bmq_operator.outcome import Event
from bmq_operator.references import SOON_S, ClusterState, waiting_again_s
from bmq_operator.rivals import winner
from bmq_resources.differences import lane_body, lane_differences
from bmq_resources.lane import LANE_NAME, Lane

BROKERS_STARTING: Final = "BrokersStarting"
PROXIES_STARTING: Final = "ProxiesStarting"
STARTING_S: Final = 3.0
GIVE_UP_MS: Final = 5 * 60_000
"""How long the deletion of a Lane waits for a cluster that does not answer."""
SKEW_MS_MAX: Final = 60_000
"""Clocks that are further apart decide nothing."""
LATER_S: Final = 30.0
"""How often the number of the lane's topics is brought up to date."""
AS_WRITTEN: Final = "AsWritten"
CHANGE_REFUSED: Final = "ChangeRefused"
TTL_TOO_SHORT: Final = "TtlTooShort"
_DECLARED: Final = frozenset((AS_WRITTEN, "ProxiesStarting", "BrokersStarting"))
_ANOTHER: Final = "create another Lane with another laneName, and delete this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateLane:
    """Declares the lane."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLane:
    """Makes the lane what is written."""

    body: Mapping[str, Any]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLane:
    """Deletes the lane with its topics and groups."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResource:
    """Its time is over: the Lane itself goes, and all else follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Which lane: its number, and when it was made, as another cluster under the same name counts anew. 0: not
    known.
    """

    number: int = 0
    created_ms: int = 0


NOT_KNOWN: Final = Known()
Action: TypeAlias = CreateLane | ChangeLane | DeleteLane | DeleteResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`lane_name`, `node_ids_from`, `known` and `declaring` go into the status: it is all that is remembered."""

    finding: Finding
    lane_name: str
    node_ids_from: int
    known: Known = NOT_KNOWN
    """The lane in the cluster, once it was found to be this resource's."""
    declaring: bool = False
    """Whether that one is gone, and what comes next may be its successor."""
    topics: int = 0
    action: Action | None = None
    objects: bool | None = None
    """Whether there are to be pods and what belongs to them; None: it all stays as it is."""
    events: tuple[Event, ...] = ()
    again_after_s: float | None = None
    finished: bool = False


def plan(situation: Situation) -> Plan:
    """The next step."""
    if situation.lane.metadata.deletion_timestamp is not None:
        return _deletion(situation)
    return _expired(situation) or _obstacle(situation) or _declared(situation)


def expires_ms(lane: Lane, present: PresentLane | None = None) -> int | None:
    """When its time is over; None: never. The cluster counts from when the lane was made, which may be before the
    resource that adopted it.
    """
    if not lane.spec.ttl_seconds or not lane.metadata.creation_timestamp:
        return None
    times = [_ms(lane.metadata.creation_timestamp) + lane.spec.ttl_seconds * 1000]
    if not lane.status.lane_name:
        return times[0]  # it stands for no lane yet
    if present is not None:
        times += (
            [present.expires_ms]
            if present.expires_ms is not None and present.view["ttl_seconds"] == lane.spec.ttl_seconds
            else []
        )
    elif (told_ms := _told_ms(lane)) is not None and lane.status.observed_generation == lane.metadata.generation:
        times.append(told_ms)  # the cluster has deleted it already
    return min(times)


def body_of(situation: Situation) -> dict[str, Any]:
    """The lane as the API takes it. Its topics move to brokers of its own once one of these is ready: until then nobody
    could own them.
    """
    has_them = situation.brokers.ready > 0 or (situation.present is not None and situation.present.own_brokers)
    return lane_body(situation.lane.spec, own_brokers=situation.lane.spec.brokers.replicas > 0 and has_them)


def may_be_over(lane: Lane, present: PresentLane | None, *, now_ms: int) -> bool:
    """Whether its cluster has to be asked what time it is: its time is over by the operator's own clock, or the lane is
    gone, and the cluster may have deleted it for that.
    """
    end_ms = expires_ms(lane, present)
    return end_ms is not None and (now_ms >= end_ms or (present is None and lane.status.number > 0))


def _expired(situation: Situation) -> Plan | None:
    lane, now_ms = situation.lane, _decisive_ms(situation)
    end_ms = expires_ms(lane, situation.present)
    if end_ms is None or now_ms is None or now_ms < end_ms or _over_as_news(situation, now_ms=now_ms):
        return None
    text = f"ttlSeconds: {lane.spec.ttl_seconds}: the lane's time was over at {timestamp(end_ms)}"
    event = Event(reason="Expired", message=f"{text}: it is deleted with its topics and groups")
    return _as_it_was(
        lane, Finding(status="False", reason="Expired", message=text), action=DeleteResource(), events=(event,)
    )


def _decisive_ms(situation: Situation) -> int | None:
    """The time by which a Lane is deleted; None: by none. Where its lane may be deleted with it, the cluster's
    alone.
    """
    own_ms, kube_ms = situation.now_ms, situation.kube_ms
    match situation.cluster:
        case ClusterState.READY if situation.tells_time:
            return situation.cluster_ms
        case ClusterState.READY:
            # One of before deletes the lane by itself: where that is gone, nothing is deleted with its resource.
            return own_ms if situation.present is None and situation.lane.status.lane_name else None
        case ClusterState.NOT_READY:
            return None
        case ClusterState.MISSING | ClusterState.ENDING | ClusterState.NOT_ALLOWED:
            # Nobody is asked to delete anything: what goes are the resource and its pods. Two clocks have to agree.
            return own_ms if kube_ms is not None and abs(own_ms - kube_ms) <= SKEW_MS_MAX else None
        case _ as never:
            assert_never(never)


def told_expiry(situation: Situation) -> str:
    """What the status says of it."""
    end_ms = expires_ms(situation.lane, situation.present)
    if _over_as_news(situation, now_ms=situation.now_ms):
        return situation.lane.status.expires_at
    return "" if end_ms is None else timestamp(end_ms)


def _over_as_news(situation: Situation, *, now_ms: int) -> bool:
    """Whether its time is over by a time to live that was, or may have been, not in force yet: the cluster has another,
    or does not answer and none was announced that is over."""
    lane, present = situation.lane, situation.present
    end_ms = expires_ms(lane, present)
    if not lane.status.lane_name or end_ms is None or now_ms < end_ms:
        return False
    if present is not None:
        return bool(present.view["ttl_seconds"] != lane.spec.ttl_seconds)
    told_ms = _told_ms(lane)
    return situation.cluster is not ClusterState.READY and (told_ms is None or told_ms > now_ms)


def _too_short(situation: Situation, present: PresentLane, *, now_ms: int) -> Plan:
    lane = situation.lane
    # By the hour: a text that is another one each time is written each time.
    least_s = ((now_ms - _ms(lane.metadata.creation_timestamp)) // 3_600_000 + 1) * 3600
    why = (
        f"ttlSeconds: {lane.spec.ttl_seconds}: it counts from the Lane's creation at "
        f"{lane.metadata.creation_timestamp}, so the lane would be deleted at once with its topics and groups: "
        f"write {least_s} or more, or delete the Lane"
    )
    return _as_it_was(lane, _not_ready(TTL_TOO_SHORT, why), topics=present.topics, again_after_s=LATER_S)


def _obstacle(situation: Situation) -> Plan | None:
    lane, reference = situation.lane, f"Cluster {situation.cluster_name}"
    again_s = situation.cluster.again_s(lane.status.conditions, now_ms=situation.now_ms)
    if not re.fullmatch(LANE_NAME, lane.lane_name):
        why = (
            f"{lane.lane_name!r} is no lane's name (1 to 32 of a-z, 0-9 and -, neither at the beginning nor at "
            "the end a -): "
            f"{_ANOTHER}"
        )
        return _as_it_was(lane, _not_ready("InvalidName", why))
    match situation.cluster:
        case ClusterState.MISSING:
            why = f"{reference} does not exist: create it, or delete this and write another clusterRef"
            return _as_it_was(lane, _not_ready("ClusterMissing", why), again_after_s=again_s)
        case ClusterState.ENDING:
            return _as_it_was(
                lane,
                _not_ready("ClusterEnding", f"{reference} is being deleted: nothing is changed any more"),
                again_after_s=again_s,
            )
        case ClusterState.NOT_ALLOWED:
            namespace = lane.metadata.namespace
            why = (
                f"{reference} takes no Lanes of the namespace {namespace}: add it to spec.topicsFrom.namespaces "
                f"of the Cluster: {namespace}"
            )
            return _as_it_was(lane, _not_ready("NamespaceNotAllowed", why), again_after_s=again_s)
        case ClusterState.NOT_READY:
            finding = Finding(
                status="Unknown",
                reason="ClusterNotReady",
                message=f"{reference} does not answer, and is asked again: {situation.why}",
            )
            return _as_it_was(lane, finding, again_after_s=again_s)
        case ClusterState.READY:
            pass
    if situation.unusable:
        return _as_it_was(lane, _not_ready("InvalidName", situation.unusable))
    if situation.beyond:
        return _as_it_was(lane, _not_ready("NotAllowed", situation.beyond))
    other = winner(lane.metadata, owned=bool(lane.status.lane_name), rivals=situation.rivals)
    if other is not None:
        why = f"{other.title} stands for the lane {lane.lane_name} already: delete one of the two, or {_ANOTHER}"
        # What it has under names that the other one needs goes, as that could make nothing else.
        again_s = waiting_again_s(lane.status.conditions, now_ms=situation.now_ms)
        finding = _not_ready("Collision", why)
        return Plan(finding=finding, lane_name="", node_ids_from=-1, objects=False, again_after_s=again_s)
    return None


def _declared(situation: Situation) -> Plan:
    lane, present, status = situation.lane, situation.present, situation.lane.status
    creating = Finding(status="Unknown", reason="Creating", message="the lane is being declared")
    if not status.lane_name or status.node_ids_from < 0:
        there_before = present is not None and not status.lane_name
        if present is not None and there_before and lane.spec.existing == "Refuse":
            return Plan(
                finding=_there_before(lane),
                lane_name="",
                node_ids_from=-1,
                topics=present.topics,
                again_after_s=LATER_S,
            )
        text = f"the lane {lane.lane_name} was there before, and is managed from now on"
        return Plan(
            finding=creating,
            lane_name=lane.lane_name,
            node_ids_from=situation.free_node_ids_from,
            events=(Event(reason="Adopted", message=text),) if there_before else (),
            again_after_s=0.0,
        )
    body = body_of(situation)
    if present is not None and lane.spec.existing == "Refuse" and not _may_be_its_own(situation, present):
        return Plan(
            finding=_there_before(lane),
            lane_name="",
            node_ids_from=-1,
            topics=present.topics,
            objects=False,
            again_after_s=LATER_S,
        )
    found = _of_its_own(situation, present, body)
    return (
        found
        if present is None
        else replace(found, known=Known(number=present.number, created_ms=present.created_ms), declaring=False)
    )


def _of_its_own(situation: Situation, present: PresentLane | None, body: Mapping[str, Any]) -> Plan:
    """What to do about a lane that this resource has made, or is to make."""
    lane, status = situation.lane, situation.lane.status
    if present is None:
        creating = Finding(status="Unknown", reason="Creating", message="the lane is being declared")
        lost = condition(status.conditions)
        text = f"the lane {lane.lane_name} was deleted by somebody, with its topics and groups: it is made again, empty"
        events = (
            (Event(reason="LaneLost", message=text, warning=True),)
            if lost is not None and lost.reason in _DECLARED
            else ()
        )
        if status.number and not status.declaring:  # written down first: else nobody would know the successor
            return replace(_as_it_was(lane, creating, events=events, again_after_s=0.0), declaring=True)
        return _as_it_was(
            lane, creating, action=CreateLane(body={"name": lane.lane_name, **body}), objects=True, events=events
        )
    now_ms = situation.now_ms if situation.cluster_ms is None else situation.cluster_ms
    if _over_as_news(situation, now_ms=now_ms):
        return _too_short(situation, present, now_ms=now_ms)
    if differences := lane_differences(body, present.view):
        finding = Finding(
            status="Unknown",
            reason="Changing",
            message=f"the lane is changed: {', '.join(one.field for one in differences)}",
        )
        return _as_it_was(
            lane, finding, topics=present.topics, action=ChangeLane(body=body, version=present.version), objects=True
        )
    return _pods(situation, present)


def _pods(situation: Situation, present: PresentLane) -> Plan:
    lane, spec = situation.lane, situation.lane.spec
    for noun, reason, wanted, pods in (
        ("brokers", BROKERS_STARTING, spec.brokers.replicas, situation.brokers),
        ("proxies", PROXIES_STARTING, spec.proxies.replicas, situation.proxies),
    ):
        if pods.ready < wanted:
            why = f": Kubernetes makes no more of them: {pods.why}" if pods.why else ""
            finding = _not_ready(reason, f"{pods.ready} of {wanted} {noun} of the lane are ready{why}")
            ready = condition(lane.status.conditions)
            again_s = pace_s(ready, first_s=STARTING_S, most_s=LATER_S, now_ms=situation.now_ms)
            return _as_it_was(lane, finding, topics=present.topics, objects=True, again_after_s=again_s)
    found = Finding(status="True", reason=AS_WRITTEN, message="the lane is as it is written")
    end_ms = expires_ms(lane, present)
    now_ms = situation.now_ms if situation.cluster_ms is None else situation.cluster_ms
    left_ms = 0 if end_ms is None else end_ms - now_ms
    again_s = max(1.0, min(LATER_S, left_ms / 1000)) if left_ms > 0 else LATER_S
    return _as_it_was(lane, found, topics=present.topics, objects=True, again_after_s=again_s)


def _deletion(situation: Situation) -> Plan:
    """The lane and its pods go; nothing is waited for where nobody is left to ask."""
    lane, present = situation.lane, situation.present
    ending = Finding(
        status="Unknown", reason="Deleting", message="the lane is being deleted with its topics and groups"
    )
    gone = _as_it_was(lane, ending, objects=False, finished=True)
    if not lane.status.lane_name or situation.cluster in (
        ClusterState.MISSING,
        ClusterState.ENDING,
        ClusterState.NOT_ALLOWED,
    ):
        return gone
    if winner(lane.metadata, owned=True, rivals=situation.rivals) is not None:
        return gone
    if situation.cluster is ClusterState.NOT_READY:
        now_ms = situation.now_ms if situation.kube_ms is None else situation.kube_ms
        until_ms = _ms(lane.metadata.deletion_timestamp or timestamp(now_ms)) + GIVE_UP_MS
        if situation.namespace_ending or now_ms >= until_ms:
            return gone
        why = (
            f"Cluster {situation.cluster_name} does not answer, and is asked again until {timestamp(until_ms)}: "
            f"{situation.why}"
        )
        finding = Finding(status="Unknown", reason="ClusterNotReady", message=why)
        return _as_it_was(lane, finding, objects=False, again_after_s=SOON_S)
    if present is None or not _may_be_its_own(situation, present):
        return gone
    return _as_it_was(lane, ending, topics=present.topics, action=DeleteLane(version=present.version), objects=False)


def _as_it_was(
    lane: Lane,
    finding: Finding,
    *,
    topics: int | None = None,
    action: Action | None = None,
    objects: bool | None = None,
    events: tuple[Event, ...] = (),
    again_after_s: float | None = None,
    finished: bool = False,
) -> Plan:
    """What is remembered stays as it is."""
    old = lane.status
    return Plan(
        finding=finding,
        lane_name=old.lane_name,
        node_ids_from=old.node_ids_from,
        known=Known(number=old.number, created_ms=old.created_ms),
        declaring=old.declaring,
        topics=old.topics if topics is None else topics,
        action=action,
        objects=objects,
        events=events,
        again_after_s=again_after_s,
        finished=finished,
    )


def _may_be_its_own(situation: Situation, present: PresentLane) -> bool:
    """Whether it is the very lane that was found to be its own; or, where the intent that was written down came, or may
    have come, to this one, is as it would be declared, and may have been since. Where an operator of before noted no
    number: also one that was seen before, or has nodes.
    """
    status = situation.lane.status
    ready = condition(status.conditions)
    if status.number:
        if status.number == present.number and status.created_ms in (0, present.created_ms):
            return True
        if not status.declaring:
            return False
    else:
        seen = ready is not None and ready.reason in (*_DECLARED, CHANGE_REFUSED, TTL_TOO_SHORT, "Changing", "Deleting")
        if seen or status.topics > 0 or situation.proxies.there + situation.brokers.there > 0:
            return True
    if situation.made_none:
        return False
    return not was_refused(ready) and not lane_differences(body_of(situation), present.view)


def _there_before(lane: Lane) -> Finding:
    whose = "is not the one that this resource declared" if lane.status.number else "was there before this resource"
    why = f"the lane {lane.lane_name} {whose}: write existing: Adopt to have it managed, or {_ANOTHER}"
    return _not_ready("AlreadyExists", why)


def _told_ms(lane: Lane) -> int | None:
    """When its status says that its time is over; None: it does not say a time."""
    try:
        return _ms(lane.status.expires_at)
    except (ValueError, OverflowError):
        return None


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _not_ready(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)
