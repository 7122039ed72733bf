"""What the chart's Job does once the operator is gone: it lets go of all resources, whatever becomes of some."""

import asyncio
import copy
from typing import Any

import pytest
from kube_of_a_test import KubeOfATest

from bmq_operator import chart_hooks
from bmq_operator.chart_hooks import NAMED_MAX, StillHeld, release
from bmq_operator.kube import KubeFailed, KubeProblem, KubeUnreachable
from bmq_operator.runner import FINALIZER

POLICY = KubeProblem(status=422, reason="Invalid", message="frozen by policy " + "x" * 10_000)


class Refusing(KubeOfATest):
    """Refuses to change, or to list, what the test says."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        super().__init__(*copy.deepcopy(manifests))
        self.refused: dict[tuple[str, str], Exception] = {}
        """By namespace and name."""
        self.unlisted: dict[tuple[str, str], Exception] = {}
        """By kind and namespace."""
        self.tried = 0

    async def merge(self, kind: str, namespace: str, name: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.tried += 1
        if (why := self.refused.get((namespace, name))) is not None:
            raise why
        return await super().merge(kind, namespace, name, body, **more)

    def held(self) -> list[str]:
        found = [one["metadata"] for one in self.manifests.values()]
        return [f"{one['namespace']}/{one['name']}" for one in found if FINALIZER in one["finalizers"]]

    async def list(self, kind: str, namespace: str = "", **more: Any) -> list[dict[str, Any]]:
        if (why := self.unlisted.get((kind, namespace))) is not None:
            raise why
        return await super().list(kind, namespace, **more)


def resource(kind: str, namespace: str, name: str, *others: str) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "resourceVersion": "1", "finalizers": [*others, FINALIZER]}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": kind, "metadata": meta}


def released(kube: KubeOfATest, *namespaces: str) -> str:
    return asyncio.run(
        release(kube, namespaces or ("",), own_namespace="sys", operator_labels={"a": "b"})  # type: ignore[arg-type]
    )


ALL = (
    resource("Cluster", "a", "stuck", "else.where/hold"),
    resource("Cluster", "a", "next"),
    resource("Cluster", "b", "bmq"),
    resource("Topic", "b", "fin"),
    resource("Lane", "a", "left"),
    resource("ParquetSink", "c", "table"),
)


@pytest.mark.parametrize("why", [POLICY, KubeFailed("500 a webhook does not answer"), KubeUnreachable("504")])
def test_what_cannot_be_let_go_keeps_nothing_else_and_is_named_with_what_lets_it_go(why: Exception) -> None:
    kube = Refusing(*ALL)
    kube.refused["a", "stuck"] = why
    with pytest.raises(StillHeld) as told:
        released(kube)
    assert kube.held() == ["a/stuck"]
    text = str(told.value)
    assert "5 resources were released" in text and f"Cluster a/stuck ({str(why)[:20]}" in text
    patch = '{"metadata": {"finalizers": ["else.where/hold"]}}'
    assert f"kubectl -n a patch clusters.bmq.io stuck --type=merge -p '{patch}'" in text


def test_what_is_told_of_many_fits_where_kubernetes_keeps_it() -> None:
    kube = Refusing(*(resource("Topic", "a", f"t{number:03}") for number in range(500)))
    kube.refused = {("a", f"t{number:03}"): POLICY for number in range(500)}
    with pytest.raises(StillHeld) as told:
        released(kube)
    text = str(told.value)
    assert f"and {500 - NAMED_MAX} more" in text and "kubectl -n a patch topics.bmq.io t000" in text
    assert len(text) < 2048


@pytest.mark.parametrize("why", [POLICY, KubeFailed("500 conversion webhook")])
def test_what_cannot_be_listed_keeps_nothing_else_and_is_told(why: Exception) -> None:
    kube = Refusing(*ALL)
    kube.unlisted["Cluster", "a"] = why
    with pytest.raises(StillHeld, match="each Cluster in namespace a"):
        released(kube, "a", "b", "c")
    assert kube.held() == ["a/stuck", "a/next"]


def test_a_namespace_for_which_nobody_answers_is_given_up_in_time_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_hooks, "SILENCE_S", 0)
    kube = Refusing(*ALL)
    kube.refused = {("a", name): KubeUnreachable("504") for name in ("stuck", "next", "left")}
    with pytest.raises(StillHeld, match="Lane a/left"):
        released(kube)
    assert kube.held() == ["a/stuck", "a/next", "a/left"] and kube.tried == 4


def test_what_is_gone_meanwhile_and_what_the_crds_took_with_them_are_let_go() -> None:
    kube = Refusing(*ALL)
    gone = KubeProblem(status=404, reason="NotFound", message="it")
    kube.refused["a", "stuck"] = kube.unlisted["Lane", ""] = gone
    assert released(kube) == "5 resources were released"
