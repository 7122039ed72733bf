"""What the leading controller says of a cluster, and what it is asked to do."""

from dataclasses import dataclass

from bmq.resources.cluster import Cluster
from bmq_operator.admin import AdminProblem, AdminUnreachable
from bmq_operator.cluster_access import admin_of
from bmq_operator.clusters.nodes import ClusterState, state_from
from bmq_operator.conditions import Finding
from bmq_operator.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The state, or why there is none."""

    state: ClusterState | None = None
    finding: Finding | None = None
    """Why there is no state."""

    @property
    def why_not(self) -> str:
        return "" if self.finding is None else self.finding.message


async def ask_state(context: Context, cluster: Cluster) -> Answer:
    """Raises KubeError alone: a cluster that does not answer is an answer, too."""
    try:
        admin = await admin_of(context, cluster)
        nodes = [one async for one in admin.items("nodes")]
        return Answer(state=state_from(await admin.get("cluster"), nodes, await admin.get("debug", "store")))
    except AdminUnreachable as error:
        return Answer(finding=Finding(status="Unknown", reason="NoAnswer", message=f"no controller answers: {error}"))
    except AdminProblem as problem:
        reason = "NoLeader" if problem.passes else "AdminRefuses"
        return Answer(finding=Finding(status="False", reason=reason, message=f"no controller leads: {problem}" if problem.passes else str(problem)))


async def drain(context: Context, cluster: Cluster, node_id: int) -> bool:
    """Begins to move a broker's partitions to others. False: there is no other broker that could take them. Raises KubeError, AdminError."""
    try:
        await (await admin_of(context, cluster)).post("nodes", str(node_id), "drain")
    except AdminProblem as problem:
        if problem.code in ("NoHeir", "NotABroker"):
            return False
        raise
    return True


async def uncordon(context: Context, cluster: Cluster, node_id: int) -> None:
    """Gives it partitions again. Raises KubeError, AdminError; a node that nobody knows is success."""
    try:
        await (await admin_of(context, cluster)).post("nodes", str(node_id), "uncordon")
    except AdminProblem as problem:
        if not problem.missing:
            raise
