"""Fewer nodes of a lane: those that work stay as long as one that would stay does not."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from real_bmq import bmq_with_token
from reconciled_world import World, Worlds, message, said
from test_lanes_reconcile import BASE
from tests.started_bmq import StartedBmq

WORLDS = Worlds("Lane", BASE)


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def pods_are_made(world: World, *, broken: str = "", revision: str = "r1") -> None:
    """As Kubernetes makes them of the lane's StatefulSets: all ready, but for one."""
    for (kind, _, name), one in list(world.kube.manifests.items()):
        if kind == "Pod":
            world.kube.drop(kind, "shop", name)
        elif kind == "StatefulSet" and "-lane-" in name:
            _made(world, one, broken, revision)


def _made(world: World, maker: dict[str, Any], broken: str, revision: str) -> None:
    name, count = maker["metadata"]["name"], maker["spec"]["replicas"]
    names = [f"{name}-{number}" for number in range(count)]
    ready = sum(one != broken for one in names)
    maker["status"] = {"replicas": count, "readyReplicas": ready, "updateRevision": revision, "observedGeneration": 1}
    template = copy.deepcopy(maker["spec"]["template"])
    owner = {"controller": True, "uid": maker["metadata"]["uid"], "kind": "StatefulSet", "name": name}
    for one in names:
        labels = {**template["metadata"]["labels"], "controller-revision-hash": "r1"}
        meta = {"name": one, "namespace": "shop", "labels": labels, "ownerReferences": [owner]}
        status = {"conditions": [{"type": "Ready", "status": str(one != broken)}]}
        world.kube.keep({"kind": "Pod", "metadata": meta, "spec": template["spec"], "status": status})


def count(world: World, role: str) -> int:
    [found] = [
        one["spec"]["replicas"]
        for (kind, _, name), one in world.kube.manifests.items()
        if kind == "StatefulSet" and name.endswith(f"-lane-dev-{role}")
    ]
    return int(found)


@pytest.mark.parametrize(("role", "part"), [("proxy", "proxies"), ("broker", "brokers")])
def test_none_that_works_goes_while_one_that_would_stay_does_not(bmq: StartedBmq, role: str, part: str) -> None:
    async def use(world: World) -> None:
        world.write("dev", **{part: {"replicas": 3}})
        await world.look("dev")
        pods_are_made(world, broken=f"bmq-lane-dev-{role}-0")
        world.write("dev", **{part: {"replicas": 1}})
        for _ in range(2):
            outcome = await world.look("dev")
            assert said(outcome) == ("False", "Scaling")
            assert message(outcome) == f"bmq-lane-dev-{role}-0, which would stay, is not ready"
            assert count(world, role) == 3 and outcome.again_after_s
        pods_are_made(world)
        await world.look("dev")
        assert count(world, role) == 1
        pods_are_made(world)
        assert said(await world.look("dev")) == ("True", "AsWritten")
        assert (await world.look("dev", deletionTimestamp="2001-09-09T01:46:40Z")).finished

    WORLDS.run(bmq, use)


def test_those_that_do_not_work_go_and_all_do_where_none_is_to_stay(bmq: StartedBmq) -> None:
    async def use(world: World) -> None:
        world.write("dev", proxies={"replicas": 3})
        await world.look("dev")
        pods_are_made(world, broken="bmq-lane-dev-proxy-2")
        world.write("dev", proxies={"replicas": 2})
        await world.look("dev")
        assert count(world, "proxy") == 2
        pods_are_made(world, broken="bmq-lane-dev-proxy-0")
        world.write("dev", proxies={"replicas": 0})
        await world.look("dev")
        assert count(world, "proxy") == 0
        await world.look("dev", deletionTimestamp="2001-09-09T01:46:40Z")

    WORLDS.run(bmq, use)


def test_nothing_goes_before_kubernetes_has_seen_the_newest_settings_and_pods_of_others_count_for_nothing(
    bmq: StartedBmq,
) -> None:
    async def use(world: World) -> None:
        world.write("dev", proxies={"replicas": 2})
        await world.look("dev")
        pods_are_made(world, broken="bmq-lane-dev-proxy-0")
        pod = copy.deepcopy(world.kube.manifests["Pod", "shop", "bmq-lane-dev-proxy-1"])
        pod["metadata"] |= {"name": "no-number", "ownerReferences": pod["metadata"]["ownerReferences"]}
        world.kube.keep(pod)
        world.write("dev", proxies={"replicas": 1})
        assert said(await world.look("dev")) == ("False", "Scaling")
        pods_are_made(world)
        nodes = world.kube.manifests["StatefulSet", "shop", "bmq-lane-dev-proxy"]
        nodes["metadata"]["generation"] = 2
        outcome = await world.look("dev")
        assert said(outcome) == ("False", "Scaling") and "has yet to see" in message(outcome)
        assert count(world, "proxy") == 2
        nodes["status"]["observedGeneration"] = 2
        await world.look("dev")
        assert count(world, "proxy") == 1
        await world.look("dev", deletionTimestamp="2001-09-09T01:46:40Z")

    WORLDS.run(bmq, use)
