"""Node ports that move from one Service of a Cluster to another; the API server gives out each of them once."""

import copy
from typing import Any

import clusters_world
import pytest
from clusters_world import KubeProblem, Strict, World, cluster, run

from bmq_operator.allowed import Allowed
from bmq_operator.clusters.existing import REFUSED_MAX
from bmq_operator.kube import KubeFailed, KubeUnreachable, _answer

CHOSEN_FROM = 31_000
FULL = "Internal error occurred: failed to allocate a nodePort: range is full"


class Ports(Strict):
    """Gives a Service that says none a node port, leaves it the one that it has, and refuses one that another Service
    has.
    """

    full = False
    tried = 0

    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        if self.full and manifest.get("spec", {}).get("type") in ("NodePort", "LoadBalancer"):
            self.tried += 1
            raise KubeFailed(f"POST /services: 500 {FULL}")
        return await super().create(self._given_ports(manifest), manager=manager)

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return await super().apply(self._given_ports(manifest))

    def _given_ports(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["kind"] != "Service" or manifest["spec"].get("type", "ClusterIP") == "ClusterIP":
            return manifest
        found = copy.deepcopy(manifest)
        (port,) = found["spec"]["ports"]
        name = found["metadata"]["name"]
        others = {
            node_port(one): other
            for (kind, _, other), one in self.manifests.items()
            if kind == "Service" and other != name
        }
        if port.get("nodePort") in others:
            text = (
                f'Service "{name}" is invalid: spec.ports[0].nodePort: Invalid value: {port["nodePort"]}: '
                "provided port is already allocated"
            )
            raise KubeProblem(status=422, reason="Invalid", message=text)
        there = self.manifests.get(("Service", "shop", name))
        free = next(one for one in range(CHOSEN_FROM, CHOSEN_FROM + 3_000) if one not in others)
        port["nodePort"] = port.get("nodePort") or (there and node_port(there)) or free
        return found


def node_port(service: dict[str, Any]) -> int:
    return int(service["spec"]["ports"][0].get("nodePort", 0))


def listener(name: str = "out", port: int = 9094, *, node_port: int = 0, kind: str = "NodePort") -> dict[str, Any]:
    return {"name": name, "type": kind, "port": port, "nodePort": node_port, "advertisedHost": "kafka.example.com"}


def ports(world: World, name: str) -> list[int]:
    return [node_port(world.there("Service", f"prod-{name}-{which}")) for which in ("bootstrap", 0, 1)]


def write(world: World, *listeners: dict[str, Any], **spec: Any) -> None:
    there = world.there("Cluster", "prod")
    there["spec"] = {**there["spec"], **spec, "listeners": list(listeners)}
    there["metadata"]["generation"] += 1


@pytest.fixture(autouse=True)
def _ports_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters_world, "Strict", Ports)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([listener(node_port=30_100)], [listener(node_port=30_101)], {"out": [30_101, 30_102, 30_103]}),
        ([listener(node_port=30_101)], [listener(node_port=30_100)], {"out": [30_100, 30_101, 30_102]}),
        ([listener(node_port=30_100)], [listener("public", node_port=30_100)], {"public": [30_100, 30_101, 30_102]}),
        (
            [listener(node_port=30_100), listener("b", 9095, node_port=30_200)],
            [listener(node_port=30_200), listener("b", 9095, node_port=30_100)],
            {"out": [30_200, 30_201, 30_202], "b": [30_100, 30_101, 30_102]},
        ),
        (
            [listener(node_port=30_100), listener("b", 9095, node_port=30_200)],
            [listener(node_port=30_200), listener("b", 9095)],
            {"out": [30_200, 30_201, 30_202]},
        ),
    ],
    ids=["up by one", "down by one", "renamed", "swapped", "given away"],
)
def test_a_node_port_goes_from_one_service_of_a_cluster_to_another(
    before: list[dict[str, Any]], after: list[dict[str, Any]], expected: dict[str, list[int]]
) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        write(world, *after)
        assert (await world.look("prod"))[1] != "Refused", world.ready("prod")
        assert {name: ports(world, name) for name in expected} == expected
        assert {one for kind, _, one in world.kube.manifests if kind == "Service" and one.startswith("prod-out")} == {
            f"prod-out-{which}" for which in ("bootstrap", 0, 1) if "out" in expected
        }

    run(use, cluster(listeners=before))


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_what_kubernetes_chose_for_a_listener_is_taken_by_no_other_one(kind: str) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        there = world.there("Service", "prod-out-bootstrap")
        kept = there["metadata"]["uid"]
        write(world, listener(kind=kind), listener("b", 9095, node_port=node_port(there)))
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "Refused")
        assert "already allocated" in message
        assert world.there("Service", "prod-out-bootstrap")["metadata"]["uid"] == kept

    run(use, cluster(listeners=[listener(kind=kind)]))


def test_an_address_of_a_cloud_is_not_given_up_for_the_node_port_behind_it() -> None:
    """Though that Service is to be changed by the same edit."""

    async def use(world: World) -> None:
        await world.look("prod")
        there = world.there("Service", "prod-out-bootstrap")
        kept = there["metadata"]["uid"]
        write(world, listener(port=9096, kind="LoadBalancer"), listener("b", 9095, node_port=node_port(there)))
        assert (await world.look("prod"))[1] == "Refused"
        assert world.there("Service", "prod-out-bootstrap")["metadata"]["uid"] == kept

    run(use, cluster(listeners=[listener(kind="LoadBalancer")]))


def test_while_a_cluster_is_paused_no_service_makes_way() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        write(world, listener(node_port=30_101), paused=True)
        await world.look("prod")
        assert ports(world, "out") == [30_100, 30_101, 30_102]

    run(use, cluster(listeners=[listener(node_port=30_100)]))


def test_no_service_makes_way_for_one_whose_name_is_somebody_elses() -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "prod-public-0", "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]},
    }

    async def use(world: World) -> None:
        await world.look("prod")
        write(world, listener("public", node_port=30_100))
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "NameTaken") and "prod-public-0" in message
        assert ports(world, "out") == [30_100, 30_101, 30_102], "clients outside are served as before"
        world.kube.drop("Service", "shop", "prod-public-0")
        assert (await world.look("prod"))[1] != "NameTaken"
        assert ports(world, "public") == [30_100, 30_101, 30_102]

    run(use, cluster(listeners=[listener(node_port=30_100)]), theirs)


def test_a_service_that_is_refused_keeps_nothing_else_from_being_done() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        write(world, listener(), settings={"lingerMs": 250})
        assert isinstance(world.kube, Ports)
        world.kube.full = True
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "Refused")
        assert "Service prod-out-bootstrap: " in message and FULL in message
        assert any("linger_ms: 250" in text for text in configurations(world)), "its settings are on their way"
        conditions = {one["type"]: one for one in world.there("Cluster", "prod")["status"]["conditions"]}
        assert conditions["Progressing"]["reason"] != "Refused"
        world.kube.full = False
        assert (await world.look("prod"))[1] != "Refused"
        assert ports(world, "out") == [CHOSEN_FROM, CHOSEN_FROM + 1, CHOSEN_FROM + 2]

    run(use, cluster())


def configurations(world: World) -> list[str]:
    return [
        one["data"].get("server.yaml", "") for (kind, _, _), one in world.kube.manifests.items() if kind == "ConfigMap"
    ]


def test_what_keeps_many_services_from_being_is_not_asked_for_all_of_them() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        write(world, listener(), proxies={"replicas": 50})
        assert isinstance(world.kube, Ports)
        world.kube.full = True
        assert (await world.look("prod"))[1] == "Refused"
        assert world.kube.tried == REFUSED_MAX

    run(use, cluster())


@pytest.mark.parametrize(
    "spec",
    [
        {
            "listeners": [listener()],
            "proxies": {"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 1000}},
        },
        {"listeners": [listener(), listener("b", 9095, kind="LoadBalancer")], "proxies": {"replicas": 100}},
    ],
    ids=["that there may be", "of two listeners"],
)
def test_a_cluster_takes_no_more_ports_of_all_nodes_than_the_chart_allows(spec: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "NotAllowed")
        assert "a Cluster may have 200: lower proxies." in message and "allow.nodePorts" in message
        assert not [one for kind, _, one in world.kube.manifests if kind == "Service"]
        more = world.context.settings.model_copy(update={"allow": Allowed(node_ports=2002)})
        object.__setattr__(world.context, "settings", more)
        assert (await world.look("prod"))[1] != "NotAllowed"

    run(use, cluster(**spec))


def test_a_cluster_without_listeners_may_have_any_number_of_proxies() -> None:
    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] != "NotAllowed"

    run(use, cluster(proxies={"replicas": 300}))


def test_what_the_api_server_could_not_do_is_told_from_its_being_away() -> None:
    with pytest.raises(KubeFailed, match="range is full"):
        _answer(500, b'{"message": "range is full"}', "POST /x")
    with pytest.raises(KubeUnreachable) as away:
        _answer(503, b"{}", "POST /x")
    assert not isinstance(away.value, KubeFailed)
