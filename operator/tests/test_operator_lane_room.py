"""Whoever makes Lanes, in whatever namespace, keeps no Cluster from being looked at: what a look keeps of lanes has a
room of its own, and the heaviest of them are left out.
"""

import copy
from typing import Any

import pytest
from clusters_world import World, cluster, doomed, run

from bmq_operator.answers import TooMuch, weight_bytes
from bmq_operator.clusters import lane_room
from bmq_operator.clusters.existing import Existing, read_existing
from bmq_operator.clusters.lane_room import LaneRoom
from bmq_operator.clusters.pods import KEY_VARIABLES
from bmq_operator.understood import understood
from bmq_resources.cluster import Cluster

LANES_MAX = 1_000
"""How many a cluster takes."""
LARGE = [{"name": f"BMQ_X{number}", "value": "x" * 32_768} for number in range(20)]
AFFINITY = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ["x" * 64_000]}}


def stateful_set(lane: str, *, replicas: int = 1, **pod_spec: Any) -> dict[str, Any]:
    """One that the operator made of a Lane of another namespace."""
    labels = {
        "bmq.io/cluster": "prod",
        "app.kubernetes.io/component": "proxy",
        "app.kubernetes.io/name": "bmq",
        "bmq.io/lane": lane,
    }
    owner = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "name": "prod",
        "uid": "uid-of-prod",
        "controller": True,
        "blockOwnerDeletion": False,
    }
    source = {"secretKeyRef": {"name": "prod-keys-1", "key": "admin-token", "optional": True}}
    keys = [{"name": name, "valueFrom": copy.deepcopy(source)} for name in KEY_VARIABLES]
    spec = {
        "containers": [{"name": "bmq", "image": "bmq:1", "env": [*keys, *copy.deepcopy(LARGE)]}],
        "volumes": [{"name": "config", "configMap": {"name": "prod-config-0123456789", "defaultMode": 420}}],
        **copy.deepcopy(pod_spec),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": f"prod-lane-{lane}-proxy",
            "namespace": "shop",
            "uid": f"uid-of-{lane}",
            "labels": labels,
            "annotations": {"bmq.io/of-lane": lane, "bmq.io/of-namespace": "teams", "bmq.io/applied": "0" * 16},
            "ownerReferences": [owner],
        },
        "spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def lane(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "teams", "uid": f"uid-of-lane-{name}", "generation": 1}
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Lane",
        "metadata": meta,
        "spec": {"clusterRef": {"name": "prod", "namespace": "shop"}},
    }


async def read(world: World) -> Existing:
    return await read_existing(world.kube, understood(Cluster, world.there("Cluster", "prod")))  # type: ignore[arg-type]


async def runs(world: World, *sets: dict[str, Any]) -> None:
    await world.look("prod")
    for one in sets:
        world.kube.keep(one)
        world.kube.keep(lane(one["metadata"]["labels"]["bmq.io/lane"]))
    world.pods_are_made()


def told(world: World) -> str:
    conditions = world.there("Cluster", "prod")["status"]["conditions"]
    return next((one["message"] for one in conditions if one["type"] == "LanesLookedAt"), "")


def test_what_authors_say_in_templates_of_lanes_is_not_kept() -> None:
    async def use(world: World) -> None:
        await runs(world, *(stateful_set(f"l{number}") for number in range(60)))
        await world.look("prod")
        assert told(world) == ""
        existing = await read(world)
        kept = [one for (kind, name), one in existing.objects.items() if kind == "StatefulSet" and "-lane-" in name]
        assert len(kept) == 60 and all(weight_bytes(one) < 16_000 for one in kept)
        assert world.there("Cluster", "prod")["status"]["lanes"]["desired"] == 60

    run(use, cluster())


def test_the_heaviest_lanes_are_left_out_and_named_and_all_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: World) -> None:
        await runs(world, stateful_set("big", replicas=12, affinity=AFFINITY), stateful_set("small", replicas=2))
        monkeypatch.setattr(lane_room, "LANES_BYTES_MAX", 130_000)
        await world.look("prod")
        assert world.ready("prod")[1] != "TooMuchToRead"
        assert "Lane teams/big:" in told(world) and "small" not in told(world)
        existing = await read(world)
        assert existing.left_out == {"big": {"prod-keys-1": "prod-lane-big-proxy-0"}}
        assert [pod["metadata"]["name"] for pod in existing.pods if "-lane-" in pod["metadata"]["name"]] == [
            "prod-lane-small-proxy-0",
            "prod-lane-small-proxy-1",
        ]
        assert world.there("Cluster", "prod")["status"]["lanes"]["desired"] == 2

    run(use, cluster())


def test_records_are_not_erased_before_the_nodes_of_a_lane_that_is_left_out_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(world: World) -> None:
        await runs(world, stateful_set("big", replicas=12, affinity=AFFINITY))
        monkeypatch.setattr(lane_room, "LANES_BYTES_MAX", 100_000)
        world.begins_deletion("prod")
        for _ in range(2):
            await world.look("prod")
        assert not world.has("StatefulSet", "prod-lane-big-proxy")
        for kind, _, name in [key for key in world.kube.manifests if key[0] == "Pod" and "-lane-" not in key[2]]:
            world.kube.drop(kind, "shop", name)
        message = (await world.look("prod"))[2]
        assert "waiting for 1 nodes to end before the records go: prod-lane-big-proxy-0" in message
        assert not world.has("Job", "prod-erase")

    run(use, doomed())


def objects_of(lane: str, *, namespace: str = "teams", pods: int = 1, **pod_spec: Any) -> list[dict[str, Any]]:
    """All of a lane's, the pods behind the others, as the API server tells them."""
    one = stateful_set(lane, **pod_spec)
    meta = {"creationTimestamp": "2001-09-09T01:46:40Z", "generation": 1, "resourceVersion": "1000000"}
    one["metadata"] |= meta | {"uid": f"uid-of-{lane:0>29}"}
    one["metadata"]["annotations"] |= {"bmq.io/of-lane": "l" * 100, "bmq.io/of-namespace": namespace}
    told = {"status": "True", "lastTransitionTime": "2026-11-27T13:00:17Z"}
    status = {
        "conditions": [{"type": type_, **told} for type_ in ("Initialized", "Ready", "ContainersReady")],
        "containerStatuses": [{"image": "bmq:1", "state": {"running": {}}, "lastState": {}, "restartCount": 0}],
    }
    pod = {"kind": "Pod", "metadata": one["metadata"], "spec": one["spec"]["template"]["spec"], "status": status}
    kinds = ("StatefulSet", "Service", "PodDisruptionBudget")
    return [copy.deepcopy(one) | {"kind": kind} for kind in kinds] + [copy.deepcopy(pod) for _ in range(pods)]


def kept(room: LaneRoom, lane: str, **more: Any) -> None:
    for one in objects_of(lane, **more):
        if one["kind"] == "Pod":
            room.keep_pod(lane, one)
        else:
            room.keep_object(lane, one)


def test_there_is_room_for_as_many_ordinary_lanes_as_there_may_be() -> None:
    room = LaneRoom()
    for number in range(LANES_MAX):
        labels = {"matchLabels": {"bmq.io/cluster": "prod", "bmq.io/lane": f"{number:032}"}}
        spread = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "labelSelector": labels}]
        kept(room, f"{number:032}", topologySpreadConstraints=spread)
    assert not room.left_out


def test_of_the_heaviest_namespace_lanes_are_left_out_and_not_of_one_that_has_few() -> None:
    room = LaneRoom(left_bytes=2 << 20)
    kept(room, "mine", namespace="modest", pods=40)
    for number in range(40):
        kept(room, f"theirs-{number}", namespace="greedy", affinity=AFFINITY)
    assert len(room.left_out) > 5 and "mine" not in room.left_out


def test_a_lane_that_is_left_out_is_named_beside_objects_that_say_nothing() -> None:
    base = {"kind": "ServiceAccount", "metadata": {"name": "prod", "labels": {}}}
    there = {("ServiceAccount", "prod"): base, ("StatefulSet", "big"): stateful_set("big")}
    note = lane_room.left_out_note({"big": {}, "gone": {}}, there)
    assert note is not None and "Lane teams/big" in note.message and "nobody's lane gone" in note.message


def test_what_is_always_kept_leaves_lanes_out_too_and_is_refused_once_none_is_left() -> None:
    room = LaneRoom(left_bytes=60_000)
    pod = {"kind": "Pod", "metadata": {"name": "p", "labels": {"app.kubernetes.io/component": "broker"}}}
    room.keep_pod("a", pod)
    room.keep_pod("b", {**pod, "spec": {"nodeSelector": {"x": "y" * 40_000}}})

    def service(number: int) -> dict[str, Any]:
        return {**stateful_set("c"), "kind": "Service", "spec": {"ports": [{"name": f"{number}" * 4_000}]}}

    for number in range(2):
        room.keep_object("c", service(number))
    assert room.left_out == {"b": {"": "p"}}
    with pytest.raises(TooMuch):
        for number in range(2, 10):
            room.keep_object("c", service(number))


def test_a_lane_whose_placement_says_too_much_is_not_acted_on_and_says_so() -> None:
    async def use(world: World) -> None:
        world.kube.keep(lane("dev") | {"spec": {"proxies": {"placement": {"env": copy.deepcopy(LARGE)}}}})
        assert await world.look("dev", "Lane", namespace="teams") == (
            "False",
            "NotUnderstood",
            "spec.proxies.placement: its nodeSelector, annotations, labels and env have more than 65536 characters in "
            "all: shorten them, or leave some out. Where that was right before, bring CRDs and operator to one version",
        )

    run(use)
