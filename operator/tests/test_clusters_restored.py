"""Secrets that nodes run with and that are gone: put back by what was in them, from a backup without owners or by hand,
they are taken.
"""

import copy
from typing import Any

import pytest
from clusters_world import World, cluster, run
from test_clusters_rotation import OF_LANE, rolled, runs, told, used_by, write_secret

EMBEDDED: dict[str, Any] = {"store": {"minio": {"embedded": True}}}


async def begins(world: World) -> None:
    for _ in range(3):
        await world.look("prod")
        world.pods_are_made()
    await world.look("prod")


def restored(before: dict[str, Any], *, labels: bool) -> dict[str, Any]:
    meta = {"name": before["metadata"]["name"], "namespace": "shop"} | (
        {"labels": before["metadata"]["labels"]} if labels else {}
    )
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": before["data"]}


@pytest.mark.parametrize("labels", [False, True], ids=["by its values", "with its labels"])
@pytest.mark.parametrize("name", ["prod-keys-1", "prod-minio"])
def test_a_secret_that_is_put_back_without_its_owner_is_the_clusters_again(name: str, labels: bool) -> None:
    async def use(world: World) -> None:
        await begins(world)
        before = copy.deepcopy(world.there("Secret", name))
        world.kube.drop("Secret", "shop", name)
        assert (await world.look("prod"))[1] == "SecretMissing"
        world.kube.keep(restored(before, labels=labels))
        assert (await world.look("prod"))[1] not in ("SecretMissing", "NameTaken")
        after = world.there("Secret", name)
        assert after["data"] == before["data"]
        assert after["metadata"]["ownerReferences"][0]["uid"] == "uid-of-prod"

    run(use, cluster(**EMBEDDED))


def test_a_paused_cluster_says_that_it_would_take_it_and_leaves_it() -> None:
    async def use(world: World) -> None:
        await begins(world)
        before = copy.deepcopy(world.there("Secret", "prod-keys-1"))
        world.kube.drop("Secret", "shop", "prod-keys-1")
        world.there("Cluster", "prod")["spec"]["paused"] = True
        world.kube.keep(restored(before, labels=False))
        await world.look("prod")
        assert "ownerReferences" not in world.there("Secret", "prod-keys-1")["metadata"]

    run(use, cluster())


@pytest.mark.parametrize(
    ("data", "meta"),
    [
        ({"other": "eA=="}, {}),
        (None, {"ownerReferences": [{"controller": True, "uid": "another", "kind": "Thing", "name": "t"}]}),
    ],
    ids=["without keys", "of another object"],
)
def test_what_has_the_name_alone_is_not_taken(data: dict[str, str] | None, meta: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        await begins(world)
        before = copy.deepcopy(world.there("Secret", "prod-keys-1"))
        world.kube.drop("Secret", "shop", "prod-keys-1")
        other = restored(before, labels=False)
        world.kube.keep(other | {"data": data or other["data"], "metadata": other["metadata"] | meta})
        assert (await world.look("prod"))[1] == "SecretMissing"

    run(use, cluster())


@pytest.mark.parametrize("name", ["prod-keys-1", "prod-minio"])
def test_a_secret_that_was_there_before_the_cluster_had_nodes_is_not_taken(name: str) -> None:
    theirs = {"kind": "Secret", "metadata": {"name": name, "namespace": "shop"}, "data": {"password": "eA=="}}

    async def use(world: World) -> None:
        assert (await world.look("prod"))[1] == "NameTaken"
        assert "ownerReferences" not in world.there("Secret", name)["metadata"]

    run(use, cluster(**EMBEDDED), theirs)


def keys_told(world: World) -> str:
    conditions = world.there("Cluster", "prod")["status"]["conditions"]
    return next((one["message"] for one in conditions if one["type"] == "KeysAsWritten"), "")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"image": {"repository": "reg/not-allowed"}}, "NotAllowed"), ({"ofAnotherVersion": True}, "NotUnderstood")],
    ids=["refused", "not understood"],
)
def test_that_keys_are_half_replaced_is_told_while_the_cluster_is_refused(spec: dict[str, Any], reason: str) -> None:
    async def use(world: World) -> None:
        await begins(world)
        write_secret(world)
        await world.look("prod")
        assert "the old one counts" in keys_told(world)
        written = world.there("Cluster", "prod")["spec"]
        world.there("Cluster", "prod")["spec"] = written | spec
        for _ in range(2):
            assert (await world.look("prod"))[1] == reason
            assert "the old one counts" in keys_told(world)
            assert "prod-broker-0" in keys_told(world)
        world.there("Cluster", "prod")["spec"] = written
        await world.look("prod")
        assert "corrected" not in keys_told(world)

    run(use, cluster())


def test_a_cluster_that_is_refused_and_replaces_no_keys_says_nothing_of_them() -> None:
    async def use(world: World) -> None:
        await begins(world)
        world.there("Cluster", "prod")["spec"]["image"] = {"repository": "reg/not-allowed"}
        assert (await world.look("prod"))[1] == "NotAllowed"
        assert keys_told(world) == ""

    run(use, cluster())


def collected(world: World, uid: str) -> None:
    """As Kubernetes does with what belonged to an object that is gone."""
    for (kind, namespace, name), one in list(world.kube.manifests.items()):
        if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", [])):
            world.kube.drop(kind, namespace, name)
    world.pods_are_made()


def test_a_cluster_that_is_made_anew_runs_and_gives_the_nodes_of_lanes_that_stayed_its_keys() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_LANE)
        before = used_by(world, "prod-lane-dev-proxy")
        world.kube.drop("Cluster", "shop", "prod")
        collected(world, "uid-of-prod")
        assert world.has("Pod", "prod-lane-dev-proxy-0") and not world.has("Secret", before)
        again = cluster()
        again["metadata"]["uid"] = "uid-of-the-second"
        world.kube.keep(again)
        assert (await world.look("prod"))[1] != "SecretMissing"
        now = used_by(world, "prod-proxy")
        assert now != before, "another Secret of the name that pods know would pass for what they have"
        assert used_by(world, "prod-lane-dev-proxy") == now and world.has("Secret", now)
        world.pods_are_made()
        await world.look("prod")
        assert "prod-lane-dev-proxy-0" in told(world, "KeysAsWritten")
        rolled(world, "prod-lane-dev-proxy")
        await world.look("prod")
        assert told(world, "KeysAsWritten") == ""

    run(use, cluster())


def test_a_secret_that_nodes_of_the_base_use_besides_a_lanes_is_missed() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_LANE)
        world.kube.drop("Secret", "shop", used_by(world, "prod-proxy"))
        status, reason, text = await world.look("prod")
        assert (status, reason) == ("False", "SecretMissing") and "prod-keys-1" in text

    run(use, cluster())
