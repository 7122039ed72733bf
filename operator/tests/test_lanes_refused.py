"""A lane's pods run by their Cluster's spec: where that is refused or paused, nothing of the lane is made or changed by
it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kube_of_a_test import CLUSTER
from real_bmq import bmq_with_token
from reconciled_world import World, Worlds, message, said
from test_lanes_reconcile import BASE
from tests.started_bmq import StartedBmq

SECRET = {"kind": "Secret", "metadata": {"name": "db-admin", "namespace": "shop"}, "data": {"password": "aHVudGVyMg=="}}
KEYS = {"secretName": "db-admin", "accessKeyIdKey": "password", "secretAccessKeyKey": "password"}
WORLDS = Worlds("Lane", BASE, SECRET)


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def cluster_is(world: World, **spec: Any) -> None:
    world.kube.keep({**CLUSTER, "spec": {**CLUSTER["spec"], **spec}})
    world.context.known.clusters.forget(("shop", "bmq"))


def sets(world: World) -> dict[str, Any]:
    return {
        name: copy.deepcopy(one)
        for (kind, _, name), one in world.kube.manifests.items()
        if kind == "StatefulSet" and "-lane-" in name
    }


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, str], str]] = {
    "an image": ({"image": {"repository": "evil.example/steal"}}, ("False", "ClusterRefused"), "evil.example/steal"),
    "keys to images": ({"image": {"pullSecrets": ["db-admin"]}}, ("False", "ClusterRefused"), "db-admin"),
    "keys to the store": ({"store": {"url": "s3://b", "credentials": KEYS}}, ("False", "ClusterRefused"), "db-admin"),
    "a pause": ({"paused": True, "image": {"tag": "2"}}, ("Unknown", "ClusterPaused"), "is paused"),
}


@pytest.mark.parametrize(("spec", "tells", "word"), REFUSED.values(), ids=REFUSED)
def test_a_lane_stays_as_it_was_while_its_cluster_may_not_be_as_it_says(
    bmq: StartedBmq, spec: dict[str, Any], tells: tuple[str, str], word: str
) -> None:
    async def use(world: World) -> None:
        cluster_is(world)
        world.write("before")
        await world.look("before")
        made = sets(world)
        assert list(made) == ["bmq-lane-before-proxy"]
        cluster_is(world, **spec)
        for name in ("before", "after"):
            world.write(name)
            outcome = await world.look(name)
            assert said(outcome) == tells
            assert word in message(outcome) and "shop/bmq" in message(outcome)
            assert outcome.again_after_s is not None
        assert sets(world) == made
        cluster_is(world)
        await world.look("after")
        assert list(sets(world)) == ["bmq-lane-before-proxy", "bmq-lane-after-proxy"]
        for name in ("before", "after"):
            await world.look(name, deletionTimestamp="2001-09-09T01:46:40Z")

    WORLDS.run(bmq, use)


def test_a_lane_takes_nothing_from_a_stateful_set_that_is_not_its_clusters(bmq: StartedBmq) -> None:
    theirs = copy.deepcopy(BASE)
    theirs["metadata"]["ownerReferences"] = [{"controller": True, "uid": "other", "kind": "Thing", "name": "t"}]  # type: ignore[index]

    async def use(world: World) -> None:
        world.write("dev")
        assert said(await world.look("dev")) == ("False", "NameTaken")
        assert sets(world) == {}
        await world.look("dev", deletionTimestamp="2001-09-09T01:46:40Z")

    Worlds("Lane", theirs).run(bmq, use)
