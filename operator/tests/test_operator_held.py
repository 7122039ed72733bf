"""What waits for the operator when it is deleted has the finalizer before anything is made; what is deleted is the very
object, and is gone then.
"""

import asyncio
import copy
from typing import Any

import pytest
from kube_of_a_test import KubeOfATest, context_of

from bmq_operator.kube import Kube, KubeProblem
from bmq_operator.outcome import Outcome
from bmq_operator.runner import FINALIZER, Kind, Runner
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.topic import Topic

TOPIC: dict[str, Any] = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "first", "resourceVersion": "1"},
}


class ReplacedKube(KubeOfATest):
    """After the first look at it the Topic is another one, or none."""

    def __init__(self, after: dict[str, Any] | None) -> None:
        super().__init__(TOPIC)
        self._after = after

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        found = copy.deepcopy(await super().get(kind, namespace, name))
        self.drop(kind, namespace, name)
        if self._after is not None:
            self.keep(self._after)
        return found


@pytest.mark.parametrize(("uid", "result"), [(None, "gone"), ("second", "failed"), ("first", "done")])
def test_nothing_is_made_for_a_resource_that_is_gone_before_it_is_held(uid: str | None, result: str) -> None:
    made: list[str] = []

    async def makes(context: Any, resource: Topic) -> Outcome:
        made.append(resource.metadata.uid)
        return Outcome()

    async def main() -> None:
        kube = ReplacedKube(None if uid is None else {**TOPIC, "metadata": {**TOPIC["metadata"], "uid": uid}})
        queue = WorkQueue()
        queue.add(Key("Topic", "shop", "orders"))
        key, _ = await queue.take()
        runner = Runner(
            context_of(kube, "", {}, rng=Rng()),
            queue,
            {"Topic": Kind(model=Topic, reconcile=makes, holds=lambda _: True)},
        )
        assert await runner._look(key) == result
        held = (await kube.get("Topic", "shop", "orders") or TOPIC)["metadata"].get("finalizers", [])
        assert (made, held) == ((["first"], [FINALIZER]) if result == "done" else ([], []))

    asyncio.run(main())


class Rng:
    def random(self) -> float:
        return 0.0


class Server(Kube):
    """Refuses deletions; `there`: the uid of what it has."""

    def __init__(self, there: str | None) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # which nobody asks
        self._there = there

    async def _request(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        if method == "GET" and self._there is not None:
            return {"metadata": {"uid": self._there}}
        raise KubeProblem(status=404 if method == "GET" else 409, reason="Conflict", message="refused")


@pytest.mark.parametrize("there", [None, "another"])
def test_a_deletion_that_meets_another_object_or_none_is_done(there: str | None) -> None:
    asyncio.run(Server(there).delete("Pod", "shop", "a", uid="mine"))


@pytest.mark.parametrize("uid", ["mine", ""])
def test_a_deletion_that_is_refused_while_the_very_object_is_there_is_none(uid: str) -> None:
    with pytest.raises(KubeProblem):
        asyncio.run(Server("mine").delete("Pod", "shop", "a", uid=uid))
