"""Which pods are a Cluster's: those that its StatefulSets made. One that says so by labels alone is neither counted nor
deleted.
"""

import copy
from typing import Any

import pytest
from clusters_world import World, cluster, run
from kinds_of_a_test import INPUTS
from kube_of_a_test import TRIAL
from test_clusters_rotation import write_secret

from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.existing import read_existing
from bmq_operator.clusters.nodes import lanes_seen, pods_seen
from bmq_operator.clusters.steps import take
from bmq_operator.clusters.upgrade import DeletePod
from bmq_resources.cluster import Cluster

FORGED = [{"controller": True, "kind": "StatefulSet", "name": "prod-broker"}]


async def stranger(world: World, name: str, *, owners: list[dict[str, Any]], **labels: str) -> None:
    """A copy of a broker's pod, as somebody makes it for debugging."""
    pod = copy.deepcopy(world.there("Pod", "prod-broker-0"))
    uid = world.there("StatefulSet", "prod-broker")["metadata"]["uid"]
    meta = {"name": name, "uid": f"uid-of-{name}", "ownerReferences": [one | {"uid": uid} for one in owners]}
    pod["metadata"] = {**pod["metadata"], **meta, "labels": {**pod["metadata"]["labels"], **labels}}
    world.kube.keep(pod)


@pytest.mark.parametrize("name", ["prod-broker-0-debug", "debug-copy", "debug-7", "prod-broker-07", "prod-broker-½"])
@pytest.mark.parametrize("owners", [[], FORGED], ids=["nobody's", "one that names the owner itself"])
def test_a_pod_with_a_clusters_labels_stops_no_look_and_is_neither_counted_nor_deleted(
    name: str, owners: list[dict[str, Any]]
) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        await stranger(world, name, owners=owners, **{"controller-revision-hash": "r0"})
        world.pods_are_made(ready=False)
        said = await world.look("prod")
        assert said[:2] == ("False", "PodsNotReady")
        status = world.there("Cluster", "prod")["status"]
        assert status["brokers"]["replicas"] == 3
        assert world.kube.deleted == []

    run(use, cluster())


def test_a_pod_that_is_no_lanes_makes_no_lane() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await stranger(world, "prod-lane-dev-broker-0", owners=FORGED, **{"bmq.io/lane": "dev"})
        there = Cluster.model_validate(world.there("Cluster", "prod"))
        existing = await read_existing(world.context.kube, there)
        assert [pod["metadata"]["name"] for pod in existing.strangers] == ["prod-lane-dev-broker-0"]
        assert lanes_seen(existing.objects.values()) == []
        assert len(pods_seen(existing.pods, existing.stateful_sets(), now_ms=0)) == 3 + 2 + 2

    run(use, cluster())


def test_the_keys_of_a_copy_for_debugging_keep_no_replacement_of_keys_waiting() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await stranger(world, "debug-7", owners=[])
        write_secret(world)
        for _ in range(4):
            await world.look("prod")
            for role in ("controller", "broker", "proxy"):  # rolled by Kubernetes' own controller
                for number in range(3):
                    world.kube.drop("Pod", "shop", f"prod-{role}-{number}")
            world.pods_are_made()
        assert not [
            one for one in world.there("Cluster", "prod")["status"]["conditions"] if one["type"] == "KeysAsWritten"
        ]

    run(use, cluster())


def test_a_pod_that_was_made_anew_meanwhile_is_left_alone() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        there = Cluster.model_validate(world.there("Cluster", "prod"))
        existing = await read_existing(world.context.kube, there)
        seen = next(
            one for one in pods_seen(existing.pods, existing.stateful_sets(), now_ms=0) if one.name == "prod-proxy-0"
        )
        world.kube.drop("Pod", "shop", "prod-proxy-0")
        world.pods_are_made()
        step = DeletePod(reason="Upgrading", message="", pod=seen.name, uid=seen.uid)
        await take(world.context, there, None, step)
        assert world.has("Pod", "prod-proxy-0")
        await take(
            world.context,
            there,
            None,
            DeletePod(reason="", message="", pod=seen.name, uid=world.there("Pod", seen.name)["metadata"]["uid"]),
        )
        assert not world.has("Pod", "prod-proxy-0")

    run(use, cluster())


@pytest.mark.parametrize(
    ("told", "grace_s"), [("60000", 80), ("600000", 620), ("999999999", 620), ("9" * 5000, 35), ("soon", 35), ("", 35)]
)
def test_a_stop_timeout_that_nodes_refuse_stops_no_look_and_is_theirs_to_refuse(told: str, grace_s: int) -> None:
    spec = {**TRIAL, "settings": {"env": {"BMQ_STOP_TIMEOUT_MS": told}}}
    made = desired(
        Cluster.model_validate({"metadata": {"name": "bmq", "namespace": "shop", "uid": "u"}, "spec": spec}), INPUTS
    )
    pods = [
        one["spec"]["template"]["spec"]
        for one in made
        if one["kind"] == "StatefulSet" and "minio" not in one["metadata"]["name"]
    ]
    assert {pod["terminationGracePeriodSeconds"] for pod in pods} == {grace_s}


def test_a_pull_secret_that_is_named_twice_is_in_each_pod_once() -> None:
    """The API server makes a pod with two of one name, and refuses each later apply."""
    spec = {
        "image": {"pullSecrets": ["pull", "other", "pull"]},
        "store": {"minio": {"embedded": True}},
        "probe": {"enabled": True},
    }
    made = desired(Cluster.model_validate(cluster(**spec)), INPUTS)
    found = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["imagePullSecrets"]
        for one in made
        if one["kind"] == "StatefulSet"
    }
    assert set(found) == {f"prod-{part}" for part in ("controller", "broker", "proxy", "minio", "probe")}
    assert all(one == [{"name": "pull"}, {"name": "other"}] for one in found.values())


def test_a_cluster_that_misses_a_pod_of_a_lost_machine_names_it() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        lost = world.there("Pod", "prod-broker-1")
        lost["metadata"]["deletionTimestamp"] = "2001-09-09T01:46:40Z"
        lost["spec"]["nodeName"] = "machine-3"
        lost["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
        world.context.clock.ms = 1_000_000_090_000  # type: ignore[attr-defined]
        assert (await world.look("prod"))[1] == "PodsNotReady", "the API server has not said what time it is"
        for ms in (1_000_000_030_000, 1_000_000_090_000):
            assert (await world.look("prod"))[1] == "PodsNotReady"
            world.kube.now_ms = lambda ms=ms: ms  # type: ignore[method-assign,misc]
        _, reason, text = await world.look("prod")
        assert reason == "PodNotGone" and text.startswith("prod-broker-1 was to be gone by ")
        assert "its machine machine-3" in text

    run(use, cluster())
