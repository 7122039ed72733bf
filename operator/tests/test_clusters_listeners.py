"""A listener may have any name that its Cluster takes: probes and Services still reach the ports that are the proxies'
own.
"""

import copy
import re
from typing import Any

import pytest
from clusters_world import KubeProblem, Strict, World, cluster, run
from kinds_of_a_test import INPUTS
from kube_of_a_test import TRIAL

from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.names import LANE_LABEL, OF_LANE, OF_NAMESPACE, labels_of
from bmq_resources.cluster import Cluster

PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
"""What Kubernetes takes for a port's name."""


def with_listeners(*listeners: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    spec = {**TRIAL, "listeners": list(listeners)}
    meta = {"name": "bmq", "namespace": "shop", "uid": "uid-bmq"}
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in desired(Cluster.model_validate({"metadata": meta, "spec": spec}), INPUTS)
    }


@pytest.mark.parametrize("name", ["admin", "kafka", "bootstrap", "external", "a--b", "a" * 15])
def test_a_listeners_name_takes_no_port_that_probes_and_services_go_by(name: str) -> None:
    there = with_listeners({"name": name, "port": 9094})
    (container,) = there["StatefulSet", "bmq-proxy"]["spec"]["template"]["spec"]["containers"]
    named = {one["name"]: one["containerPort"] for one in container["ports"] if "name" in one}
    assert named.items() >= {"kafka": 9092, "internal": 9190, "admin": 9080}.items()
    assert [one["containerPort"] for one in container["ports"]] == [9092, 9190, 9080, 9094]
    assert all(PORT_NAME.fullmatch(one) for one in named)
    for service, port in (
        ("bmq-bootstrap", 9092),
        ("bmq-internal-0", 9092),
        ("bmq-admin", 9080),
        (f"bmq-{name}-bootstrap", 9094),
    ):
        (only,) = there["Service", service]["spec"]["ports"]
        assert named.get(only["targetPort"], only["targetPort"]) == port


@pytest.mark.parametrize("name", ["lane", "lane-x"])
def test_a_listener_takes_no_service_of_a_lane_that_is_in_another_namespace(name: str) -> None:
    owner = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "name": "prod",
        "uid": "uid-of-prod",
        "controller": True,
    }
    meta = {
        "name": "prod-lane-x-0",
        "namespace": "shop",
        "labels": {**labels_of("prod", "proxy"), LANE_LABEL: "x-0"},
        "annotations": {OF_LANE: "x-0", OF_NAMESPACE: "elsewhere"},
        "ownerReferences": [owner],
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"selector": {LANE_LABEL: "x-0"}, "ports": [{"port": 9092}]},
    }
    before = copy.deepcopy(service)

    async def use(world: World) -> None:
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "NameUnusable") and f"'{name}'" in message
        assert world.there("Service", "prod-lane-x-0")["spec"] == before["spec"]

    lane = {
        "kind": "Lane",
        "metadata": {"name": "x-0", "namespace": "elsewhere"},
        "spec": {"clusterRef": {"name": "prod", "namespace": "shop"}},
    }
    run(use, cluster(listeners=[{"name": name}]), service, lane)


def test_other_listeners_may_have_a_lane_in_their_name() -> None:
    assert ("Service", "bmq-lanes-0") in with_listeners({"name": "lanes"})

    async def use(world: World) -> None:
        _, reason, _ = await world.look("prod")
        assert reason != "NameUnusable"

    run(use, cluster(listeners=[{"name": "lanes"}]))


def of_addresses(world: World) -> list[tuple[str, str]]:
    conditions = world.there("Cluster", "prod")["status"]["conditions"]
    return [(one["reason"], one["message"]) for one in conditions if one["type"] == "ListenersKnown"]


def test_that_no_client_outside_can_be_told_an_address_is_told_with_why_and_what_helps() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        await world.look("prod")
        ((reason, message),) = of_addresses(world)
        assert reason == "NodesUnknown"
        assert "listener ext" in message and "rbac.readNodes" in message and "advertisedHost" in message
        world.kube.keep(node)
        await world.look("prod")
        assert of_addresses(world) == []

    node = {
        "kind": "Node",
        "metadata": {"name": "n0", "namespace": ""},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }
    run(use, cluster(listeners=[{"name": "ext"}]))


def test_a_load_balancer_that_the_cloud_gives_no_address_is_named_until_it_has_one() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        await world.look("prod")
        ((reason, message),) = of_addresses(world)
        assert reason == "NoAddress"
        assert "prod-lb-bootstrap" in message and "describe service" in message
        for which in ("bootstrap", 0):
            world.there("Service", f"prod-lb-{which}")["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
        await world.look("prod")
        ((_, message),) = of_addresses(world)
        assert "prod-lb-1" in message and "prod-lb-bootstrap" not in message
        world.there("Service", "prod-lb-1")["status"] = {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}
        await world.look("prod")
        assert of_addresses(world) == []

    run(use, cluster(proxies={"replicas": 2}, listeners=[{"name": "lb", "type": "LoadBalancer", "port": 9095}]))


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_of_listeners_whose_host_is_written_nothing_is_missing(kind: str) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        await world.look("prod")
        assert of_addresses(world) == []

    run(use, cluster(listeners=[{"name": "ext", "type": kind, "advertisedHost": "kafka-{ordinal}.example"}]))


def test_a_name_that_is_too_long_for_a_label_is_told_and_nothing_is_looked_for_by_it() -> None:
    class Labels(Strict):
        async def list(self, kind: str, namespace: str = "", **more: Any) -> list[dict[str, Any]]:
            if any(len(value) > 63 for value in (more.get("labels") or {}).values()):
                raise KubeProblem(status=400, reason="BadRequest", message="unable to parse requirement")
            return await super().list(kind, namespace, **more)

    async def use(world: World) -> None:
        world.kube.__class__ = Labels
        status, reason, message = await world.look("a" * 64)
        assert (status, reason) == ("False", "NameUnusable") and "create the Cluster with" in message

    run(use, cluster("a" * 64))


def listens(world: World) -> dict[str, list[dict[str, Any]]]:
    """The ports of each proxy's pod."""
    return {
        name: [port for container in pod["spec"]["containers"] for port in container["ports"]]
        for (kind, _, name), pod in world.kube.manifests.items()
        if kind == "Pod" and name.startswith("prod-proxy-")
    }


def reached(ports: list[dict[str, Any]], which: str | int) -> set[int]:
    """As Kubernetes finds a port in a pod."""
    return {one["containerPort"] for one in ports if which in (one.get("name"), one["containerPort"])}


def assert_all_proxies_are_reached(world: World, *listeners: str) -> None:
    (clients,) = [
        [port["port"] for port in rule["ports"]]
        for rule in world.there("NetworkPolicy", "prod-nodes")["spec"]["ingress"]
        if any(port["port"] == 9092 for port in rule["ports"])
    ]
    pods = listens(world)
    assert len(pods) == 2
    for ports in pods.values():
        for listener in listeners:
            for which in ("bootstrap", 0, 1):
                (service,) = world.there("Service", f"prod-{listener}-{which}")["spec"]["ports"]
                (number,) = reached(ports, service["targetPort"])
                assert number >= 9094
                assert number in {one for port in clients for one in reached(ports, port)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"out": 9094}, {"out": 9095}),
        ({"out": 9094}, {"public": 9094}),
        ({"out": 9094, "b": 9095}, {"out": 9095, "b": 9094}),
        ({"out": 9094, "b": 9095}, {"out": 9096}),
        ({"out": 9094, "b": 9095}, {"b": 9094}),
    ],
    ids=["another port", "renamed", "swapped", "one less", "the other's port"],
)
def test_proxies_are_reached_from_outside_before_and_after_they_are_replaced(
    before: dict[str, int], after: dict[str, int]
) -> None:
    def written(listeners: dict[str, int]) -> list[dict[str, Any]]:
        return [{"name": name, "port": port} for name, port in listeners.items()]

    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        assert_all_proxies_are_reached(world, *before)
        world.there("Cluster", "prod")["spec"]["listeners"] = written(after)
        await world.look("prod")
        assert_all_proxies_are_reached(world, *after)
        for name in listens(world):
            world.kube.drop("Pod", "shop", name)
        world.pods_are_made()
        await world.look("prod")
        assert_all_proxies_are_reached(world, *after)
        (service,) = world.there("Service", f"prod-{next(iter(after))}-bootstrap")["spec"]["ports"]
        assert service["targetPort"] == next(iter(after)), "the next change finds them by name"

    run(use, cluster(listeners=written(before)))


def test_a_renamed_listener_is_told_to_proxies_by_the_name_that_they_know_it_by() -> None:
    def listeners(name: str) -> list[dict[str, Any]]:
        return [{"name": name, "nodePort": 30_100, "advertisedHost": "kafka-{ordinal}.example"}]

    def told(world: World) -> list[str]:
        config = world.there("ConfigMap", "prod-advertised")["data"]
        return sorted(line for text in config.values() for line in text.splitlines())

    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        assert told(world) == ["out.0=kafka-0.example:30101", "out.1=kafka-1.example:30102"]
        world.there("Cluster", "prod")["spec"]["listeners"] = listeners("public")
        await world.look("prod")
        await world.look("prod")
        new = ["public.0=kafka-0.example:30101", "public.1=kafka-1.example:30102"]
        assert told(world) == ["out.0=kafka-0.example:30101", "out.1=kafka-1.example:30102", *new]
        for name in listens(world):
            world.kube.drop("Pod", "shop", name)
        world.pods_are_made()
        await world.look("prod")
        assert told(world) == new

    run(use, cluster(listeners=listeners("out")))


def test_a_listener_whose_service_is_another_clusters_keeps_nothing_else_from_being_done() -> None:
    async def use(world: World) -> None:
        await world.look("prod-a")
        theirs = copy.deepcopy(world.there("Service", "prod-a-bootstrap"))
        await world.look("prod")
        spec = world.there("Cluster", "prod")["spec"]
        spec["listeners"] = [{"name": "a", "port": 9094}]
        spec["settings"] = {"lingerMs": 250}
        status, reason, text = await world.look("prod")
        assert (status, reason) == ("False", "NameTaken")
        assert text == (
            "Service prod-a-bootstrap belongs to another object: the listener a needs that name. Choose another name "
            "for the listener a: others may rely on that object. What else there is to do is done"
        )
        assert world.there("Service", "prod-a-bootstrap") == theirs
        configs = [name for kind, _, name in world.kube.manifests if kind == "ConfigMap" and name.startswith("prod-c")]
        texts = [world.there("ConfigMap", name)["data"]["server.yaml"] for name in configs]
        assert any("linger_ms: 250" in text for text in texts), "its settings are on their way"
        conditions = {one["type"]: one for one in world.there("Cluster", "prod")["status"]["conditions"]}
        assert conditions["Progressing"]["reason"] != "NameTaken"
        spec["listeners"] = [{"name": "out", "port": 9094}]
        assert (await world.look("prod"))[1] != "NameTaken"
        assert world.has("Service", "prod-out-bootstrap")

    run(use, cluster("prod-a", store={"url": "s3://a"}), cluster())


@pytest.mark.parametrize("paused", [False, True])
def test_no_service_of_a_listener_goes_for_one_whose_name_is_another_clusters(paused: bool) -> None:
    async def use(world: World) -> None:
        await world.look("prod-a")
        await world.look("prod")
        world.there("Cluster", "prod")["spec"] |= {"listeners": [{"name": "a", "port": 9094}], "paused": paused}
        assert (await world.look("prod"))[1] == "NameTaken"
        assert world.has("Service", "prod-out-bootstrap")

    run(
        use,
        cluster("prod-a", store={"url": "s3://a"}),
        cluster(listeners=[{"name": "out", "port": 9094}]),
    )
