"""An API server with older CRDs than the operator's drops fields of a status, without a word."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import clusters_world
import pytest
from clusters_world import Strict, World, doomed, run

from bmq_operator.conditions import Finding, next_conditions
from bmq_operator.context import Context
from bmq_operator.outcome import Outcome
from bmq_operator.pruned import AGAIN_S, Pruned, lost_fields
from bmq_operator.runner import Kind, Runner
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.lane import Lane

KEY = Key("Lane", "shop", "dev")
LANE: dict[str, Any] = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Lane",
    "metadata": {"name": "dev", "namespace": "shop", "uid": "u", "generation": 1},
    "spec": {"clusterRef": {"name": "bmq"}},
}


class Older(Strict):
    """Keeps none of these fields."""

    unknown: ClassVar[set[str]] = {"declaring", "storeUse"}

    async def merge(
        self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str = "", uid: str = ""
    ) -> dict[str, Any]:
        if part == "status":
            body = {"status": {name: one for name, one in body["status"].items() if name not in self.unknown}}
            self.writes += 1
        return await super().merge(kind, namespace, name, body, part=part, uid=uid)

    writes = 0


@pytest.fixture(autouse=True)
def _crds_are_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters_world, "Strict", Older)
    monkeypatch.setattr(Older, "unknown", {"declaring", "storeUse"})


async def declares(context: Context, lane: Lane) -> Outcome:
    """As a Lane that writes down first what it does next."""
    if lane.status.declaring:
        return Outcome(status=lane.status.model_copy(update={"number": 7}))
    found = Finding(status="Unknown", reason="Creating", message="the lane is being declared")
    conditions = next_conditions(lane.status.conditions, [found], generation=1, now_ms=context.clock.now_ms())
    return Outcome(
        status=lane.status.model_copy(update={"declaring": True, "conditions": conditions}), again_after_s=0.0
    )


def looked(use: Callable[[World, Callable[[], Awaitable[float | None]]], Awaitable[None]]) -> None:
    """`use` gets what looks at the Lane once, and says when that is looked at again."""

    async def main(world: World) -> None:
        runner = Runner(
            world.context, WorkQueue(), {"Lane": Kind(model=Lane, reconcile=declares, holds=lambda _: False)}
        )

        async def look() -> float | None:
            return (await runner._reconcile(KEY))[1]

        await use(world, look)

    run(main, LANE)


def test_a_status_that_is_not_kept_is_written_once_in_a_while_and_the_resource_says_why_nothing_goes_on() -> None:
    async def use(world: World, look: Callable[[], Awaitable[float | None]]) -> None:
        assert await look() == AGAIN_S
        status, reason, message = world.ready("dev", "Lane")
        assert (status, reason) == ("False", "NotUnderstood")
        assert "does not keep status.declaring" in message and "CRDs of bmq's chart" in message
        assert isinstance(world.kube, Older)
        written = world.kube.writes
        for _ in range(20):
            assert await look() == AGAIN_S
        assert world.kube.writes == written, "else it would be heard of, and looked at again at once"

    looked(use)


def test_what_is_kept_goes_on_at_once() -> None:
    async def use(world: World, look: Callable[[], Awaitable[float | None]]) -> None:
        Older.unknown.clear()
        assert await look() == 0.0
        assert await look() is None
        assert world.there("Lane", "dev")["status"]["number"] == 7

    looked(use)


def test_a_cluster_whose_deletion_cannot_be_noted_says_so() -> None:
    async def use(world: World) -> None:
        Older.unknown.clear()
        await world.look("prod")
        world.pods_are_made()
        world.there("Cluster", "prod")["status"] |= {"store": "", "storeUse": ""}
        Older.unknown.add("storeUse")
        world.begins_deletion("prod")
        for _ in range(3):
            status, reason, message = await world.look("prod")
            assert (status, reason) == ("False", "NotUnderstood") and "status.storeUse" in message
        assert world.has("StatefulSet", "prod-controller"), "nobody could tell later what they ran over"

    run(use, doomed())


def test_it_is_tried_again_after_a_while() -> None:
    pruned = Pruned()
    pruned.note(KEY, ["declaring"], now_s=100.0)
    assert pruned.lately(KEY, now_s=99.9 + AGAIN_S) == ["declaring"]
    assert pruned.lately(KEY, now_s=100.0 + AGAIN_S) == []
    pruned.forget(KEY)
    assert pruned.lately(KEY, now_s=100.0) == []


def test_only_what_was_to_say_something_new_counts() -> None:
    assert lost_fields({"a": 1}, {"a": 1, "b": False, "c": "x", "d": 2}, {"d": 2}) == ["c"]
