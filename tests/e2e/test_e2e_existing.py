"""What the operator writes on a real API server: nothing that somebody else made between its look and its write, and
nothing that stays too long.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from e2e_cluster import Kubernetes
from e2e_kubectl import Kubectl

from bmq_operator.applied import MAKER, as_wanted, write
from bmq_operator.kube import FIELD_MANAGER, Kube, KubeProblem, Manifest


def run(kubernetes: Kubernetes, use: Callable[[Kube], Awaitable[None]]) -> None:
    async def main() -> None:
        kube = await Kube.connect(str(kubernetes.kubectl.kubeconfig))
        try:
            await use(kube)
        finally:
            await kube.close()

    asyncio.run(main())


def config(namespace: str, *, labels: dict[str, str] | None = None, **data: str) -> Manifest:
    meta = {"name": "config", "namespace": namespace, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def stateful_set(namespace: str, *env: str) -> Manifest:
    container: dict[str, Any] = {"name": "c", "image": "none:1", "env": [{"name": name, "value": "1"} for name in env]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"serviceName": "s", "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": namespace},
        "spec": spec,
    }


def managers(there: Manifest) -> set[tuple[str, str]]:
    return {
        (one["manager"], one["operation"]) for one in there["metadata"]["managedFields"] if not one.get("subresource")
    }


async def refused(writing: Awaitable[Any], *, status: int = 409) -> None:
    with pytest.raises(KubeProblem) as problem:
        await writing
    assert problem.value.status == status, problem.value


def test_what_was_made_belongs_to_the_operators_apply_alone_and_a_field_that_is_taken_away_goes(
    kubernetes: Kubernetes, kubectl: Kubectl
) -> None:
    where = kubectl.namespace

    async def use(kube: Kube) -> None:
        for more, less in (
            (config(where, labels={"x": "y"}, a="1", b="2"), config(where, a="1")),
            (stateful_set(where, "A", "B"), stateful_set(where, "B")),
        ):
            kind, name = more["kind"], more["metadata"]["name"]
            await write(kube, more, None)
            there = await kube.get(kind, where, name)
            assert there is not None and as_wanted(there, more)
            assert managers(there) == {(FIELD_MANAGER, "Apply")}
            await write(kube, less, there)
            there = await kube.get(kind, where, name)
            assert there is not None and as_wanted(there, less)
            assert "b" not in there.get("data", {}) and "x" not in there["metadata"].get("labels", {})
            if kind == "StatefulSet":
                assert [one["name"] for one in there["spec"]["template"]["spec"]["containers"][0]["env"]] == ["B"]

    run(kubernetes, use)


def test_whatever_text_it_has_is_written_as_it_is(kubernetes: Kubernetes, kubectl: Kubectl) -> None:
    where, text = kubectl.namespace, "\U0001f680 \U00020bb7 ümläut \u2028 \x7f \\ud83d"

    async def use(kube: Kube) -> None:
        await write(kube, config(where, labels={"x": "y"}, a=text), None)
        there = await kube.get("ConfigMap", where, "config")
        assert there is not None and there["data"] == {"a": text}
        await write(kube, config(where, a=text + text), there)
        there = await kube.get("ConfigMap", where, "config")
        assert there is not None and there["data"] == {"a": text + text}

    run(kubernetes, use)


@pytest.mark.parametrize("applied", [False, True], ids=["before the apply", "after it"])
def test_an_operator_that_ended_while_it_made_an_object_leaves_nothing_that_stays_too_long(
    kubernetes: Kubernetes, kubectl: Kubectl, applied: bool
) -> None:
    where = kubectl.namespace

    async def use(kube: Kube) -> None:
        wanted = config(where, a="1", b="2")
        there = await kube.create(wanted, manager=MAKER)
        if applied:
            there = await kube.apply(wanted)
        assert not as_wanted(there, wanted), "the next look would not write it"
        less = config(where, a="1")
        await write(kube, wanted, there)
        found = await kube.get("ConfigMap", where, "config")
        assert found is not None and managers(found) == {(FIELD_MANAGER, "Apply")}
        await write(kube, less, found)
        found = await kube.get("ConfigMap", where, "config")
        assert found is not None and found["data"] == {"a": "1"}

    run(kubernetes, use)


def test_what_somebody_else_made_meanwhile_is_left_alone(kubernetes: Kubernetes, kubectl: Kubectl) -> None:
    where = kubectl.namespace

    async def use(kube: Kube) -> None:
        theirs = await kube.create(config(where, theirs="1"), manager="somebody")
        await refused(write(kube, config(where, ours="1"), None))
        assert await kube.get("ConfigMap", where, "config") == theirs
        await kube.delete("ConfigMap", where, "config")
        await refused(write(kube, config(where, ours="1"), theirs))
        assert await kube.get("ConfigMap", where, "config") is None, (
            "what was found and is gone is not made again unseen"
        )
        again = await kube.create(config(where, theirs="2"), manager="somebody")
        await refused(write(kube, config(where, ours="1"), theirs))
        await refused(kube.merge("ConfigMap", where, "config", {"data": {"ours": "1"}}, uid=theirs["metadata"]["uid"]))
        assert await kube.get("ConfigMap", where, "config") == again

    run(kubernetes, use)


def test_a_field_or_a_value_that_kubernetes_does_not_know_is_refused_and_not_tried_for_ever(
    kubernetes: Kubernetes, kubectl: Kubectl
) -> None:
    where = kubectl.namespace

    async def use(kube: Kube) -> None:
        parts: tuple[dict[str, Any], ...] = (
            {"affinity": {"nodeAfinity": {}}},
            {"affinity": {"nodeAffinity": "x"}},
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "100", "podAffinityTerm": {}}]
                    }
                }
            },
            {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
        )
        for part in parts:
            there = await write(kube, stateful_set(where, "A"), await kube.get("StatefulSet", where, "s"))
            wrong = stateful_set(where, "A")
            wrong["spec"]["template"]["spec"] |= part
            await refused(write(kube, wrong, there), status=400)

    run(kubernetes, use)


def test_quantities_and_what_is_empty_are_no_difference_however_kubernetes_writes_them(
    kubernetes: Kubernetes, kubectl: Kubectl
) -> None:
    where = kubectl.namespace
    wanted = stateful_set(where, "A")
    pod = wanted["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {
        "requests": {"cpu": "0.5", "memory": "1024Mi"},
        "limits": {"cpu": "1.25", "memory": "1.5Gi"},
    }
    pod["affinity"] = {"nodeAffinity": None, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}

    async def use(kube: Kube) -> None:
        await write(kube, wanted, None)
        there = await kube.get("StatefulSet", where, "s")
        assert there is not None and as_wanted(there, wanted)

    run(kubernetes, use)
