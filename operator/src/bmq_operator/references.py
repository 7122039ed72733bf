"""The Cluster that a Topic, a Lane or a Channel refers to: whether it is there, takes resources of that namespace, and
can be asked.
"""

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, AdminUnreachable, TimedOut
from bmq_operator.clusters.access import NotUnderstood, admin_of, find_cluster, why_unanswered
from bmq_operator.conditions import condition, pace_s
from bmq_operator.context import Context
from bmq_resources.base import Condition, ObjectMeta
from bmq_resources.cluster import Cluster
from bmq_resources.references import ClusterRef

ALL_NAMESPACES = "*"
SOON_S: Final = 10.0
"""When to look again at what its Cluster keeps waiting."""
WAITING_AGAIN_S: Final = 60.0
"""The same, at most, of what has waited for long: all is looked at as often anyway."""


class ClusterState(enum.Enum):
    """Whether the Cluster that a resource refers to can be asked."""

    READY = "ready"
    MISSING = "missing"
    ENDING = "ending"
    NOT_ALLOWED = "not allowed"
    NOT_READY = "not ready"

    def again_s(self, conditions: Sequence[Condition], *, now_ms: int) -> float:
        """How soon to look again at a resource, of these conditions, that its Cluster keeps waiting. That it came,
        takes resources of another namespace or went is heard of; that it answers is not.
        """
        return SOON_S if self is ClusterState.NOT_READY else waiting_again_s(conditions, now_ms=now_ms)


def waiting_again_s(conditions: Sequence[Condition], *, now_ms: int) -> float:
    """How soon to look again at a resource, of these conditions, that waits for another one: the longer it has, the
    later. Nobody hears of a rival that went, but many may name the same.
    """
    return pace_s(condition(conditions), first_s=SOON_S, most_s=WAITING_AGAIN_S, now_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """`why`: it is not ready. `client` is there where it is ready."""

    namespace: str
    name: str
    state: ClusterState
    why: str = ""
    cluster: Cluster | None = None
    client: AdminClient | None = None

    @property
    def title(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    def unreachable(self, why: str) -> "Referred":
        """The same, found not to answer; with what the Cluster says of itself."""
        ready = None if self.cluster is None else condition(self.cluster.status.conditions)
        said = (
            f" (it says {ready.reason}: {ready.message})"
            if ready is not None and ready.status != "True" and ready.message
            else ""
        )
        return replace(self, state=ClusterState.NOT_READY, why=why + said)


async def refer(context: Context, meta: ObjectMeta, reference: ClusterRef) -> Referred:
    """What a resource refers to. Read once within a few seconds for all that refer to it. Raises KubeError."""
    namespace, name = reference.namespace or meta.namespace, reference.name

    async def read() -> Referred:
        return await _read(context, namespace, name)

    found: Referred = await context.known.clusters.get((namespace, name), read)
    if found.cluster is not None and not allowed(found.cluster, meta.namespace):
        return replace(found, state=ClusterState.NOT_ALLOWED, client=None)
    if found.state is ClusterState.READY and (
        why := context.known.silences.why((namespace, name), now_s=asyncio.get_running_loop().time())
    ):
        return replace(found.unreachable(why), client=None)
    return found


def unanswered(context: Context, referred: Referred, error: AdminError) -> Referred:
    """What asking it came to: others that refer to it need not wait as long for the same."""
    if isinstance(error, TimedOut):
        context.known.silences.begin(
            (referred.namespace, referred.name), str(error), now_s=asyncio.get_running_loop().time()
        )
    return referred.unreachable(why_unanswered(error, namespace=referred.namespace, name=referred.name))


def allowed(cluster: Cluster, namespace: str) -> bool:
    """Whether the Cluster takes resources of this namespace."""
    accepted = cluster.spec.topics_from.namespaces
    return namespace == cluster.metadata.namespace or namespace in accepted or ALL_NAMESPACES in accepted


async def _read(context: Context, namespace: str, name: str) -> Referred:
    found = Referred(namespace=namespace, name=name, state=ClusterState.MISSING)
    try:
        cluster = await find_cluster(context, namespace, name)
    except NotUnderstood as why:
        return found.unreachable(f"the Cluster is not understood: {why}")
    if cluster is None:
        return found
    found = replace(found, cluster=cluster)
    if cluster.metadata.deletion_timestamp is not None:
        return replace(found, state=ClusterState.ENDING)
    try:
        return replace(found, state=ClusterState.READY, client=await admin_of(context, cluster))
    except AdminUnreachable as error:
        return found.unreachable(error.why)
