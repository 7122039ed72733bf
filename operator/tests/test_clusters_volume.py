"""The embedded MinIO's volume stays with deletionPolicy Retain, whatever its StatefulSet said before and whoever
deletes that.
"""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from clusters_world import KubeProblem, World, cluster, doomed, run

CLAIM = "data-prod-minio-0"
EMBEDDED: dict[str, Any] = {"minio": {"embedded": True}}


def policy(world: World) -> str:
    return str(world.there("StatefulSet", "prod-minio")["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"])


def owners(world: World) -> list[str]:
    return [one["uid"] for one in world.there("PersistentVolumeClaim", CLAIM)["metadata"].get("ownerReferences", [])]


async def runs(world: World) -> None:
    for _ in range(2):
        await world.look("prod")
        world.pods_are_made()
    await world.look("prod")


def made_by_an_older_operator(world: World, *, others: tuple[str, ...] = ()) -> None:
    """It had Kubernetes delete the claim, which Kubernetes notes on the claim."""
    there = world.there("StatefulSet", "prod-minio")
    there["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Delete"
    labels = {"bmq.io/cluster": "prod", "app.kubernetes.io/component": "minio", "bmq.io/lane": ""}
    owned = [
        {"kind": "StatefulSet", "name": "prod-minio", "uid": there["metadata"]["uid"]},
        *({"kind": "Thing", "uid": uid} for uid in others),
    ]
    meta = {"name": CLAIM, "namespace": "shop", "labels": labels, "ownerReferences": owned}
    world.kube.keep({"kind": "PersistentVolumeClaim", "metadata": meta})


async def at_once(world: World) -> None:
    world.there("Cluster", "prod")["spec"]["deletionPolicy"] = "Retain"


async def paused(world: World) -> None:
    world.there("Cluster", "prod")["spec"] |= {"deletionPolicy": "Retain", "paused": True}
    await world.look("prod")


async def refused(world: World) -> None:
    world.there("Cluster", "prod")["spec"] |= {
        "deletionPolicy": "Retain",
        "image": {"repository": "reg.example/not-allowed"},
    }
    await world.look("prod")


async def unconfirmed(world: World) -> None:
    world.there("Cluster", "prod")["metadata"]["annotations"] = {}
    world.there("Cluster", "prod")["spec"]["paused"] = True
    await world.look("prod")
    world.begins_deletion("prod")
    assert (await world.look("prod"))[1] == "DeletionUnconfirmed"
    world.there("Cluster", "prod")["spec"]["deletionPolicy"] = "Retain"


@pytest.mark.parametrize("happens", [at_once, paused, refused, unconfirmed])
def test_the_volume_of_a_cluster_that_says_retain_when_it_goes_stays(
    happens: Callable[[World], Awaitable[None]],
) -> None:
    async def use(world: World) -> None:
        await runs(world)
        assert policy(world) == "Retain", "the operator deletes the claim, and nobody else does"
        made_by_an_older_operator(world)
        await happens(world)
        world.begins_deletion("prod")
        for _ in range(3):
            if world.held("prod"):
                await world.look("prod")
        assert not world.held("prod")
        assert policy(world) == "Retain" and owners(world) == []

    run(use, doomed(store=EMBEDDED))


@pytest.mark.parametrize(
    "spec",
    [{}, {"paused": True}, {"image": {"repository": "reg.example/not-allowed"}}],
    ids=["as before", "paused", "refused"],
)
def test_a_volume_that_would_go_with_its_stateful_set_is_taken_from_it_by_the_next_look(spec: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        await runs(world)
        made_by_an_older_operator(world, others=("somebody's",))
        world.kube.drop("Secret", "shop", "prod-minio")
        world.there("Cluster", "prod")["spec"] |= copy.deepcopy(spec)
        _, reason, text = await world.look("prod")
        assert (reason == "SecretMissing" and "delete the StatefulSet prod-minio" in text) or "image" in spec
        assert policy(world) == "Retain" and owners(world) == ["somebody's"]

    run(use, doomed(store=EMBEDDED))


def test_the_finalizer_stays_until_kubernetes_has_seen_that_the_volume_stays() -> None:
    async def use(world: World) -> None:
        await runs(world)
        made_by_an_older_operator(world)
        there = world.there("StatefulSet", "prod-minio")
        there["metadata"]["generation"] = there["status"]["observedGeneration"] + 1
        await at_once(world)
        world.begins_deletion("prod")
        _, reason, text = await world.look("prod")
        assert world.held("prod") and owners(world)
        assert reason == "Deleting" and CLAIM in text
        world.there("StatefulSet", "prod-minio")["status"]["observedGeneration"] += 1
        await world.look("prod")
        assert not world.held("prod") and owners(world) == []

    run(use, doomed(store=EMBEDDED))


def test_the_volume_of_a_namesake_is_left_as_it_is() -> None:
    async def use(world: World) -> None:
        await runs(world)
        made_by_an_older_operator(world)
        world.there("StatefulSet", "prod-minio")["metadata"]["ownerReferences"][0]["uid"] = "another's"
        world.there("Cluster", "prod")["spec"]["deletionPolicy"] = "Retain"
        world.begins_deletion("prod")
        await world.look("prod")
        assert policy(world) == "Delete" and owners(world) and not world.held("prod")

    run(use, doomed(store=EMBEDDED))


def test_a_claim_that_kubernetes_made_anew_while_minio_went_goes_too() -> None:
    async def use(world: World) -> None:
        await runs(world)
        made_by_an_older_operator(world)
        claim = copy.deepcopy(world.there("PersistentVolumeClaim", CLAIM))
        world.begins_deletion("prod")
        for _ in range(3):
            world.kube.drop("Pod", "shop", "prod-minio-0")
            await world.look("prod")
            world.pods_are_made()
            if not world.has("StatefulSet", "prod-minio") and claim is not None:
                world.kube.keep(claim)
                claim = None
        while world.held("prod"):
            await world.look("prod")
        assert claim is None and not world.has("PersistentVolumeClaim", CLAIM)

    run(use, doomed(store=EMBEDDED))


def made_in_order(world: World, name: str) -> None:
    """As an older operator made it: Kubernetes waits for a pod to be ready before it replaces it, for ever."""
    world.there("StatefulSet", name)["spec"]["podManagementPolicy"] = "OrderedReady"


@pytest.mark.parametrize("component", ["minio", "probe"])
def test_a_pod_that_cannot_start_is_replaced_once_what_was_wrong_is_corrected(component: str) -> None:
    name = f"prod-{component}"

    async def use(world: World) -> None:
        await runs(world)
        assert world.there("StatefulSet", name)["spec"]["podManagementPolicy"] == "Parallel"
        made_in_order(world, name)
        pod = world.there("Pod", f"{name}-0")
        pod["status"] = {"conditions": [{"type": "Ready", "status": "False"}]}
        await world.look("prod")
        assert world.has("Pod", f"{name}-0"), "it is of the newest template"
        world.there("StatefulSet", name)["status"]["updateRevision"] = "r2"
        world.there("Cluster", "prod")["spec"]["paused"] = True
        await world.look("prod")
        assert world.has("Pod", f"{name}-0"), "nothing is changed while it is paused"
        del world.there("Cluster", "prod")["spec"]["paused"]
        await world.look("prod")
        assert not world.has("Pod", f"{name}-0")
        assert world.there("StatefulSet", name)["spec"]["podManagementPolicy"] == "OrderedReady", (
            "Kubernetes lets nobody change it"
        )

    run(use, cluster(store=EMBEDDED, probe={"enabled": True}))


def test_a_pod_that_works_is_left_to_kubernetes() -> None:
    async def use(world: World) -> None:
        await runs(world)
        made_in_order(world, "prod-minio")
        world.there("StatefulSet", "prod-minio")["status"]["updateRevision"] = "r2"
        await world.look("prod")
        assert world.has("Pod", "prod-minio-0")

    run(use, cluster(store=EMBEDDED))


def test_a_namespace_that_goes_waits_for_no_volume_though_its_rights_have_gone_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(world: World) -> None:
        await runs(world)
        world.there("Cluster", "prod")["spec"]["deletionPolicy"] = "Retain"
        world.begins_deletion("prod")
        world.kube.keep(
            {
                "kind": "Namespace",
                "metadata": {"name": "shop", "namespace": "", "deletionTimestamp": "2001-09-09T01:46:40Z"},
            }
        )
        get = world.kube.get

        async def by_rights(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            if kind not in ("Cluster", "Namespace"):
                raise KubeProblem(status=403, reason="Forbidden", message=f"cannot get {kind}")
            return await get(kind, namespace, name)

        monkeypatch.setattr(world.kube, "get", by_rights)
        assert world.held("prod")
        await world.look("prod")
        assert not world.held("prod")

    run(use, cluster(store=EMBEDDED, deletionPolicy="Delete"))
