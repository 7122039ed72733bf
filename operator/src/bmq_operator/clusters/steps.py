"""Takes the step that `upgrade` decided on. What was drained is noted on the Cluster, so that another operator goes on
from there, whatever became of the StatefulSets; and on that of the brokers, where an older one looks for it that comes
back in the middle of a roll."""

from typing import Final

from bmq_admin.errors import AdminError, AdminProblem
from bmq_operator.clusters.asking import NO_HEIR, drain, uncordon
from bmq_operator.clusters.existing import owner_of
from bmq_operator.clusters.names import Names
from bmq_operator.clusters.proven import PROVEN, text_of
from bmq_operator.clusters.upgrade import DeletePod, Drain, Shrink, Step, Uncordon, Wait
from bmq_operator.context import Context
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster

DRAINED: Final = "bmq.io/drained-by-operator"
_DIGITS_MAX: Final = 9


def marked(cluster: Cluster, brokers: Manifest | None) -> frozenset[int]:
    """The node ids that the operator drained. An older one noted them on the brokers' StatefulSet alone."""
    text = f"{cluster.metadata.annotations.get(DRAINED, '')},{_noted(brokers)}"
    return frozenset(int(part) for part in text.split(",") if part.isdecimal() and len(part) <= _DIGITS_MAX)


async def take(context: Context, cluster: Cluster, brokers: Manifest | None, step: Step) -> Step:
    """What was done: the step, or what it has to wait for. Idempotent. Raises KubeError, AdminError."""
    kube, names = context.kube, Names.of(cluster)
    match step:
        case DeletePod(pod=pod, uid=uid):
            await kube.delete("Pod", names.namespace, pod, uid=uid)
        case Drain(node_id=node_id, pod=pod, uid=uid):
            if (problem := await _drained(context, cluster, brokers, step)) is not None:
                if not pod:
                    text = (
                        f"broker {node_id} cannot be drained, as no other broker takes partitions: {problem.why}. Take "
                        "one back into use (kubectl bmq drain BROKER --undo), or ask for more brokers"
                    )
                    return Wait(reason=step.reason, message=text)
                if problem.code == NO_HEIR:
                    # There are others, else it would not be drained: these would have no owner without it.
                    text = (
                        f"{pod} is not replaced, as the other brokers are there, and do not take its partitions: "
                        f"{problem.why}. Where the newest settings put brokers into another pool (BMQ_POOL), correct "
                        "them"
                    )
                    return Wait(reason=step.reason, message=text)
                await kube.delete("Pod", names.namespace, pod, uid=uid)
        case Uncordon(node_id=node_id):
            await uncordon(context, cluster, node_id)
            await _mark(context, cluster, brokers, marked(cluster, brokers) - {node_id})
        case Shrink(replicas=replicas, component=component):
            there = brokers
            if component != "broker":
                there = await kube.get("StatefulSet", names.namespace, names.role(component))
                if there is None or owner_of(there) != cluster.metadata.uid:
                    text = f"StatefulSet {names.role(component)} is none of the Cluster's any more"
                    return Wait(reason=step.reason, message=text)
            await _change(context, there, {"spec": {"replicas": replicas}})
        case _:
            pass
    return step


async def taken(context: Context, cluster: Cluster, brokers: Manifest | None, step: Step) -> Step:
    """What was done of it, or what it waits for. Raises KubeError."""
    try:
        return await take(context, cluster, brokers, step)
    except AdminError as error:
        return Wait(
            reason=step.reason,
            message=f"{step.message}: the leading controller was asked, and has not done it: {error}",
        )


async def note_proven(context: Context, cluster: Cluster, proven: frozenset[str]) -> None:
    """At the Cluster. Raises KubeError."""
    meta = cluster.metadata
    note = {"metadata": {"annotations": {PROVEN: text_of(proven)}}}
    await context.kube.merge("Cluster", meta.namespace, meta.name, note, uid=meta.uid)


async def _drained(context: Context, cluster: Cluster, brokers: Manifest | None, step: Drain) -> AdminProblem | None:
    """Asks for it, which is noted before; why there is nobody, or nothing, to do that with, and the note is gone.
    Raises KubeError, AdminError.
    """
    heirless, uid, now_ms = context.known.heirless, cluster.metadata.uid, context.clock.now_ms()
    if (refused := heirless.lately(uid, step.node_id, now_ms=now_ms)) is not None:
        return refused
    noted = marked(cluster, brokers)
    if step.mark:
        await _mark(context, cluster, brokers, noted | {step.node_id})
    problem = await drain(context, cluster, step.node_id)
    if problem is not None and step.mark:
        await _mark(context, cluster, brokers, noted - {step.node_id})
    if problem is not None and (problem.code == NO_HEIR or not step.pod):
        heirless.note(uid, step.node_id, problem, now_ms=now_ms)
    return problem


async def _mark(context: Context, cluster: Cluster, brokers: Manifest | None, node_ids: frozenset[int]) -> None:
    text, meta = ",".join(str(one) for one in sorted(node_ids)) or None, cluster.metadata
    note = {"metadata": {"annotations": {DRAINED: text}}}
    await context.kube.merge("Cluster", meta.namespace, meta.name, note, uid=meta.uid)
    await _change(context, brokers, note)


def _noted(brokers: Manifest | None) -> str:
    return str(((brokers or {}).get("metadata", {}).get("annotations") or {}).get(DRAINED, ""))


async def _change(context: Context, brokers: Manifest | None, change: Manifest) -> None:
    assert brokers is not None, "a step is taken where there are nodes"
    meta = brokers["metadata"]
    await context.kube.merge("StatefulSet", meta["namespace"], meta["name"], change, uid=meta["uid"])
