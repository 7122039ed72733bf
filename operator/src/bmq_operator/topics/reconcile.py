"""Brings what is there to what a Topic says."""

from bmq.resources.topic import Topic, TopicStatus
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Outcome


def holds(topic: Topic) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then."""
    del topic
    return False


async def reconcile(context: Context, topic: Topic) -> Outcome:
    """Looks at the topic once, takes the next step, and says what is the case. Raises KubeError, AdminProblem, AdminUnreachable."""
    found = Finding(status="Unknown", reason="NotHandledYet", message="this version of the operator does not handle this kind yet")
    conditions = next_conditions(topic.status.conditions, [found], generation=topic.metadata.generation, now_ms=context.clock.now_ms())
    return Outcome(status=TopicStatus(conditions=conditions, observed_generation=topic.metadata.generation), finished=True)
