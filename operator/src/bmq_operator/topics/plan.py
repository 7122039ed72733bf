"""What is to be done about a Topic, and what is to be said of it. Pure.

`plan` is asked again after its actions were carried out, with what is there then; where it names no action, its finding
is the truth. How a resource knows that a topic is its own is in docs/decisions/0027-topics-and-lanes.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from bmq.errors import InvalidTopicName
from bmq.naming.names import check_topic_name, is_internal
from bmq_operator.conditions import Finding, condition, was_refused
from bmq_operator.outcome import Event
from bmq_operator.references import ClusterState, waiting_again_s
from bmq_operator.rivals import Rival, winner
from bmq_operator.topics.situation import Present, Situation
from bmq_resources.differences import Difference, config_differences
from bmq_resources.references import CONFIRM_DELETION
from bmq_resources.topic import Topic

AS_WRITTEN: Final = "AsWritten"
MORE_PARTITIONS: Final = "MorePartitions"
_ANOTHER: Final = "create another Topic with another topicName, and delete this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Makes the topic."""

    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """Gives it more partitions."""

    total: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfigs:
    """Sets keys, and those with None back to their defaults."""

    differences: tuple[Difference, ...]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Deletes the topic with its records."""

    version: str


Action: TypeAlias = Create | Grow | SetConfigs | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`owned` and `topic_id` go into the status, and from there into the next plan: it is all that is remembered."""

    finding: Finding
    owned: bool
    topic_id: str = ""
    partitions: int = 0
    action: Action | None = None
    events: tuple[Event, ...] = ()
    again_after_s: float | None = None
    finished: bool = False
    needs_record_count: bool = False
    """Whether it cannot be decided before somebody has looked whether the topic holds records."""


def plan(situation: Situation) -> Plan:
    """The next step."""
    if situation.topic.metadata.deletion_timestamp is not None:
        return _deletion(situation)
    return _obstacle(situation) or _existing(situation)


def _obstacle(situation: Situation) -> Plan | None:
    """What keeps the operator from looking at the topic at all. What was owned stays so."""
    topic, cluster = situation.topic, situation.cluster
    reference = f"Cluster {situation.cluster_name}"
    match cluster:
        case ClusterState.MISSING:
            return _waits(
                situation,
                "ClusterMissing",
                f"{reference} does not exist: create it, or delete this and write another clusterRef",
            )
        case ClusterState.ENDING:
            return _waits(situation, "ClusterEnding", f"{reference} is being deleted: nothing is changed any more")
        case ClusterState.NOT_ALLOWED:
            namespace = topic.metadata.namespace
            remedy = f"add it to spec.topicsFrom.namespaces of the Cluster: {namespace}"
            return _waits(
                situation, "NamespaceNotAllowed", f"{reference} takes no Topics of the namespace {namespace}: {remedy}"
            )
        case ClusterState.NOT_READY:
            return _waits(
                situation,
                "ClusterNotReady",
                f"{reference} does not answer, and is asked again: {situation.why}",
                status="Unknown",
            )
        case ClusterState.READY:
            pass
    if why := _unusable(topic.topic_name):
        return Plan(finding=_not_ready("InvalidName", why), owned=False)
    if topic.spec.managed and (other := _winner(situation)) is not None:
        why = f"{other.title} stands for the topic {topic.topic_name} already: delete one of the two, or {_ANOTHER}"
        again_s = waiting_again_s(topic.status.conditions, now_ms=situation.now_ms)
        return Plan(finding=_not_ready("Collision", why), owned=False, again_after_s=again_s)
    return None


def _existing(situation: Situation) -> Plan:
    topic, present = situation.topic, situation.present
    if not topic.spec.managed:
        return _unmanaged(topic, present)
    status = topic.status
    if present is None:
        return _missing(topic)
    if not status.owned or not _may_be_its_own(situation, present):
        if topic.spec.existing == "Refuse":
            why = (
                f"the topic {topic.topic_name} was there before this resource: write existing: Adopt to have it "
                f"managed, or {_ANOTHER}"
            )
            return Plan(
                finding=_not_ready("AlreadyExists", why),
                owned=False,
                topic_id=present.topic_id,
                partitions=present.partitions,
            )
        if why := _why_not_to_take_over(topic, present):
            finding = _not_ready("ConfigDiffers", f"the topic {topic.topic_name} {why}")
            return Plan(finding=finding, owned=False, topic_id=present.topic_id, partitions=present.partitions)
        return _kept(
            topic,
            present,
            Event(
                reason="Adopted", message=f"the topic {topic.topic_name} was there before, and is managed from now on"
            ),
        )
    if status.topic_id and present.topic_id != status.topic_id:
        another = (
            f"is another one than before ({present.topic_id}, it was {status.topic_id}): somebody deleted it "
            "and made it again"
        )
        text = f"the topic {topic.topic_name} {another}"
        if why := _why_not_to_take_over(topic, present):
            finding = _not_ready("ConfigDiffers", f"{text}, and it {why}")
            return Plan(finding=finding, owned=True, topic_id=status.topic_id, partitions=present.partitions)
        return _kept(
            topic, present, Event(reason="TopicReplaced", message=f"{text}; it is managed from now on", warning=True)
        )
    return _kept(topic, present)


def _why_not_to_take_over(topic: Topic, present: Present) -> str:
    """What somebody gave a topic that this resource did not make, and would lose; empty: nothing."""
    unwritten = sorted(present.configs.keys() - topic.spec.config.keys())
    has = ", ".join(f"{name}: {present.configs[name]}" for name in unwritten)
    return (
        f"has {has}: write it in config, else it would go back to its default, which may delete records"
        if unwritten
        else ""
    )


def _missing(topic: Topic) -> Plan:
    """It is to be made: the intent is written down first, so that what a crash leaves behind is known as this
    resource's own.
    """
    status, creating = topic.status, Finding(status="Unknown", reason="Creating", message="the topic is being made")
    create = Create(partitions=topic.spec.partitions, configs=topic.spec.config)
    if status.owned and status.topic_id:
        text = (
            f"the topic {topic.topic_name} ({status.topic_id}) is gone: somebody deleted it, with its records. "
            "It is made again, empty"
        )
        return Plan(
            finding=creating, owned=True, action=create, events=(Event(reason="TopicLost", message=text, warning=True),)
        )
    if status.owned:
        return Plan(finding=creating, owned=True, action=create)
    return Plan(finding=creating, owned=True, again_after_s=0.0)


def _kept(topic: Topic, present: Present, *events: Event) -> Plan:
    """The topic is this resource's: what differs is changed, one thing at a time."""
    finding = Finding(status="True", reason=AS_WRITTEN, message="the topic is as it is written")
    action: Action | None = None
    spec = topic.spec
    configs = tuple(config_differences(spec.config, present.configs))
    if present.partitions < spec.partitions:
        action = Grow(total=spec.partitions, version=present.version)
        finding = Finding(
            status="Unknown", reason="Changing", message=f"partitions: {present.partitions}, to be {spec.partitions}"
        )
    elif configs:
        action = SetConfigs(differences=configs, version=present.version)
        finding = Finding(status="Unknown", reason="Changing", message=f"configuration: {said(configs)}")
        if _was_as_written(topic):
            events = (
                *events,
                Event(
                    reason="DriftPutBack",
                    message=f"somebody changed the topic's configuration; put back: {said(configs)}",
                ),
            )
    elif present.partitions > spec.partitions:
        why = (
            f"partitions: {spec.partitions}: the topic has {present.partitions}, and partitions can only grow: "
            f"write {present.partitions}, or more"
        )
        finding = _not_ready(MORE_PARTITIONS, why)
    return Plan(
        finding=finding,
        owned=True,
        topic_id=present.topic_id,
        partitions=present.partitions,
        action=action,
        events=events,
    )


def _unmanaged(topic: Topic, present: Present | None) -> Plan:
    if present is None:
        finding = _not_ready(
            "TopicMissing",
            f"there is no topic {topic.topic_name}, and managed: false keeps the operator from making it",
        )
        return Plan(finding=finding, owned=False)
    differences = list(config_differences(topic.spec.config, present.configs))
    if present.partitions != topic.spec.partitions:
        differences.insert(0, Difference(field="partitions", before=present.partitions, after=topic.spec.partitions))
    text = f"; other than written: {said(differences)}" if differences else ""
    finding = Finding(status="True", reason="Unmanaged", message=f"managed: false: nothing is changed{text}")
    return Plan(finding=finding, owned=False, topic_id=present.topic_id, partitions=present.partitions)


def _deletion(situation: Situation) -> Plan:
    """The finalizer is on resources alone that own their topic and say Delete; even then, what is in doubt stays."""
    topic, present, status = situation.topic, situation.present, situation.topic.status
    gone = Plan(finding=Finding(status="False", reason="Deleted", message=""), owned=False, finished=True)
    if situation.namespace_ending or not (
        topic.spec.managed and topic.spec.deletion_policy == "Delete" and status.owned
    ):
        return gone
    match situation.cluster:
        case ClusterState.MISSING | ClusterState.ENDING | ClusterState.NOT_ALLOWED:
            return gone
        case ClusterState.NOT_READY:
            why = (
                f"Cluster {situation.cluster_name} does not answer, and is asked again: {situation.why}. "
                "deletionPolicy: Retain ends the waiting"
            )
            return _waits(situation, "ClusterNotReady", why, status="Unknown")
        case ClusterState.READY:
            pass
    if _winner(situation) is not None or present is None or (status.topic_id and present.topic_id != status.topic_id):
        return gone
    if not _may_be_its_own(situation, present):
        return gone
    mine = Plan(
        finding=Finding(status="Unknown", reason="Deleting", message="the topic is being deleted"),
        owned=True,
        topic_id=present.topic_id,
        partitions=present.partitions,
    )
    if topic.metadata.annotations.get(CONFIRM_DELETION) != "true":
        if situation.holds_records is None:
            return replace(mine, needs_record_count=True)
        if situation.holds_records:
            how = (
                f'annotate it with {CONFIRM_DELETION}: "true" to lose them, or write deletionPolicy: Retain to '
                "keep the topic"
            )
            return replace(
                mine, finding=_not_ready("DataProtected", f"the topic {topic.topic_name} holds records: {how}")
            )
    event = Event(reason="TopicDeleted", message=f"the topic {topic.topic_name} ({present.topic_id}) was deleted")
    return replace(mine, action=Delete(version=present.version), events=(event,))


def said(differences: Sequence[Difference]) -> str:
    """`retention.ms 5 → 1000`."""
    return ", ".join(f"{one.field} {_value(one.before)} → {_value(one.after)}" for one in differences)


def _value(value: str | int | None) -> str:
    return "default" if value is None else str(value)


def _winner(situation: Situation) -> Rival | None:
    topic = situation.topic
    return winner(topic.metadata, owned=topic.status.owned, rivals=situation.rivals)


def _may_be_its_own(situation: Situation, present: Present) -> bool:
    """Whether the intent that was written down may have come to this topic. Of one whose id is not known only its look
    tells, where anything was asked for: a creation whose answer was lost has made it as it is written, and one that was
    refused has made none."""
    topic = situation.topic
    if topic.status.topic_id:
        return True
    if situation.made_none:
        return False
    same = present.partitions == topic.spec.partitions and not list(
        config_differences(topic.spec.config, present.configs)
    )
    return same and not was_refused(condition(topic.status.conditions))


def _was_as_written(topic: Topic) -> bool:
    """Whether this very text was brought about before: what differs now was changed by somebody else."""
    ready = condition(topic.status.conditions)
    return (
        ready is not None
        and ready.reason in (AS_WRITTEN, MORE_PARTITIONS)
        and ready.observed_generation == topic.metadata.generation
    )


def _unusable(name: str) -> str:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        return f"{error}: {_ANOTHER}"
    return f"{name} is one of the coordinators' own topics: {_ANOTHER}" if is_internal(name) else ""


def _waits(situation: Situation, reason: str, message: str, *, status: Literal["False", "Unknown"] = "False") -> Plan:
    old = situation.topic.status
    return Plan(
        finding=Finding(status=status, reason=reason, message=message),
        owned=old.owned,
        topic_id=old.topic_id,
        partitions=old.partitions,
        again_after_s=situation.cluster.again_s(old.conditions, now_ms=situation.now_ms),
    )


def _not_ready(reason: str, message: str) -> Finding:
    return Finding(status="False", reason=reason, message=message)
