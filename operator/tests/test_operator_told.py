"""What keeps the operator from its work is told by the resource: what was found before may be so no more."""

import json
from typing import Any

import pytest
from clusters_world import World, cluster, run
from structlog.testing import capture_logs

from bmq_operator.clusters.steps import taken
from bmq_operator.clusters.upgrade import Drain, Wait
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem, KubeUnreachable, _answer
from bmq_operator.outcome import Outcome
from bmq_operator.runner import TELL_AFTER, Kind, Runner
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.cluster import Cluster

NOT_TYPED = (
    "failed to create typed patch object (shop/prod-proxy; apps/v1, Kind=StatefulSet): .spec.x: field not "
    "declared in schema"
)
KEY = Key("Cluster", "shop", "prod")
TRUE = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2001-09-09T01:46:40Z",
}


def answered(status: int, message: str) -> Any:
    return _answer(status, json.dumps({"kind": "Status", "message": message}).encode(), "PATCH /x")


def test_what_a_server_side_apply_says_by_500_of_what_was_sent_is_a_refusal() -> None:
    for message in (
        NOT_TYPED,
        "failed to create typed patch object (a/b; v1, Kind=Pod): .spec.imagePullSecrets: duplicate entries for "
        "key [name=a]",
    ):
        with pytest.raises(KubeProblem, match="failed to create typed") as problem:
            answered(500, message)
        assert problem.value.status == 400
    for status, message in ((500, "etcdserver: request timed out"), (500, ""), (503, NOT_TYPED), (429, NOT_TYPED)):
        with pytest.raises(KubeUnreachable):
            answered(status, message)


def test_a_field_that_kubernetes_does_not_know_is_told_and_what_runs_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: World) -> None:
        for _ in range(2):
            await world.look("prod")
            world.pods_are_made()
        apply = world.kube.apply

        async def typed(manifest: dict[str, Any]) -> dict[str, Any]:
            if "nodeAfinity" in manifest["spec"].get("template", {}).get("spec", {}).get("affinity", ()):
                answered(500, NOT_TYPED)
            return await apply(manifest)

        monkeypatch.setattr(world.kube, "apply", typed)
        before = world.there("StatefulSet", "prod-proxy")
        written = world.there("Cluster", "prod")
        written["spec"]["proxies"] = {"placement": {"affinity": {"nodeAfinity": {}}}}
        written["metadata"]["generation"] = 2
        status, reason, text = await world.look("prod")
        assert (status, reason) == ("False", "Refused") and ".spec.x: field not declared in schema" in text
        assert world.there("StatefulSet", "prod-proxy") == before
        assert written["status"]["observedGeneration"] == 2

    run(use, cluster())


def writes_noted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which part each is."""
    merge, written = world.kube.merge, []

    async def noted(*arguments: Any, **more: Any) -> Any:
        written.append(more.get("part", ""))
        return await merge(*arguments, **more)

    monkeypatch.setattr(world.kube, "merge", noted)
    return written


def runner_of(world: World, failure: BaseException | None) -> tuple[Runner, WorkQueue, list[BaseException | None]]:
    failures = [failure]

    async def looks(context: Context, resource: Cluster) -> Outcome:
        if failures[0] is not None:
            raise failures[0]
        return Outcome(status=resource.status)

    queue = WorkQueue()
    return (
        Runner(world.context, queue, {"Cluster": Kind(model=Cluster, reconcile=looks, holds=lambda _: False)}),
        queue,
        failures,
    )


@pytest.mark.parametrize(
    "failure",
    [
        KubeUnreachable("PATCH /x: 500 failed calling webhook"),
        KubeProblem(status=409, reason="Conflict", message="another version"),
        TimeoutError(),
    ],
    ids=["unreachable", "conflict", "time"],
)
def test_looks_that_fail_again_and_again_are_told_and_one_that_fails_is_not(failure: BaseException) -> None:
    async def use(world: World) -> None:
        world.there("Cluster", "prod")["status"] = {"conditions": [TRUE, {**TRUE, "type": "Progressing"}]}
        runner, queue, _ = runner_of(world, failure)
        for count in range(1, TELL_AFTER + 3):
            queue.add(KEY)
            await queue.take()
            assert await runner._look(KEY) == "failed"
            status, reason, text = world.ready("prod")
            assert (status, reason) == (("Unknown", "NotLookedAt") if count >= TELL_AFTER else ("True", "Ready")), count
        assert (str(failure) or "it took too long") in text
        assert [one["type"] for one in world.there("Cluster", "prod")["status"]["conditions"]] == [
            "Ready",
            "Progressing",
        ]

    run(use, cluster())


@pytest.mark.parametrize(("status", "first"), [(409, "info"), (422, "warning")])
def test_what_was_written_meanwhile_is_no_warning_before_it_is_so_several_times_in_a_row(
    status: int, first: str
) -> None:
    async def use(world: World) -> None:
        runner, queue, _ = runner_of(
            world, KubeProblem(status=status, reason="Conflict", message="the object has been modified")
        )
        with capture_logs() as lines:
            for _ in range(TELL_AFTER):
                queue.add(KEY)
                await queue.take()
                await runner._look(KEY)
        levels = [one["log_level"] for one in lines if one["event"] == "a resource could not be looked after"]
        assert levels == [first] * (TELL_AFTER - 1) + ["warning"]

    run(use, cluster())


def test_one_look_that_succeeds_begins_the_count_anew() -> None:
    async def use(world: World) -> None:
        world.there("Cluster", "prod")["status"] = {"conditions": [TRUE]}
        runner, queue, failures = runner_of(world, None)
        for count in range(4 * TELL_AFTER):
            failures[0] = KubeUnreachable("500") if count % TELL_AFTER else None
            queue.add(KEY)
            await queue.take()
            await runner._look(KEY)
            assert world.ready("prod")[0] == "True"

    run(use, cluster())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('User "system:serviceaccount:bmq:bmq" cannot list resource "statefulsets" in API group "apps"', "Forbidden"),
        ('admission webhook "policy" denied the request', "Refused"),
    ],
)
def test_what_is_forbidden_is_told_once_and_wakes_nobody(said: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each status that is written is heard of, and makes the resource due at once, whatever its backoff is."""

    async def use(world: World) -> None:
        world.there("Cluster", "prod")["status"] = {"conditions": [TRUE]}
        runner, queue, _ = runner_of(world, KubeProblem(status=403, reason="Forbidden", message=said))
        written = writes_noted(world, monkeypatch)
        for _ in range(3 * TELL_AFTER):
            queue.add(KEY)
            await queue.take()
            assert await runner._look(KEY) == "failed"
            status, reason, text = world.ready("prod")
            assert (status, reason) == ("Unknown", told) and said in text
        assert written == ["status"]

    run(use, cluster())


def test_a_failure_whose_text_is_another_one_each_time_is_told_ever_less_often_but_of_each_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(world: World) -> None:
        world.there("Cluster", "prod")["status"] = {"conditions": [TRUE]}
        runner, queue, failures = runner_of(world, None)
        written = writes_noted(world, monkeypatch)

        async def looks(count: int) -> None:
            for port in range(count):
                failures[0] = KubeUnreachable(
                    f"500 failed calling webhook: read tcp 10.0.0.5:{port}->10.96.3.4:443: connection reset by peer"
                )
                queue.add(KEY)
                await queue.take()
                assert await runner._look(KEY) == "failed"

        await looks(12)
        assert world.ready("prod")[1] == "NotLookedAt"
        assert written == ["status"] * 2, "after the fifth and the eighth; next comes the sixteenth"
        world.there("Cluster", "prod")["metadata"]["generation"] = 2
        await looks(2)
        assert written == ["status"] * 3
        assert world.there("Cluster", "prod")["status"]["observedGeneration"] == 2

    run(use, cluster())


def test_that_it_cannot_be_told_is_left_at_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise KubeUnreachable("nobody answers")

    async def use(world: World) -> None:
        runner, queue, _ = runner_of(world, KubeUnreachable("500"))
        monkeypatch.setattr(world.kube, "merge", fails)
        for _ in range(TELL_AFTER + 1):
            queue.add(KEY)
            await queue.take()
            assert await runner._look(KEY) == "failed"

    run(use, cluster())


def test_a_step_that_the_controller_does_not_take_is_told_as_waited_for() -> None:
    async def use(world: World) -> None:
        await world.look("prod")  # what the admin API is asked with is there, and nobody answers
        step = Drain(
            reason="Upgrading",
            message="prod-broker-1 is drained before it is replaced",
            node_id=1001,
            pod="prod-broker-1",
        )
        written = Cluster.model_validate(cluster())
        found = await taken(world.context, written, world.there("StatefulSet", "prod-broker"), step)
        assert isinstance(found, Wait) and found.reason == "Upgrading"
        assert step.message in found.message and "is not reached" in found.message
        assert "Pod prod-broker-1" not in world.kube.deleted

    run(use, cluster())
