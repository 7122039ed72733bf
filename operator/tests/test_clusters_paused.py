"""What a Cluster that is paused says of itself: it changes nothing, and Ready tells whether there would be something to
change.
"""

from typing import Any

import pytest
from clusters_world import World, cluster, doomed, run

from bmq_operator.clusters.existing import read_existing
from bmq_operator.clusters.reconcile import _bring_about, reconcile
from bmq_resources.cluster import Cluster


async def held(world: World, **spec: Any) -> list[str]:
    """What would be changed."""
    resource = world.there("Cluster", "prod")
    resource["spec"] = {**resource["spec"], "paused": True, **spec}
    before = str(world.kube.manifests)
    read = Cluster.model_validate({key: resource[key] for key in ("metadata", "spec")})
    found = await _bring_about(world.context, read, await read_existing(world.kube, read), {})  # type: ignore[arg-type]
    assert str(world.kube.manifests) == before, "nothing is changed"
    assert found.obstacle is None
    return list(found.held)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, []),
        (
            {"settings": {"lingerMs": 77}},
            ["to make ConfigMap prod-config-af651bd214", "to change StatefulSet prod-broker"],
        ),
        (
            {"listeners": [{"name": "ext", "type": "NodePort", "port": 9094}]},
            ["to make ConfigMap prod-advertised", "to make Service prod-ext-0"],
        ),
        ({"proxies": {"replicas": 3}}, ["to make Service prod-internal-2", "to change StatefulSet prod-proxy"]),
    ],
)
def test_what_was_written_during_the_pause_is_named_and_left(spec: dict[str, Any], named: list[str]) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        found = await held(world, **spec)
        assert set(named) <= set(found) and bool(found) == bool(named)

    run(use, cluster())


def test_a_spec_that_is_refused_during_the_pause_is_told() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.there("Cluster", "prod")["spec"] |= {"paused": True, "image": {"repository": "evil.example/steal"}}
        assert (await world.look("prod"))[:2] == ("False", "NotAllowed")

    run(use, cluster())


def test_one_that_was_paused_from_its_first_day_takes_no_store() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        assert not [name for kind, _, name in world.kube.manifests if kind not in ("Cluster", "Namespace")]
        assert (await world.look("other"))[1] != "StoreShared"

    run(use, cluster(paused=True), cluster("other"))


@pytest.mark.parametrize("store", [{"url": "s3://b"}, {"minio": {"embedded": True}}], ids=["bucket", "volume"])
def test_a_confirmed_deletion_ends_no_node_and_takes_no_record_during_the_pause(store: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        for _ in range(3):
            await world.look("prod")
            world.pods_are_made()
        world.there("Cluster", "prod")["spec"]["paused"] = True
        world.begins_deletion("prod")
        for _ in range(3):
            status, reason, message = await world.look("prod")
            assert (status, reason, world.kube.deleted) == ("False", "Paused", [])
            assert "paused: false" in message
        assert world.held("prod") and world.has("StatefulSet", "prod-broker") and not world.has("Job", "prod-erase")
        world.there("Cluster", "prod")["spec"]["paused"] = False
        assert (await world.look("prod"))[1] == "Deleting"
        await world.look("prod")
        assert not world.has("StatefulSet", "prod-broker")

    run(use, doomed(store=store))


def test_a_pause_keeps_no_cluster_whose_records_stay() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.there("Cluster", "prod")["spec"] |= {"paused": True, "deletionPolicy": "Retain"}
        world.begins_deletion("prod")
        await world.look("prod")
        assert not world.held("prod")

    run(use, doomed())


def test_one_that_runs_nothing_is_looked_at_when_somebody_changes_it_and_not_all_the_time() -> None:
    async def use(world: World) -> None:
        async def again_s() -> float | None:
            return (
                await reconcile(world.context, Cluster.model_validate(world.there("Cluster", "prod")))
            ).again_after_s

        assert await again_s() is None
        world.there("Cluster", "prod")["spec"]["paused"] = False
        assert await again_s() is not None
        world.there("Cluster", "prod")["spec"]["paused"] = True
        assert await again_s() is not None, "its nodes may start, or end"

    run(use, cluster(paused=True))
