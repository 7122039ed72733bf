"""Takes back into use what was drained for a roll, where all else of a Cluster is left as it is: its deletion waits for
somebody, or its spec is not understood.
"""

from pydantic import ValidationError

from bmq_operator.clusters.asking import ask
from bmq_operator.clusters.deletion import AGAIN_S, WAITING_AGAIN_S
from bmq_operator.clusters.drained import back_in_use, unused_note, why_left
from bmq_operator.clusters.existing import Existing, read_existing
from bmq_operator.clusters.nodes import pods_seen
from bmq_operator.clusters.steps import DRAINED, marked, taken
from bmq_operator.clusters.upgrade import Idle, Step, Uncordon
from bmq_operator.conditions import Finding
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_operator.understood import understood
from bmq_resources.cluster import Cluster


async def take_back(context: Context, cluster: Cluster, existing: Existing) -> tuple[Finding | None, float | None]:
    """Gives one broker partitions again that was drained for what does not go on; what is to be told of those that are
    left, and when to look again: never by itself once there are none, or while it is paused. Raises KubeError.
    """
    sets, paused = existing.stateful_sets(), cluster.spec.paused
    drained = marked(cluster, sets.get("broker"))
    if not drained:
        return None, None
    pods = pods_seen(existing.pods, sets, now_ms=context.clock.now_ms())
    answer = await ask(context, cluster, pods)
    step: Step = Idle()
    if not paused and (back := back_in_use(pods, answer.state, drained)) is not None:
        step = await taken(context, cluster, sets.get("broker"), back)
    note = unused_note(pods, answer, drained, left=why_left(step, paused=paused, halted=True))
    again_s = AGAIN_S if isinstance(step, Uncordon) else WAITING_AGAIN_S
    return note, None if paused else again_s


async def take_back_unread(context: Context, manifest: Manifest) -> tuple[str, float | None]:
    """Takes brokers back into use whose Cluster's spec is not understood; what is to be told of them, and when to look
    again. Raises KubeError.
    """
    spec = {**manifest["spec"], "store": {"url": "s3://unread"}}  # which one is none of it
    try:
        cluster = understood(Cluster, {**manifest, "spec": spec})
    except ValidationError:
        return "", None
    if DRAINED not in cluster.metadata.annotations:
        return "", None
    note, again_s = await take_back(context, cluster, await read_existing(context.kube, cluster))
    return "" if note is None else note.message, again_s
