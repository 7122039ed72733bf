"""Keys that are replaced reach the nodes of lanes whatever becomes of their Lanes, and who keeps the old ones is
named.
"""

import base64
import copy
from typing import Any

import pytest
from clusters_world import World, cluster, run

from bmq_operator.clusters import lane_room
from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.existing import read_existing
from bmq_operator.clusters.keys import reference
from bmq_operator.clusters.nodes import ClusterState, Node
from bmq_operator.clusters.reconcile import _bring_about
from bmq_operator.kube import KubeProblem
from bmq_resources.cluster import Cluster

NEW = "a-new-secret-of-24-characters!"
OF_CLUSTER = {
    "controller": True,
    "uid": "uid-of-prod",
    "kind": "Cluster",
    "apiVersion": "bmq.io/v1alpha1",
    "name": "prod",
}
OF_LANE = {"controller": True, "uid": "uid-of-dev", "kind": "Lane", "apiVersion": "bmq.io/v1alpha1", "name": "dev"}


def lane(**spec: Any) -> dict[str, Any]:
    """One that a Cluster refuses: its namespace is none of `topicsFrom`."""
    meta = {
        "name": "dev",
        "namespace": "teams",
        "uid": "uid-of-dev",
        "generation": 1,
        "creationTimestamp": "2001-09-09T01:46:40Z",
    }
    reference_to = {"clusterRef": {"name": "prod", "namespace": "shop"}}
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Lane",
        "metadata": meta,
        "spec": {**reference_to, **spec},
        "status": {"laneName": "dev"},
    }


def objects_of_lane(world: World, owner: dict[str, Any]) -> None:
    """As the operator made them of a Lane that was allowed then."""
    base = world.there("StatefulSet", "prod-proxy")
    meta = {
        "namespace": "shop",
        "annotations": {"bmq.io/of-lane": "dev", "bmq.io/of-namespace": "teams"},
        "ownerReferences": [owner],
    }
    labels = {**base["metadata"]["labels"], "bmq.io/lane": "dev"}
    proxies = copy.deepcopy(base) | {"metadata": {**meta, "name": "prod-lane-dev-proxy", "labels": labels}}
    proxies["spec"]["template"]["metadata"]["labels"]["bmq.io/lane"] = "dev"
    proxies["spec"]["template"]["metadata"]["annotations"]["own"] = "stays"
    proxies["spec"]["template"]["spec"]["containers"].insert(
        0, {"name": "sidecar", "image": "s", "env": [{"name": "BMQ_ADMIN_TOKEN", "value": "x"}]}
    )
    world.kube.keep(proxies)
    for kind, name in (("PodDisruptionBudget", "prod-lane-dev-proxy"), ("Service", "prod-lane-dev")):
        world.kube.keep(
            {"apiVersion": "v1", "kind": kind, "metadata": {**meta, "name": name, "labels": labels}, "spec": {}}
        )


def write_secret(world: World) -> None:
    secret = world.there("Secret", "prod-auth")
    world.kube.keep({**secret, "data": {**secret["data"], "cluster-secret": base64.b64encode(NEW.encode()).decode()}})


def used_by(world: World, name: str) -> str:
    return reference(world.there("StatefulSet", name)["spec"]["template"]["spec"])[0]


def told(world: World, kind: str) -> str:
    return next(
        (one["message"] for one in world.there("Cluster", "prod")["status"]["conditions"] if one["type"] == kind), ""
    )


async def held(world: World) -> list[str]:
    """What a Cluster that is paused would do."""
    read = Cluster.model_validate({key: world.there("Cluster", "prod")[key] for key in ("metadata", "spec")})
    found = await _bring_about(world.context, read, await read_existing(world.kube, read), {})  # type: ignore[arg-type]
    return list(found.held)


def rolled(world: World, prefix: str, *, but: bool = False) -> None:
    for name in [name for kind, _, name in world.kube.manifests if kind == "Pod" and name.startswith(prefix) != but]:
        world.kube.drop("Pod", "shop", name)
    world.pods_are_made()


async def runs(world: World, owner: dict[str, Any]) -> None:
    await world.look("prod")
    objects_of_lane(world, owner)
    world.pods_are_made()
    await world.look("prod")


@pytest.mark.parametrize("owner", [OF_CLUSTER, OF_LANE], ids=["of another namespace", "of the Cluster's"])
def test_a_rotation_ends_though_a_lane_is_refused(owner: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        await runs(world, owner)
        before = copy.deepcopy(world.there("StatefulSet", "prod-lane-dev-proxy")["spec"]["template"])
        write_secret(world)
        for _ in range(3):  # rolls
            await world.look("prod")
            assert used_by(world, "prod-lane-dev-proxy") == used_by(world, "prod-proxy") != reference(before["spec"])[0]
            rolled(world, "prod-lane-dev-proxy", but=True)
            await world.look("prod")
            assert "in this round: prod-lane-dev-proxy-0, prod-lane-dev-proxy-1" in told(world, "KeysAsWritten")
            rolled(world, "prod-lane-dev-proxy")
        await world.look("prod")
        assert told(world, "KeysAsWritten") == ""
        assert [name for kind, _, name in world.kube.manifests if kind == "Secret" and "keys" in name] == [
            used_by(world, "prod-lane-dev-proxy")
        ]
        template = world.there("StatefulSet", "prod-lane-dev-proxy")["spec"]["template"]
        assert template["metadata"]["annotations"]["own"] == "stays"
        assert template["spec"]["containers"][0] == before["spec"]["containers"][0], (
            "a container of another name is left alone"
        )
        keys = [
            one for one in template["spec"]["containers"][1]["env"] if "SECRET" in one["name"] or "TOKEN" in one["name"]
        ]
        assert {one["valueFrom"]["secretKeyRef"]["name"] for one in keys} == {used_by(world, "prod-proxy")}
        assert len(keys) == 4

    run(use, cluster(), lane())


def test_what_a_paused_cluster_would_do_for_lanes_and_pods_that_are_stuck_is_told() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        write_secret(world)
        world.there("Cluster", "prod")["spec"]["paused"] = True
        probe = copy.deepcopy(world.there("StatefulSet", "prod-proxy"))
        meta = probe["metadata"] | {
            "name": "prod-probe",
            "labels": probe["metadata"]["labels"] | {"app.kubernetes.io/component": "probe"},
        }
        probe["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] = "probe"
        del meta["uid"]
        world.kube.keep(probe | {"metadata": meta})
        world.pods_are_made(ready=False)
        world.there("Pod", "prod-probe-0")["metadata"]["labels"]["controller-revision-hash"] = "r0"
        before = str(world.kube.manifests)
        said = await held(world)
        assert "to give StatefulSet prod-lane-dev-proxy the newest keys" in said
        assert "to replace Pod prod-probe-0 (probe), which was not ready and had old settings" in said
        assert str(world.kube.manifests) == before

    run(use, cluster(), lane())


def test_nodes_that_keep_the_old_key_are_named_by_ready_too() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        write_secret(world)
        await world.look("prod")
        for kind in ("KeysAsWritten", "Ready"):
            assert told(world, kind), kind
        assert "prod-broker-0" in told(world, "KeysAsWritten")

    run(use, cluster(), lane())


def test_a_lane_whose_pods_the_api_server_refuses_holds_up_its_own_keys_alone() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        write_secret(world)
        merge = world.kube.merge

        async def refuses(kind: str, namespace: str, name: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
            if name == "prod-lane-dev-proxy":
                raise KubeProblem(status=403, reason="Forbidden", message="a policy says no")
            return await merge(kind, namespace, name, body, **more)

        world.kube.merge = refuses  # type: ignore[method-assign]
        before = used_by(world, "prod-proxy")
        await world.look("prod")
        assert used_by(world, "prod-proxy") != before
        assert "prod-lane-dev-proxy" in told(world, "KeysAsWritten") and "a policy says no" in told(
            world, "KeysAsWritten"
        )

    run(use, cluster(), lane())


@pytest.mark.parametrize("another", [None, lane(laneName="other")], ids=["gone", "another lane's by now"])
def test_objects_whose_lane_is_gone_go(another: dict[str, Any] | None) -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        assert world.has("StatefulSet", "prod-lane-dev-proxy"), "its Lane is there"
        world.kube.drop("Lane", "teams", "dev")
        if another is not None:
            world.kube.keep(copy.deepcopy(another))
        world.there("Cluster", "prod")["spec"]["paused"] = True
        await world.look("prod")
        assert world.has("StatefulSet", "prod-lane-dev-proxy"), "nothing is changed of a Cluster that is paused"
        assert "to delete StatefulSet prod-lane-dev-proxy, as there is no Lane teams/dev" in " ".join(await held(world))
        world.there("Cluster", "prod")["spec"]["paused"] = False
        await world.look("prod")
        assert sorted(world.kube.deleted) == [
            "PodDisruptionBudget prod-lane-dev-proxy",
            "Service prod-lane-dev",
            "StatefulSet prod-lane-dev-proxy",
        ]
        assert world.has("StatefulSet", "prod-proxy")

    run(use, cluster(), lane())


def test_a_rotation_ends_though_a_node_of_a_lane_never_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: World) -> None:
        async def ask(context: Any, of: Any, pods: Any) -> Answer:
            seen = {one.node_id: Node(node_id=one.node_id, alive=True, leads=one.node_id == 1) for one in pods}
            return Answer(state=ClusterState(cluster_id="shop-prod", nodes=seen, store_ok=True))

        monkeypatch.setattr("bmq_operator.clusters.reconcile.ask", ask)
        await runs(world, OF_CLUSTER)
        ended = {"prod-lane-dev-proxy-1"}  # and what comes in its place is never ready
        write_secret(world)
        for _ in range(40):
            rolled(world, "prod-lane-dev", but=True)
            for name in ("prod-lane-dev-proxy-0", "prod-lane-dev-proxy-1"):
                pod = world.there("Pod", name)
                if name in ended:
                    pod["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
                old = reference(pod["spec"])[0] != used_by(world, "prod-lane-dev-proxy")
                pod["metadata"]["labels"]["controller-revision-hash"] = "r0" if old else "r1"
            world.kube.deleted.clear()
            await world.look("prod")
            ended |= {one.removeprefix("Pod ") for one in world.kube.deleted}
            world.context.clock.ms += 60_000  # type: ignore[attr-defined]
        secret = world.there("Secret", used_by(world, "prod-controller"))["data"]
        assert secret["cluster-secret"] == base64.b64encode(NEW.encode()).decode()
        assert "cluster-secrets-accepted" not in secret
        assert told(world, "KeysAsWritten") == ""

    run(use, cluster(rollout={"settleSeconds": 0}), lane())


def test_objects_of_a_lane_that_cannot_be_looked_for_stay() -> None:
    async def use(world: World) -> None:
        object.__setattr__(
            world.context, "settings", world.context.settings.model_copy(update={"namespaces": ("shop",)})
        )
        await runs(world, OF_CLUSTER)
        world.kube.drop("Lane", "teams", "dev")
        await world.look("prod")
        assert world.has("StatefulSet", "prod-lane-dev-proxy")

    run(use, cluster(), lane())


def test_nodes_that_lost_their_owner_are_told_and_left() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        del world.there("StatefulSet", "prod-lane-dev-proxy")["metadata"]["ownerReferences"]
        world.kube.deleted.clear()
        await world.look("prod")
        assert "nobody owns prod-lane-dev-proxy, as after a deletion with --cascade=orphan" in told(world, "NodesOwned")
        assert world.kube.deleted == []
        world.kube.drop("StatefulSet", "shop", "prod-lane-dev-proxy")
        await world.look("prod")
        assert told(world, "NodesOwned") == ""

    run(use, cluster(), lane())


def test_a_node_of_a_lane_that_there_is_no_room_to_look_at_keeps_its_key_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        monkeypatch.setattr(lane_room, "LANES_BYTES_MAX", 18_000)
        write_secret(world)
        for _ in range(5):
            await world.look("prod")
            rolled(world, "prod-lane-dev-proxy", but=True)
            await world.look("prod")
        assert told(world, "LanesLookedAt")
        (name, _) = reference(world.there("Pod", "prod-lane-dev-proxy-0")["spec"])
        assert world.has("Secret", name) and name != used_by(world, "prod-proxy")
        assert "prod-lane-dev-proxy-0" in told(world, "KeysAsWritten")

    run(use, cluster(), lane())
