"""Brings what is there to what a Channel says: carries out what `plan` decides, by the Cluster's admin REST API."""

from dataclasses import replace
from typing import Final, assert_never

from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.documents import Channel as ChannelDocument
from bmq_admin.errors import AdminError, AdminProblem
from bmq_operator.channels.plan import Change, Declare, Delete, Plan, plan
from bmq_operator.channels.situation import PresentChannel, Situation
from bmq_operator.claims import Claim, Claims
from bmq_operator.conditions import REFUSED, Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Event, Outcome
from bmq_operator.references import SOON_S, ClusterState, Referred, refer, unanswered
from bmq_resources.channel import Channel, ChannelStatus

STEPS_MAX: Final = 6
_OLD_KNOWLEDGE: Final = frozenset((404, 409, 412))
"""Refusals that come of what was changed since it was looked at: a further look decides."""
_NO_CHANNEL: Final = "UnknownChannel"


def holds(channel: Channel) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then. It is there before the
    channel is.
    """
    return channel.status.owned


async def reconcile(context: Context, channel: Channel) -> Outcome:
    """Looks at the channel once, takes the next step, and says what is the case. Raises KubeError."""
    events: dict[str, Event] = {}
    referred = await refer(context, channel.metadata, channel.spec.cluster_ref)
    planned = plan(await _situation(context, channel, referred))
    if planned.owned and not channel.status.owned:
        _claims(context).take(channel.metadata, _claim_of(channel))
        context.known.intents.mean(channel.metadata.uid)
    for _ in range(STEPS_MAX):
        if planned.action is None:
            break
        try:
            channel = await _carry_out(context, channel, referred, planned)
            events |= {event.reason: event for event in planned.events}
        except AdminProblem as problem:
            if problem.passes:
                referred = unanswered(context, referred, problem)
            elif problem.status not in _OLD_KNOWLEDGE:
                text = f"the cluster refuses it: {problem.why}: {problem.remedy}"
                finding = Finding(status="False", reason=REFUSED, message=text)
                planned = replace(planned, finding=finding, action=None, events=())
                break
        except AdminError as error:
            referred = unanswered(context, referred, error)
        planned = plan(await _situation(context, channel, referred))
    else:
        planned = replace(planned, action=None, events=(), again_after_s=SOON_S)
    events |= {event.reason: event for event in planned.events}
    return _outcome(context, channel, planned, tuple(events.values()))


async def _situation(context: Context, channel: Channel, referred: Referred) -> Situation:
    """What is the case, as far as it can be told now."""
    present: PresentChannel | None = None
    knows_channels = True
    if referred.state is ClusterState.READY:
        try:
            present = _present_from(await _client(referred).ask(pages.channel(channel.channel_name)))
        except AdminProblem as problem:
            if not problem.missing:
                referred = unanswered(context, referred, problem)
            knows_channels = not problem.missing or problem.code == _NO_CHANNEL
        except AdminError as error:
            referred = unanswered(context, referred, error)
    return Situation(
        channel=channel,
        cluster_name=referred.title,
        cluster=referred.state,
        now_ms=context.clock.now_ms(),
        kube_ms=context.kube.now_ms(),
        why=referred.why,
        knows_channels=knows_channels,
        present=present,
        rivals=await _claims(context).rivals(context, channel.metadata, _claim_of(channel), referred),
        namespace_ending=context.namespace_ending,
        made_none=context.known.intents.made_none(channel.metadata.uid),
    )


async def _carry_out(context: Context, channel: Channel, referred: Referred, planned: Plan) -> Channel:
    """Takes the step; the resource as the next plan is to see it."""
    client, name = _client(referred), channel.channel_name
    match planned.action:
        case Declare(spec=spec):
            with context.known.intents.asking(channel.metadata.uid):
                made = _present_from(await client.ask(pages.create_channel(name, spec)))
            seen = {"owned": True, "created_ms": made.created_ms}
            return channel.model_copy(update={"status": channel.status.model_copy(update=seen)})
        case Change(spec=spec, version=version):
            await client.ask(pages.change_channel(name, spec, version=version))
        case Delete(version=version):
            await client.ask(pages.delete_channel(name, version=version))
        case None:
            pass
        case _ as never:
            assert_never(never)
    return channel


def _present_from(found: ChannelDocument) -> PresentChannel:
    return PresentChannel(created_ms=found["created_ms"], version=found["version"], spec=found["spec"])


def _client(referred: Referred) -> AdminClient:
    assert referred.client is not None, "nothing is done about a cluster that is not ready"
    return referred.client


def _claims(context: Context) -> Claims:
    known = context.known
    return Claims(kind="Channel", named_by="channelName", listed=known.channel_claims, taken=known.channels_taken)


def _claim_of(channel: Channel) -> Claim:
    reference = channel.spec.cluster_ref
    return reference.namespace or channel.metadata.namespace, reference.name, channel.channel_name


def _outcome(context: Context, channel: Channel, planned: Plan, events: tuple[Event, ...]) -> Outcome:
    generation = channel.metadata.generation
    status = ChannelStatus(
        channel_name=channel.channel_name,
        topic_name=channel.topic_name,
        owned=planned.owned,
        created_ms=planned.created_ms,
        conditions=next_conditions(
            channel.status.conditions, [planned.finding], generation=generation, now_ms=context.clock.now_ms()
        ),
        observed_generation=generation,
    )
    return Outcome(status=status, events=events, again_after_s=planned.again_after_s, finished=planned.finished)
