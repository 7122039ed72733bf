"""What a resource writes for a name is never a path to something else of the API server."""

import asyncio
from typing import Any

import pytest

from bmq_operator.answers import part_of
from bmq_operator.kinds import NoName, path_of
from bmq_operator.kube import Kube, KubeProblem
from bmq_resources import KINDS
from bmq_resources.base import Resource
from bmq_resources.checks import check

ELSEWHERE = (
    "../secrets/x",
    "..",
    ".",
    "x/y",
    "x?fieldSelector=y",
    "x%2Fy",
    "x y",
    "x\ny",
    "x#",
    "\u2024\u2024",
    "x" * 254,
    "../../../../api/v1/secrets?",
)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_no_name_is_asked_for_nowhere(name: str) -> None:
    for where in ({"namespace": name}, {"namespace": "shop", "name": name}):
        with pytest.raises(NoName):
            path_of("Cluster", **where)
    kube = Kube(None)  # type: ignore[arg-type]  # which nobody asks

    async def main() -> None:
        assert await kube.get("Cluster", name, "bmq") is None
        assert await kube.get("Secret", "shop", name) is None
        assert await kube.get("Secret", "shop", "") is None
        for ask in (
            kube.each("Secret", name, keep=part_of),
            kube.delete("Secret", "shop", name),
            kube.merge("Pod", name, "x", {}),
        ):
            with pytest.raises(KubeProblem, match="no object has such a name"):
                await ask

    asyncio.run(main())


def test_names_of_objects_are_as_they_were() -> None:
    assert path_of("Cluster", "shop", "a.b-c") == "/apis/bmq.io/v1alpha1/namespaces/shop/clusters/a.b-c"
    assert (
        path_of("Node", "", "ip-10-0-0-1.eu-west-1.compute.internal")
        == "/api/v1/nodes/ip-10-0-0-1.eu-west-1.compute.internal"
    )
    assert path_of("Pod") == "/api/v1/pods"


TABLE = {"output": "s3a://b/t", "schedule": "@hourly"}
NAMES: tuple[tuple[str, Any], ...] = (
    ("Cluster", lambda name: {"store": {"url": "s3://b", "credentials": {"secretName": name}}}),
    ("Cluster", lambda name: {"store": {"minio": {"embedded": True, "storageClassName": name}}}),
    ("Cluster", lambda name: {"store": {"minio": {"embedded": True}}, "image": {"pullSecrets": [name]}}),
    (
        "Cluster",
        lambda name: {"store": {"minio": {"embedded": True}}, "brokers": {"placement": {"priorityClassName": name}}},
    ),
    ("Topic", lambda name: {"clusterRef": {"name": name}}),
    ("Topic", lambda name: {"clusterRef": {"namespace": name}}),
    ("Lane", lambda name: {"clusterRef": {"namespace": name}}),
    ("Channel", lambda name: {"clusterRef": {"namespace": name}}),
    ("Channel", lambda name: {"channelName": name}),
    ("Channel", lambda name: {"deadLetter": name}),
    ("ParquetSink", lambda name: {"topics": ["a"], **TABLE, "store": {"secretName": name}}),
    ("ParquetSink", lambda name: {"topics": ["a"], **TABLE, "serviceAccount": name}),
    (
        "ParquetSink",
        lambda name: {"topics": ["a"], **TABLE, "format": "avro", "schema": {"configMapKeyRef": {"name": name}}},
    ),
)


@pytest.mark.parametrize(("kind", "spec"), NAMES)
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_field_that_names_an_object_takes_nothing_else(kind: str, spec: Any, name: str) -> None:
    model: type[Resource] = next(one for one in KINDS if one.__name__ == kind)
    document = {"apiVersion": "bmq.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}}
    assert not isinstance(check(model, {**document, "spec": spec("fine")}), list)
    assert isinstance(check(model, {**document, "spec": spec(name)}), list)
