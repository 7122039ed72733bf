"""A Cluster's token is presented to the Cluster's own Service alone, and is what its own controllers take."""

from typing import Any

import pytest
from clusters_world import World, cluster, run

from bmq_admin.errors import AdminUnreachable
from bmq_operator.clusters.access import admin_of
from bmq_resources.cluster import Cluster

ANOTHERS = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "another", "controller": True}]


@pytest.mark.parametrize(("kind", "name"), [("Service", "prod-admin"), ("StatefulSet", "prod-controller")])
@pytest.mark.parametrize("owners", [[], ANOTHERS], ids=["nobody's", "another's"])
def test_nothing_is_asked_by_a_name_that_somebody_else_has(kind: str, name: str, owners: list[dict[str, Any]]) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        of = Cluster.model_validate(world.there("Cluster", "prod"))
        assert await admin_of(world.context, of) is not None
        world.there(kind, name)["metadata"]["ownerReferences"] = owners
        with pytest.raises(AdminUnreachable, match=f"{kind} {name} is not that of Cluster shop/prod: delete it"):
            await admin_of(world.context, of)

    run(use, cluster())
