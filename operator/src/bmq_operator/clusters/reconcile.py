"""Brings what is there to what a Cluster says."""

from bmq.resources.cluster import Cluster, ClusterStatus
from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Outcome


def holds(cluster: Cluster) -> bool:
    """Whether a deletion has to wait for something: the finalizer is on the resource only then."""
    del cluster
    return False


async def reconcile(context: Context, cluster: Cluster) -> Outcome:
    """Looks at the cluster once, takes the next step, and says what is the case. Raises KubeError, AdminProblem, AdminUnreachable."""
    found = Finding(status="Unknown", reason="NotHandledYet", message="this version of the operator does not handle this kind yet")
    conditions = next_conditions(cluster.status.conditions, [found], generation=cluster.metadata.generation, now_ms=context.clock.now_ms())
    return Outcome(status=ClusterStatus(conditions=conditions, observed_generation=cluster.metadata.generation), finished=True)
