"""What somebody makes between the operator's look and its write stays as it is, and is told of by the next look."""

import copy
from typing import Any

import pytest
from clusters_world import World, cluster, run

from bmq_operator.kube import KubeProblem

THEIRS: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "prod-proxy", "namespace": "shop"},
    "spec": {"theirs": "1"},
}


def made_meanwhile(world: World) -> dict[str, Any]:
    theirs = copy.deepcopy(THEIRS)
    world.kube.meanwhile["StatefulSet", "prod-proxy"] = theirs
    return theirs


async def meets(world: World) -> None:
    """A look that comes upon it, and is taken again later; and the next one."""
    with pytest.raises(KubeProblem) as problem:
        await world.look("prod")
    assert problem.value.status == 409
    status, reason, text = await world.look("prod")
    assert (status, reason) == ("False", "NameTaken") and "StatefulSet prod-proxy was there before" in text
    there = world.there("StatefulSet", "prod-proxy")
    assert there["spec"] == {"theirs": "1"} and "ownerReferences" not in there["metadata"]


def test_what_is_made_where_nothing_was_is_not_taken_over() -> None:
    async def use(world: World) -> None:
        made_meanwhile(world)
        await meets(world)

    run(use, cluster())


def test_what_is_made_in_place_of_the_operators_own_is_not_taken_over() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.there("Cluster", "prod")["spec"]["settings"] = {"lingerMs": 77}
        theirs = made_meanwhile(world)
        theirs["metadata"]["uid"] = "theirs"
        await meets(world)

    run(use, cluster())


def test_a_status_is_written_to_the_very_resource_that_was_looked_at() -> None:
    async def use(world: World) -> None:
        apply = world.kube.apply

        async def replaced(manifest: dict[str, Any]) -> dict[str, Any]:
            if manifest["metadata"]["name"] == "prod-proxy":
                world.kube.keep(cluster(meta={"uid": "another"}))
            return await apply(manifest)

        world.kube.apply = replaced  # type: ignore[method-assign]
        with pytest.raises(KubeProblem) as problem:
            await world.look("prod")
        assert problem.value.status == 409
        assert "status" not in world.there("Cluster", "prod"), "it has nodes of its predecessor's store"

    run(use, cluster())
