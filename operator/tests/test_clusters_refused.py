"""A Cluster that cannot be as its spec says: what its looks take, as there may be many such Clusters."""

from typing import Any

import pytest
from clusters_world import World, cluster, run

SOMEBODY_ELSES = {"kind": "Service", "metadata": {"name": "prod-nodes", "namespace": "shop"}}


async def lists_of_services(world: World) -> int:
    """How often one look reads them, as it reads all that there is of a Cluster."""
    before = world.kube.listed["Service"]
    await world.look("prod")
    return world.kube.listed["Service"] - before


@pytest.mark.parametrize(
    ("spec", "others", "reason"),
    [
        ({"image": {"repository": "evil.example/x"}}, [], "NotAllowed"),
        ({}, [SOMEBODY_ELSES], "NameTaken"),
    ],
    ids=["not allowed", "its first object is somebody else's"],
)
def test_one_for_which_nothing_was_written_is_read_once_in_a_look(
    spec: dict[str, Any], others: list[dict[str, Any]], reason: str
) -> None:
    async def use(world: World) -> None:
        for _ in range(2):
            assert await lists_of_services(world) == 1
        assert world.ready("prod")[:2] == ("False", reason)

    run(use, cluster(**spec), *others)


def test_one_for_which_something_was_written_first_is_read_anew() -> None:
    async def use(world: World) -> None:
        assert await lists_of_services(world) == 2
        assert world.ready("prod")[:2] == ("False", "NameTaken")
        assert await lists_of_services(world) == 1

    taken = {"kind": "PodDisruptionBudget", "metadata": {"name": "prod-proxy", "namespace": "shop"}}
    run(use, cluster(), taken)
