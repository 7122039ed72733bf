"""What the leading controller says of a cluster, and what it is asked to do."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bmq_admin import pages
from bmq_admin.errors import AdminError, AdminProblem, AdminUnreachable, TimedOut
from bmq_operator.answers import Allowance, TooMuch
from bmq_operator.clusters.access import admin_of, why_unanswered
from bmq_operator.clusters.nodes import ClusterState, Pod, failed_step, state_from
from bmq_operator.conditions import Finding
from bmq_operator.context import Context
from bmq_resources.cluster import Cluster

NODES_BYTES_MAX: Final = 8 << 20
"""How much memory a look may keep what is told of nodes in: some six thousand have room in it."""
NO_HEIR: Final = "NoHeir"
UNDRAINED: Final = frozenset((NO_HEIR, "NoHeirInPool", "NotABroker"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The state, or why there is none."""

    state: ClusterState | None = None
    finding: Finding | None = None
    """Why there is no state."""
    store_trouble: str = ""
    """What a controller that does not lead says of the store; empty: nothing is wrong, or nobody could say."""

    @property
    def why_not(self) -> str:
        return "" if self.finding is None else self.finding.message


async def ask(context: Context, cluster: Cluster, pods: Iterable[Pod]) -> Answer:
    """Without a controller that is ready nobody would answer, and that would take its time."""
    if any(pod.component == "controller" and pod.ready for pod in pods):
        return await ask_state(context, cluster)
    return Answer(finding=Finding(status="False", reason="NoController", message="no controller is ready"))


async def ask_state(context: Context, cluster: Cluster) -> Answer:
    """Raises KubeError alone: a cluster that does not answer is an answer, too; those that refer to it go by it."""
    namespace, name = key = cluster.metadata.namespace, cluster.metadata.name
    silences, allowance = context.known.silences, Allowance(left_bytes=NODES_BYTES_MAX)
    try:
        admin = await admin_of(context, cluster)
        nodes = [allowance.keep(one) async for one in admin.all(pages.nodes())]
        state = state_from(await admin.ask(pages.cluster()), nodes, await admin.ask(pages.store()))
        silences.end(key)
        return Answer(state=state)
    except AdminUnreachable as error:
        if isinstance(error, TimedOut):
            silences.begin(key, str(error), now_s=asyncio.get_running_loop().time())
        why = why_unanswered(error, namespace=namespace, name=name)
        return Answer(finding=Finding(status="Unknown", reason="NoAnswer", message=f"no controller answers: {why}"))
    except TooMuch:
        text = (
            f"more nodes are told of than fit into {NODES_BYTES_MAX >> 20} MiB: see whether a controller of the "
            "Cluster answers, or something else that has the labels of one"
        )
        return Answer(finding=Finding(status="Unknown", reason="NoAnswer", message=text))
    except AdminProblem as problem:
        if not problem.passes:
            return Answer(finding=Finding(status="False", reason="AdminRefuses", message=str(problem)))
        finding = Finding(status="False", reason="NoLeader", message=f"no controller leads: {problem}")
        return Answer(finding=finding, store_trouble=await _store_trouble(context, cluster))


async def _store_trouble(context: Context, cluster: Cluster) -> str:
    """Any controller can say it, whoever leads."""
    try:
        store = await (await admin_of(context, cluster)).ask(pages.store())
    except AdminError:
        return ""
    return "" if store["ok"] else failed_step(store)


async def drain(context: Context, cluster: Cluster, node_id: int) -> AdminProblem | None:
    """Begins to move a broker's partitions to others; why there is nobody, or nothing, to do that with (`UNDRAINED`).
    Raises KubeError, AdminError.
    """
    try:
        await (await admin_of(context, cluster)).ask(pages.drain(node_id))
    except AdminProblem as problem:
        if problem.code in UNDRAINED:
            return problem
        raise
    return None


async def uncordon(context: Context, cluster: Cluster, node_id: int) -> None:
    """Gives it partitions again. Raises KubeError, AdminError; a node that nobody knows is success."""
    try:
        await (await admin_of(context, cluster)).ask(pages.uncordon(node_id))
    except AdminProblem as problem:
        if not problem.missing:
            raise
