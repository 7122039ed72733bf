"""A resource that this operator does not understand says so in sentences, and stands in nobody else's way."""

import asyncio
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, TRIAL, KubeOfATest, context_of
from pydantic import ValidationError

from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.gathering import gather
from bmq_operator.outcome import Outcome
from bmq_operator.references import refer
from bmq_operator.runner import FINALIZER, Kind, Runner
from bmq_operator.understood import understood
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.base import ObjectMeta
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane
from bmq_resources.references import ClusterRef
from bmq_resources.topic import Topic


class MergingKube(KubeOfATest):
    """`merged`: what was written by merges."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        super().__init__(*manifests)
        self.merged: list[tuple[str, dict[str, Any]]] = []

    async def merge(
        self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str = "", uid: str = ""
    ) -> dict[str, Any]:
        self.merged.append((part, body))
        return await super().merge(kind, namespace, name, body, part=part, uid=uid)


def a_lane(spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    given = {"name": "dev", "namespace": "shop", "uid": "u", "generation": 3, "resourceVersion": "7", **meta}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Lane", "metadata": given, "spec": spec}


async def never(context: Any, resource: Any) -> Outcome:
    raise AssertionError("nothing is made of what is not understood")


def look(kube: MergingKube) -> str:
    async def main() -> str:
        kind = Kind(model=Lane, reconcile=never, holds=lambda _: True)
        queue = WorkQueue()
        queue.add(Key("Lane", "shop", "dev"))
        key, _ = await queue.take()
        return await Runner(context_of(kube, "", {}), queue, {"Lane": kind})._look(key)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"xyzzy": "red"},
            "spec.xyzzy (red): there is no such field: leave it out, or write one of clusterRef, laneName",
        ),
        ({"ttlSecond": 1}, "spec.ttlSecond (1): there is no such field: write ttlSeconds, or leave it out"),
        (
            {"proxies": {"replicas": "many"}},
            "spec.proxies.replicas (many): it has to be a whole number: write one, without quotes",
        ),
        ({"proxies": {"replicas": 101}}, "spec.proxies.replicas (101): it has to be 100 or less: lower it"),
        (
            {"laneName": "x" * 33},
            "spec.laneName (xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx): it has more than 32 characters: shorten it",
        ),
        ({"proxies": []}, "spec.proxies ([]): it has to have fields of its own"),
    ],
)
def test_a_resource_that_is_not_understood_says_which_field_which_value_why_and_what_helps(
    spec: dict[str, Any], says: str
) -> None:
    kube = MergingKube(a_lane(spec))
    assert look(kube) == "done"
    [(part, body)] = kube.merged
    [found] = body["status"]["conditions"]
    assert (part, found["type"], found["status"], found["reason"]) == ("status", "Ready", "False", "NotUnderstood")
    assert found["message"].startswith(says)
    assert found["message"].endswith("Where that was right before, bring CRDs and operator to one version")
    assert look(kube) == "done"
    assert len(kube.merged) == 1, "it is told once"


def test_a_namespace_that_is_deleted_does_not_wait_for_what_is_not_understood() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other/one", FINALIZER]}
    kube = MergingKube(a_lane({"xyzzy": "red"}, **going))
    kube.keep({"kind": "Namespace", "metadata": {"name": "shop", "namespace": ""}})
    assert look(kube) == "done", "somebody may want to have it deleted as it should be"
    assert kube.manifests["Lane", "shop", "dev"]["metadata"]["finalizers"] == ["other/one", FINALIZER]
    kube.keep(
        {
            "kind": "Namespace",
            "metadata": {"name": "shop", "namespace": "", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        }
    )
    assert look(kube) == "gone"
    assert kube.manifests["Lane", "shop", "dev"]["metadata"]["finalizers"] == ["other/one"]


def test_what_another_version_wrote_of_the_status_is_forgotten_and_the_rest_kept() -> None:
    status = {
        "topicName": "orders",
        "owned": True,
        "topicId": "x",
        "partitions": "many",
        "xyzzy": {"red": 1},
        "table": {"shape": "round"},
    }
    manifest = {"apiVersion": "bmq.io/v1alpha1", "kind": "Topic", "metadata": {"name": "orders"}, "status": status}
    found = understood(Topic, manifest)
    assert (found.status.owned, found.status.topic_id, found.status.partitions, found.status.table.output) == (
        True,
        "x",
        0,
        "",
    )
    with pytest.raises(ValidationError):
        understood(Topic, manifest | {"spec": {"xyzzy": "red"}})


def test_a_cluster_that_is_not_understood_is_named_by_what_refers_to_it_and_keeps_no_other_one_from_being_made() -> (
    None
):
    strange = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "strange", "namespace": "shop", "uid": "s"},
    }
    there = CLUSTER | {"metadata": CLUSTER["metadata"] | {"uid": "uid-bmq"}}
    kube = KubeOfATest(there, strange | {"spec": TRIAL | {"xyzzy": "red"}})
    context = context_of(kube, "", {})
    referred = asyncio.run(refer(context, ObjectMeta(name="orders", namespace="shop"), ClusterRef(name="strange")))
    assert referred.why.startswith(
        "the Cluster is not understood: spec.xyzzy (red): there is no such field: leave it out"
    )

    class Rng:
        def nonce(self) -> bytes:
            return bytes(16)

    object.__setattr__(context, "rng", Rng())
    inputs = asyncio.run(gather(context, Cluster.model_validate(there), Existing(objects={}, pods=()), advertised=""))
    assert inputs.keys_name
