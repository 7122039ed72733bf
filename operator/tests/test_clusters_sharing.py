"""Of Clusters over one store that one has it which had nodes there first; one that has never had any keeps nobody from
it.
"""

from typing import Any

import pytest
from clusters_world import World, cluster, doomed, run

from bmq_operator.clusters import stores
from bmq_operator.clusters.stores import CLAIM_S
from bmq_operator.conditions import timestamp
from bmq_operator.kube import KubeProblem
from bmq_operator.understood import understood

ELDER = "2000-01-01T00:00:00Z"
ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "elder", "namespace": "shop"}}
REFUSED: dict[str, dict[str, Any]] = {
    "refused": {"image": {"repository": "evil.example/steal"}},
    "without its keys": {"store": {"url": "s3://b", "credentials": {"secretName": "missing"}}},
    "without a name": {},
}


@pytest.mark.parametrize("spec", REFUSED.values(), ids=REFUSED)
def test_an_older_cluster_that_never_ran_keeps_nobody_from_the_store_and_is_kept_from_it_afterwards(
    spec: dict[str, Any],
) -> None:
    async def use(world: World) -> None:
        assert (await world.look("elder"))[0] == "False"
        assert not world.has("StatefulSet", "elder-controller")
        assert (await world.look("prod"))[1] != "StoreShared"
        assert world.has("StatefulSet", "prod-controller")
        world.there("Cluster", "elder")["spec"] = {"store": {"url": "s3://b"}}
        world.kube.drop("ServiceAccount", "shop", "elder")
        assert (await world.look("elder"))[1] == "StoreShared", "it may begin by now, and the other one has"
        assert not world.has("StatefulSet", "elder-controller")

    run(use, cluster("elder", created=ELDER, **spec), cluster(), *(() if spec else (ACCOUNT,)))


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "made by an operator that ended before it noted it"])
def test_who_had_nodes_over_a_store_has_it_whatever_his_spec_says_by_now(noted: bool) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        if not noted:
            world.there("Cluster", "prod")["status"]["store"] = ""
        world.context.known.stores_taken.clear()  # as after another operator led
        world.there("Cluster", "prod")["spec"]["image"] = {"repository": "evil.example/steal"}
        await world.look("prod")
        assert (await world.look("elder"))[1] == "StoreShared"

    run(use, cluster(), cluster("elder", created=ELDER))


def test_of_two_that_are_looked_at_at_once_one_begins() -> None:
    async def use(world: World) -> None:
        create = world.kube.create

        async def meets(manifest: dict[str, Any], **more: Any) -> dict[str, Any]:
            if manifest["metadata"].get("name") == "prod":  # before anything of the first one is there
                assert (await world.look("elder"))[1] == "StoreShared"
            return await create(manifest, **more)

        world.kube.create = meets  # type: ignore[method-assign]
        await world.look("prod")
        assert world.has("StatefulSet", "prod-controller") and not world.has("StatefulSet", "elder-controller")

    run(use, cluster(), cluster("elder", created=ELDER))


def test_a_cluster_that_is_gone_leaves_its_store_to_the_next_one() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        for kind in ("Cluster", "StatefulSet"):
            for name in [name for found, _, name in world.kube.manifests if found == kind and name.startswith("prod")]:
                world.kube.drop(kind, "shop", name)
        assert (await world.look("elder"))[1] != "StoreShared"

    run(use, cluster(), cluster("elder", created=ELDER))


CLAIM_MS = CLAIM_S * 1_000


def elsewhere(name: str, **spec: Any) -> dict[str, Any]:
    """A Cluster of a namespace whose authors have nothing to do with the others'."""
    return cluster(name, meta={"namespace": "dev", "uid": f"uid-of-dev-{name}"}, **spec)


def made_now(world: World) -> None:
    """As an API server notes it of what it makes."""
    for (kind, _, _), one in world.kube.manifests.items():
        if kind == "StatefulSet":
            one["metadata"].setdefault("creationTimestamp", timestamp(world.context.clock.now_ms()))


def passes(world: World, ms: int) -> None:
    world.context.clock.ms += ms  # type: ignore[attr-defined]


async def squats(world: World, name: str = "squatter") -> None:
    await world.look(name, namespace="dev")
    made_now(world)
    await world.look(name, namespace="dev")


def use_of(world: World, name: str, namespace: str = "shop") -> str:
    return str(world.kube.manifests["Cluster", namespace, name]["status"]["storeUse"])


def has_nodes(world: World, name: str, namespace: str = "shop") -> bool:
    return ("StatefulSet", namespace, f"{name}-controller") in world.kube.manifests


def test_who_names_a_store_and_never_reaches_it_keeps_its_owner_out_for_minutes_and_ends_once_that_has_it() -> None:
    async def use(world: World) -> None:
        await squats(world)
        assert use_of(world, "squatter", "dev") == "Begun"
        world.kube.keep(cluster())
        _, reason, text = await world.look("prod")
        assert reason == "StoreShared" and "dev/squatter, which has begun with it" in text
        passes(world, CLAIM_MS - 1_000)
        assert (await world.look("prod"))[1] == "StoreShared"
        passes(world, 1_000)
        assert (await world.look("prod"))[1] != "StoreShared"
        made_now(world)
        await world.look("squatter", namespace="dev")
        assert has_nodes(world, "squatter", "dev"), "which of the two reaches it is open"
        world.pods_are_made()
        for name in [name for kind, _, name in world.kube.manifests if kind == "Pod" and name.startswith("squatter")]:
            world.kube.drop("Pod", "shop", name)  # they wait for keys
        await world.look("prod")
        assert use_of(world, "prod") == "Reached"
        assert (await world.look("squatter", namespace="dev"))[1] == "StoreShared"
        assert not has_nodes(world, "squatter", "dev") and has_nodes(world, "prod")
        passes(world, CLAIM_MS * 100)
        assert (await world.look("squatter", namespace="dev"))[1] == "StoreShared"
        assert (await world.look("prod"))[1] != "StoreShared"

    run(use, elsewhere("squatter"))


def test_who_is_made_again_and_again_does_not_go_before_who_waits() -> None:
    async def use(world: World) -> None:
        await squats(world)
        world.kube.keep(cluster(created="2001-10-01T00:00:00Z"))
        assert (await world.look("prod"))[1] == "StoreShared"
        for kind, namespace, name in list(world.kube.manifests):
            if namespace == "dev":
                world.kube.drop(kind, namespace, name)
        world.kube.keep(elsewhere("squatter", created="2001-11-01T00:00:00Z"))
        world.kube.manifests["Cluster", "dev", "squatter"]["metadata"]["uid"] = "another"
        _, reason, text = await world.look("squatter", namespace="dev")
        assert reason == "StoreShared" and "waited for by Cluster shop/prod" in text
        assert (await world.look("prod"))[1] != "StoreShared"
        assert has_nodes(world, "prod")

    run(use, elsewhere("squatter"))


def test_a_paused_one_that_waits_keeps_nobody_from_the_store() -> None:
    async def use(world: World) -> None:
        await squats(world)
        world.kube.keep(cluster("elder", created=ELDER, paused=True))
        assert (await world.look("elder"))[1] == "StoreShared"
        passes(world, CLAIM_MS)
        world.kube.keep(cluster())
        assert (await world.look("prod"))[1] != "StoreShared"

    run(use, elsewhere("squatter"))


def test_an_embedded_minio_is_its_clusters_whoever_named_it_before() -> None:
    async def use(world: World) -> None:
        await squats(world)
        world.kube.keep(cluster(store={"minio": {"embedded": True}}))
        assert (await world.look("prod"))[1] != "StoreShared"
        assert world.has("StatefulSet", "prod-minio")
        _, reason, text = await world.look("squatter", namespace="dev")
        assert reason == "StoreShared" and "is the MinIO of Cluster shop/prod" in text
        assert not has_nodes(world, "squatter", "dev")

    run(use, elsewhere("squatter", store={"url": "s3://bmq?endpoint=http://prod-minio.shop.svc:9000"}))


@pytest.mark.parametrize("noted", ["Reached", ""], ids=["noted", "noted by an operator before"])
@pytest.mark.parametrize(
    "spec",
    [{"store": {"url": "s3://b"}, "ofAnotherVersion": True}, {"store": {"url": "s3://b", "more": 1}}, {"store": 7}, 7],
    ids=["another field", "another field of the store", "no store", "no spec"],
)
def test_a_cluster_that_is_not_understood_keeps_the_store_that_it_reached(spec: Any, noted: str) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        assert use_of(world, "prod") == "Reached"
        world.there("Cluster", "prod")["status"]["storeUse"] = noted
        world.there("Cluster", "prod")["spec"] = spec
        world.context.known.stores_taken.clear()
        assert (await world.look("prod"))[1] == "NotUnderstood"
        world.kube.keep(doomed("copy", created=ELDER, clusterId="shop-prod"))
        assert (await world.look("copy"))[1] == "StoreShared"
        assert not has_nodes(world, "copy")
        world.begins_deletion("copy")
        for _ in range(3):
            await world.look("copy")
        assert not world.has("Job", "copy-erase")

    run(use, cluster())


def test_what_reached_its_store_after_it_was_looked_at_last_has_it() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        made_now(world)
        await world.look("prod")
        assert use_of(world, "prod") == "Begun"
        world.there("Cluster", "prod")["spec"]["ofAnotherVersion"] = True
        world.there("StatefulSet", "prod-controller")["status"] = {"readyReplicas": 1}
        passes(world, CLAIM_MS * 2)
        world.kube.keep(cluster("copy"))
        assert (await world.look("copy"))[1] == "StoreShared"

    run(use, cluster())


def test_an_owner_erases_its_store_though_one_that_never_reached_it_named_it_too() -> None:
    async def use(world: World) -> None:
        await squats(world)
        passes(world, CLAIM_MS)
        world.kube.keep(doomed())
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        assert use_of(world, "prod") == "Reached"
        world.kube.manifests["Cluster", "dev", "squatter"]["status"]["storeUse"] = "Begun"
        for kind, namespace, name in list(world.kube.manifests):
            if namespace == "dev" and kind == "StatefulSet":
                world.kube.manifests[kind, namespace, name]["status"] = {}
        world.begins_deletion("prod")
        for _ in range(4):
            await world.look("prod")
            world.pods_are_made()
            for name in [
                name for kind, _, name in world.kube.manifests if kind == "Pod" and name.startswith("squatter")
            ]:
                world.kube.drop("Pod", "shop", name)
        assert world.has("Job", "prod-erase")

    run(use, elsewhere("squatter"))


def loses_its_rights(world: World, namespace: str = "dev") -> None:
    """As where somebody deletes the chart's RoleBinding there, or the namespace was made anew: bmq's own resources are
    seen all the same."""
    get, each = world.kube.get, world.kube.each

    def refused(kind: str, where: str) -> None:
        if where == namespace and kind not in ("Cluster", "Namespace"):
            text = f'User "operator" cannot get resource "{kind}" in the namespace "{where}"'
            raise KubeProblem(status=403, reason="Forbidden", message=text)

    async def gets(kind: str, where: str, name: str) -> dict[str, Any] | None:
        refused(kind, where)
        return await get(kind, where, name)

    async def lists(kind: str, where: str = "", **more: Any) -> Any:
        refused(kind, where)
        return await each(kind, where, **more)

    world.kube.get, world.kube.each = gets, lists  # type: ignore[method-assign]


@pytest.mark.parametrize("how", [{"paused": True}, {}, {"ofAnotherVersion": True}], ids=["paused", "", "not read"])
def test_one_whose_nodes_may_not_be_looked_at_stops_neither_a_start_nor_an_erasure(how: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        loses_its_rights(world)
        world.kube.keep(doomed())
        assert (await world.look("prod"))[1] not in ("Refused", "StoreShared")
        assert has_nodes(world, "prod")
        world.pods_are_made()
        await world.look("prod")
        assert use_of(world, "prod") == "Reached"
        world.begins_deletion("prod")
        for _ in range(4):
            await world.look("prod")
            world.pods_are_made()
        assert world.has("Job", "prod-erase")

    run(use, elsewhere("thief", created=ELDER, **how))


def test_one_that_had_begun_before_the_operator_lost_its_rights_keeps_nobody_out() -> None:
    async def use(world: World) -> None:
        await squats(world)
        loses_its_rights(world)
        world.kube.keep(cluster())
        assert (await world.look("prod"))[1] != "StoreShared"
        assert has_nodes(world, "prod")

    run(use, elsewhere("squatter"))


def test_a_store_is_not_erased_from_which_nodes_may_serve_that_nobody_may_look_at() -> None:
    """Kubernetes made them after the operator had lost its rights there: their Cluster's status never says so."""

    async def use(world: World) -> None:
        await squats(world)
        loses_its_rights(world)
        world.kube.keep(doomed())
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        assert use_of(world, "prod") == "Reached"
        world.begins_deletion("prod")
        for _ in range(4):
            await world.look("prod")
            world.pods_are_made()
        assert world.ready("prod")[1] == "StoreShared" and not world.has("Job", "prod-erase")

    run(use, elsewhere("squatter"))


@pytest.mark.parametrize(
    "status",
    [
        {"store": "s3://b", "storeUse": "Reached"},
        {"store": "s3://b"},
        {"store": "s3://b", "storeUse": "Begun", "controllers": {"ready": 1}},
    ],
    ids=["reached", "noted by an operator before", "ready"],
)
def test_one_whose_nodes_may_not_be_looked_at_keeps_what_its_status_tells(status: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        world.kube.manifests["Cluster", "dev", "owner"]["status"] = status
        loses_its_rights(world)
        assert (await world.look("prod"))[1] == "StoreShared"
        world.there("Cluster", "prod")["status"] |= {"store": "s3://b", "storeUse": "Reached"}
        world.begins_deletion("prod")
        for _ in range(3):
            await world.look("prod")
        assert world.ready("prod")[1] == "StoreShared" and not world.has("Job", "prod-erase")

    run(use, elsewhere("owner"), doomed())


def test_of_clusters_over_other_stores_nothing_is_read_but_their_store(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(model: Any, manifest: dict[str, Any]) -> Any:
        if manifest["spec"].keys() - {"store"}:
            read.append(manifest["metadata"]["name"])
        return understood(model, manifest)

    async def use(world: World) -> None:
        monkeypatch.setattr(stores, "understood", counted)
        await world.look("prod")
        assert read == ["same"]

    others = [cluster(f"other-{number}", store={"url": f"s3://other-{number}"}, paused=True) for number in range(5)]
    run(use, cluster(), cluster("same", paused=True), *others)


def test_of_many_that_wait_for_one_store_none_asks_for_the_nodes_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    nodes = stores._nodes

    async def counted(context: Any, meta: Any) -> Any:
        asked.append(meta.name)
        return await nodes(context, meta)

    async def use(world: World) -> None:
        await world.look("prod")
        names = [f"other-{number}" for number in range(20)]
        for name in names:
            await world.look(name)
        monkeypatch.setattr(stores, "_nodes", counted)
        for name in names[1:]:
            assert (await world.look(name))[1] == "StoreShared"
        assert set(asked) == set(names[1:]), "each asks for its own"

    others = [cluster(f"other-{number}", created=f"2001-09-10T01:46:{number:02}Z") for number in range(20)]
    run(use, cluster(), *others)
