"""Brings what is there to what a Lane says."""

from bmq.resources.lane import Lane, LaneStatus
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Outcome


def holds(lane: Lane) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then."""
    del lane
    return False


async def reconcile(context: Context, lane: Lane) -> Outcome:
    """Looks at the lane once, takes the next step, and says what is the case. Raises KubeError, AdminProblem, AdminUnreachable."""
    found = Finding(status="Unknown", reason="NotHandledYet", message="this version of the operator does not handle this kind yet")
    conditions = next_conditions(lane.status.conditions, [found], generation=lane.metadata.generation, now_ms=context.clock.now_ms())
    return Outcome(status=LaneStatus(conditions=conditions, observed_generation=lane.metadata.generation), finished=True)
