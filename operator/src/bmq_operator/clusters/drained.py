"""Brokers that get no partitions. What the operator drained for something that does not go on now, it takes back into
use; what it cannot, and what people cordoned, is told. Pure.

An obstacle, a pause or a deletion that waits may last for days, with half of the brokers without partitions. Taking one
back changes no object that an obstacle is about; it is drained once more when its turn comes.
"""

from collections.abc import Iterable, Set
from typing import Final

from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.nodes import ClusterState, Pod
from bmq_operator.clusters.upgrade import Step, Uncordon, Wait
from bmq_operator.conditions import Finding, first_of

IN_USE: Final = "BrokersInUse"
PAUSED: Final = "goes on once spec.paused is not true"


def back_in_use(pods: Iterable[Pod], state: ClusterState | None, drained: Set[int]) -> Uncordon | None:
    """The first of those that the operator drained and that can have partitions; None: there is none."""
    if state is None:
        return None
    able = {pod.node_id for pod in pods if pod.component == "broker" and pod.ready and not pod.deleting}
    for node_id in sorted(able & drained):
        if node_id in state.nodes and state.nodes[node_id].alive:
            text = f"broker {node_id} was drained for what does not go on now: it gets partitions again"
            return Uncordon(reason="Halted", message=text, node_id=node_id)
    return None


def why_left(step: Step, *, paused: bool, halted: bool) -> str:
    """What becomes of those that the operator drained, as what it drained them for does not go on (`halted`, or
    `paused`) and `step` was taken; empty: they are taken back, or it goes on."""
    if paused:
        return PAUSED
    if not halted or isinstance(step, Uncordon):
        return ""
    return (
        f"takes it back into use ({step.message})" if isinstance(step, Wait) else "takes it back into use once it can"
    )


def unused_note(pods: Iterable[Pod], answer: Answer, drained: Set[int], *, left: str = "") -> Finding | None:
    """What is told of brokers that get no partitions, though the operator drained none of them (`drained`), or those as
    well (`left`: what becomes of them, empty: nothing is to be said); None: there are none. People cordon, so they stay
    so; but a note that was lost, or a store that was copied while a broker was drained, looks no other way.
    """
    brokers = [pod for pod in pods if pod.component == "broker"]
    if answer.state is None:
        return _unknown([pod.name for pod in brokers if pod.node_id in drained], answer.why_not) if left else None
    unused = {node_id for node_id, node in answer.state.nodes.items() if node.alive and node.cordoned}
    own = [pod.name for pod in brokers if pod.node_id in unused & drained and left]
    others = [pod.name for pod in brokers if pod.node_id in unused - drained]
    texts = []
    if own:
        texts.append(
            f"{first_of(own)} {_gets(own)} no partitions: drained by the operator, which {left}. "
            f"At once: kubectl bmq drain {own[0]} --undo"
        )
    if others:
        texts.append(
            f"{first_of(others)} {_gets(others)} no partitions: cordoned by somebody, or left so, and not drained for "
            f"a roll. Where that is not wanted any more: kubectl bmq drain {others[0]} --undo"
        )
    if not texts:
        return None
    reason = "Cordoned" if others else "Drained"
    return Finding(type=IN_USE, status="False", reason=reason, message=". ".join(texts))


def _unknown(names: list[str], why: str) -> Finding | None:
    if not names:
        return None
    text = f"{first_of(names)} may get no partitions, drained by the operator: {why or 'no controller answers'}"
    return Finding(type=IN_USE, status="Unknown", reason="NotAsked", message=text)


def _gets(names: list[str]) -> str:
    return "gets" if len(names) == 1 else "get"
