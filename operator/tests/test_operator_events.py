import asyncio
from typing import Any

from kube_of_a_test import KubeOfATest, context_of

from bmq_operator.events import post_event
from bmq_operator.kube import KubeProblem
from bmq_operator.outcome import Event

TOPIC = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders", "namespace": "ending", "uid": "u", "resourceVersion": "1"},
}


class Refusing(KubeOfATest):
    """As an API server does in a namespace that is being deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []

    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        self.asked.append(manifest)
        raise KubeProblem(
            status=403,
            reason="Forbidden",
            message="unable to create new content in namespace ending because it is being terminated",
        )


def test_an_event_that_is_refused_stops_nothing() -> None:
    kube = Refusing()

    asyncio.run(post_event(context_of(kube, "http://127.0.0.1:1", {}), TOPIC, Event(reason="Ready", message="it is")))

    assert [one["reason"] for one in kube.asked] == ["Ready"]
