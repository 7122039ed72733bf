"""Of Clusters over one store that one has it which had nodes there first; one that has never had any keeps nobody from it."""

from typing import Any

import pytest
from clusters_world import World, cluster, run

ELDER = "2000-01-01T00:00:00Z"
ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "elder", "namespace": "shop"}}
REFUSED: dict[str, dict[str, Any]] = {
    "refused": {"image": {"repository": "evil.example/steal"}},
    "without its keys": {"store": {"url": "s3://b", "credentials": {"secretName": "missing"}}},
    "without a name": {},
}


@pytest.mark.parametrize("spec", REFUSED.values(), ids=REFUSED)
def test_an_older_cluster_that_never_ran_keeps_nobody_from_the_store_and_is_kept_from_it_afterwards(spec: dict[str, Any]) -> None:
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
