"""Brings what is there to what a Topic says: carries out what `plan` decides, through the Cluster's admin REST API."""

from dataclasses import replace
from typing import Final, assert_never

from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, AdminProblem
from bmq_operator.claims import Claim, Claims
from bmq_operator.conditions import REFUSED, Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Event, Outcome
from bmq_operator.references import SOON_S, ClusterState, Referred, refer, unanswered
from bmq_operator.topics.known import TopicsOfCluster, topics_of, view_of
from bmq_operator.topics.plan import Create, Delete, Grow, Plan, SetConfigs, plan
from bmq_operator.topics.situation import Present, Situation
from bmq_resources.differences import as_changes
from bmq_resources.topic import Topic, TopicStatus

STEPS_MAX: Final = 6
_OLD_KNOWLEDGE: Final = frozenset((404, 409, 412))
"""Refusals that come of having looked some seconds ago: a further look decides."""


def holds(topic: Topic) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then. It is there before the
    topic is.
    """
    return topic.spec.managed and topic.spec.deletion_policy == "Delete" and topic.status.owned


async def reconcile(context: Context, topic: Topic) -> Outcome:
    """Looks at the topic once, takes the next step, and says what is the case. Raises KubeError."""
    events: dict[str, Event] = {}
    referred = await refer(context, topic.metadata, topic.spec.cluster_ref)
    planned = plan(await _situation(context, topic, referred))
    if planned.owned and not topic.status.owned:
        _claims(context).take(topic.metadata, _claim_of(topic))
        context.known.intents.mean(topic.metadata.uid)
    for _ in range(STEPS_MAX):
        try:
            if planned.needs_record_count:
                planned = await _plan_with_records(context, topic, referred)
            if planned.action is None:
                break
            topic = await _carry_out(context, topic, referred, planned)
            events |= {event.reason: event for event in planned.events}
        except AdminProblem as problem:
            if problem.status in _OLD_KNOWLEDGE:
                _topics(context, referred).forget()
            elif problem.passes:
                referred = unanswered(context, referred, problem)
            else:
                planned = replace(
                    planned,
                    finding=Finding(
                        status="False",
                        reason=REFUSED,
                        message=f"the cluster refuses it: {problem.why}: {problem.remedy}",
                    ),
                    action=None,
                    events=(),
                )
                break
        except AdminError as error:
            referred = unanswered(context, referred, error)
        planned = plan(await _situation(context, topic, referred))
    else:
        planned = replace(planned, action=None, events=(), again_after_s=SOON_S)
    events |= {event.reason: event for event in planned.events}
    return _outcome(context, topic, planned, tuple(events.values()))


async def _situation(context: Context, topic: Topic, referred: Referred) -> Situation:
    """What is the case, as far as it can be told now."""
    ending = topic.metadata.deletion_timestamp is not None
    present: Present | None = None
    if referred.state is ClusterState.READY:
        known = _topics(context, referred)
        try:
            present = None if ending else await known.present(topic.topic_name)
            if present is None:
                # what is made or deleted is not decided on what was so seconds ago
                present = await known.present_now(topic.topic_name)
        except AdminError as error:
            referred = unanswered(context, referred, error)
    return Situation(
        topic=topic,
        cluster_name=referred.title,
        cluster=referred.state,
        now_ms=context.clock.now_ms(),
        why=referred.why,
        present=present,
        rivals=await _claims(context).rivals(context, topic.metadata, _claim_of(topic), referred),
        namespace_ending=context.namespace_ending,
        made_none=context.known.intents.made_none(topic.metadata.uid),
    )


def _claims(context: Context) -> Claims:
    known = context.known
    return Claims(kind="Topic", named_by="topicName", listed=known.claims, taken=known.taken)


def _claim_of(topic: Topic) -> Claim:
    reference = topic.spec.cluster_ref
    return reference.namespace or topic.metadata.namespace, reference.name, topic.topic_name


async def _plan_with_records(context: Context, topic: Topic, referred: Referred) -> Plan:
    holds_records = False
    async for partition in _client(referred).all(pages.partitions(topic.topic_name)):
        first, end = partition["log_start"], partition["high_watermark"]
        if holds_records := first is None or end is None or end > first:
            break
    return plan(replace(await _situation(context, topic, referred), holds_records=holds_records))


async def _carry_out(context: Context, topic: Topic, referred: Referred, planned: Plan) -> Topic:
    """Takes the step; the resource as the next plan is to see it."""
    client, known, name = _client(referred), _topics(context, referred), topic.topic_name
    match planned.action:
        case Create(partitions=partitions, configs=configs):
            with context.known.intents.asking(topic.metadata.uid):
                made = view_of(await client.ask(pages.create_topic(name, partitions=partitions, configs=configs)))
            try:
                await known.learn(name, made)
            except AdminError:  # of a list, not of the creation: the next look at what is there meets it again
                known.forget()
            return topic.model_copy(
                update={"status": topic.status.model_copy(update={"owned": True, "topic_id": made.topic_id})}
            )
        case Grow(total=total, version=version):
            await known.learn(name, view_of(await client.ask(pages.grow_topic(name, total=total, version=version))))
        case SetConfigs(differences=differences, version=version):
            await client.ask(pages.change_topic(name, as_changes(differences), version=version))
            await known.present_now(name)
        case Delete(version=version):
            await client.ask(pages.delete_topic(name, version=version))
            await known.learn(name, None)
        case None:
            pass
        case _ as never:
            assert_never(never)
    return topic


def _client(referred: Referred) -> AdminClient:
    assert referred.client is not None, "nothing is done about a cluster that is not ready"
    return referred.client


def _topics(context: Context, referred: Referred) -> TopicsOfCluster:
    return topics_of(context.known, _client(referred))


def _outcome(context: Context, topic: Topic, planned: Plan, events: tuple[Event, ...]) -> Outcome:
    generation = topic.metadata.generation
    status = TopicStatus(
        topic_name=topic.topic_name,
        topic_id=planned.topic_id,
        partitions=planned.partitions,
        owned=planned.owned,
        conditions=next_conditions(
            topic.status.conditions, [planned.finding], generation=generation, now_ms=context.clock.now_ms()
        ),
        observed_generation=generation,
    )
    return Outcome(status=status, events=events, again_after_s=planned.again_after_s, finished=planned.finished)
