"""What is to be done about a Channel, and what is to be said of it. Pure.

As with Topics: `plan` is asked again after its action was carried out, with what is there then, and the intent is in
the status before the channel is declared. As with Lanes: the channel goes with its resource, and a deletion waits for
nobody for long. No message is lost by that: what sidecars have accepted is still sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from bmq_operator.channels.situation import PresentChannel, Situation
from bmq_operator.conditions import Finding, condition, timestamp, was_refused
from bmq_operator.outcome import Event
from bmq_operator.references import SOON_S, ClusterState, waiting_again_s
from bmq_operator.rivals import Rival, winner
from bmq_resources.channel import Channel
from bmq_resources.differences import channel_differences

AS_WRITTEN: Final = "AsWritten"
GIVE_UP_MS: Final = 5 * 60_000
"""How long the deletion of a Channel waits for a cluster that does not answer."""
FIELDS_NAMED_MAX: Final = 8
_ANOTHER: Final = "create another Channel with another channelName, and delete this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare:
    """Makes the channel."""

    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Makes the channel what is written."""

    spec: Mapping[str, Any]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Deletes the channel."""

    version: str


Action: TypeAlias = Declare | Change | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`owned` and `created_ms` go into the status, and from there into the next plan: it is all that is remembered."""

    finding: Finding
    owned: bool
    created_ms: int = 0
    action: Action | None = None
    events: tuple[Event, ...] = ()
    again_after_s: float | None = None
    finished: bool = False


def plan(situation: Situation) -> Plan:
    """The next step."""
    if situation.channel.metadata.deletion_timestamp is not None:
        return _deletion(situation)
    return _obstacle(situation) or _existing(situation)


def _obstacle(situation: Situation) -> Plan | None:
    """What keeps the operator from looking at the channel at all. What was owned stays so."""
    channel, reference = situation.channel, f"Cluster {situation.cluster_name}"
    match situation.cluster:
        case ClusterState.MISSING:
            why = f"{reference} does not exist: create it, or delete this and write another clusterRef"
            return _waits(situation, "ClusterMissing", why)
        case ClusterState.ENDING:
            return _waits(situation, "ClusterEnding", f"{reference} is being deleted: nothing is changed any more")
        case ClusterState.NOT_ALLOWED:
            namespace = channel.metadata.namespace
            remedy = f"add it to spec.topicsFrom.namespaces of the Cluster: {namespace}"
            why = f"{reference} takes no Channels of the namespace {namespace}: {remedy}"
            return _waits(situation, "NamespaceNotAllowed", why)
        case ClusterState.NOT_READY:
            why = f"{reference} does not answer, and is asked again: {situation.why}"
            return _waits(situation, "ClusterNotReady", why, status="Unknown")
        case ClusterState.READY:
            pass
    if not situation.knows_channels:
        why = f"{reference} runs a version of bmq that has no channels: give it a newer image"
        return _waits(situation, "NoChannels", why)
    if (other := _winner(situation)) is not None:
        why = f"{other.title} stands for the channel {channel.channel_name} already: delete one of the two, or "
        again_s = waiting_again_s(channel.status.conditions, now_ms=situation.now_ms)
        return Plan(finding=_not_ready("Collision", f"{why}{_ANOTHER}"), owned=False, again_after_s=again_s)
    return None


def _existing(situation: Situation) -> Plan:
    channel, present, status = situation.channel, situation.present, situation.channel.status
    if present is None:
        return _missing(channel)
    name = channel.channel_name
    if not status.owned or not _may_be_its_own(situation, present):
        if channel.spec.existing == "Refuse":
            remedy = f"write existing: Adopt to have it managed, or {_ANOTHER}"
            why = f"the channel {name} was there before this resource: {remedy}"
            return Plan(finding=_not_ready("AlreadyExists", why), owned=False)
        text = f"the channel {name} was there before, and is managed from now on"
        return _kept(channel, present, Event(reason="Adopted", message=text))
    if status.created_ms and present.created_ms != status.created_ms:
        text = f"somebody deleted the channel {name} and made it again: that one is managed from now on"
        return _kept(channel, present, Event(reason="ChannelReplaced", message=text, warning=True))
    return _kept(channel, present)


def _missing(channel: Channel) -> Plan:
    """It is to be made: the intent is written down first, so that what a crash leaves behind is known as this
    resource's own.
    """
    status, creating = channel.status, Finding(status="Unknown", reason="Creating", message="the channel is declared")
    if not status.owned:
        return Plan(finding=creating, owned=True, again_after_s=0.0)
    events: tuple[Event, ...] = ()
    if status.created_ms:
        text = f"the channel {channel.channel_name} is gone: somebody deleted it. It is made again"
        events = (Event(reason="ChannelLost", message=text, warning=True),)
    return Plan(finding=creating, owned=True, action=Declare(spec=channel.spec.said()), events=events)


def _kept(channel: Channel, present: PresentChannel, *events: Event) -> Plan:
    """The channel is this resource's: it is made what is written."""
    said = channel.spec.said()
    differences = channel_differences(said, present.spec)
    if not differences:
        finding = Finding(status="True", reason=AS_WRITTEN, message="the channel is as it is written")
        return Plan(finding=finding, owned=True, created_ms=present.created_ms, events=events)
    fields = [one.field for one in differences]
    more = f" and {len(fields) - FIELDS_NAMED_MAX} more" if len(fields) > FIELDS_NAMED_MAX else ""
    named = f"{', '.join(fields[:FIELDS_NAMED_MAX])}{more}"
    if _was_as_written(channel):
        text = f"somebody changed the channel; put back: {named}"
        events = (*events, Event(reason="DriftPutBack", message=text))
    return Plan(
        finding=Finding(status="Unknown", reason="Changing", message=f"the channel is changed: {named}"),
        owned=True,
        created_ms=present.created_ms,
        action=Change(spec=said, version=present.version),
        events=events,
    )


def _deletion(situation: Situation) -> Plan:
    """The finalizer is on resources alone that own their channel; even then, what is in doubt stays."""
    channel, present, status = situation.channel, situation.present, situation.channel.status
    gone = Plan(finding=Finding(status="False", reason="Deleted"), owned=False, finished=True)
    if not status.owned:
        return gone
    match situation.cluster:
        case ClusterState.MISSING | ClusterState.ENDING | ClusterState.NOT_ALLOWED:
            return gone
        case ClusterState.NOT_READY:
            now_ms = situation.now_ms if situation.kube_ms is None else situation.kube_ms
            until_ms = _ms(channel.metadata.deletion_timestamp or timestamp(now_ms)) + GIVE_UP_MS
            if situation.namespace_ending or now_ms >= until_ms:
                return gone
            why = (
                f"Cluster {situation.cluster_name} does not answer, and is asked again until {timestamp(until_ms)}: "
                f"{situation.why}"
            )
            finding = Finding(status="Unknown", reason="ClusterNotReady", message=why)
            return Plan(finding=finding, owned=True, created_ms=status.created_ms, again_after_s=SOON_S)
        case ClusterState.READY:
            pass
    if _winner(situation) is not None or present is None:
        return gone
    if status.created_ms not in (0, present.created_ms) or not _may_be_its_own(situation, present):
        return gone
    return Plan(
        finding=Finding(status="Unknown", reason="Deleting", message="the channel is being deleted"),
        owned=True,
        created_ms=present.created_ms,
        action=Delete(version=present.version),
        events=(Event(reason="ChannelDeleted", message=f"the channel {channel.channel_name} was deleted"),),
    )


def _winner(situation: Situation) -> Rival | None:
    channel = situation.channel
    return winner(channel.metadata, owned=channel.status.owned, rivals=situation.rivals)


def _may_be_its_own(situation: Situation, present: PresentChannel) -> bool:
    """Whether the intent that was written down may have come to this channel. Of one that was never seen only its look
    tells, where anything was asked for: a declaration whose answer was lost has made it as it is written, and one that
    was refused has made none.
    """
    channel = situation.channel
    if channel.status.created_ms:
        return True
    if situation.made_none or was_refused(condition(channel.status.conditions)):
        return False
    return not channel_differences(channel.spec.said(), present.spec)


def _was_as_written(channel: Channel) -> bool:
    """Whether this very text was brought about before: what differs now was changed by somebody else."""
    ready = condition(channel.status.conditions)
    return ready is not None and ready.reason == AS_WRITTEN and ready.observed_generation == channel.metadata.generation


def _waits(situation: Situation, reason: str, message: str, *, status: Literal["False", "Unknown"] = "False") -> Plan:
    old = situation.channel.status
    return Plan(
        finding=Finding(status=status, reason=reason, message=message),
        owned=old.owned,
        created_ms=old.created_ms,
        again_after_s=situation.cluster.again_s(old.conditions, now_ms=situation.now_ms),
    )


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _not_ready(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)
