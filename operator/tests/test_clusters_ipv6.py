"""Where Kubernetes gives addresses of IPv6 alone, the very first nodes tell theirs as such: nothing is rolled for
it.
"""

import copy
from dataclasses import replace
from typing import Any

import pytest
from clusters_world import World, cluster, run
from kinds_of_a_test import INPUTS

from bmq_operator.clusters.desired import desired
from bmq_operator.lanes.desired import desired as objects_of_lane
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane


def told(world: World, name: str) -> str:
    return env_of(world.there("StatefulSet", name))["BMQ_ADVERTISED_INTERNAL"]


def env_of(stateful_set: dict[str, Any]) -> dict[str, str]:
    [container] = stateful_set["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def gives(world: World, family: str) -> None:
    """Services get addresses of this family, as an API server gives them."""
    for name in ("create", "apply"):
        write = getattr(world.kube, name)

        async def given(manifest: dict[str, Any], *, write: Any = write, **more: Any) -> dict[str, Any]:
            await write(manifest, **more)
            meta = manifest["metadata"]
            if "name" not in meta:
                return manifest
            there = world.kube.manifests[manifest["kind"], meta["namespace"], meta["name"]]
            if manifest["kind"] == "Service":
                there["spec"]["ipFamilies"] = [family]
            return copy.deepcopy(there)

        setattr(world.kube, name, given)


def test_the_first_template_of_nodes_has_brackets_around_an_address_of_ipv6() -> None:
    async def use(world: World) -> None:
        gives(world, "IPv6")
        await world.look("prod")
        first = copy.deepcopy(world.there("StatefulSet", "prod-broker")["spec"])
        assert [told(world, f"prod-{role}") for role in ("controller", "broker", "proxy")] == ["[$(POD_IP)]:9190"] * 3
        await world.look("prod")
        assert world.there("StatefulSet", "prod-broker")["spec"] == first

    run(use, cluster())


def test_and_none_around_one_of_ipv4() -> None:
    async def use(world: World) -> None:
        gives(world, "IPv4")
        await world.look("prod")
        assert told(world, "prod-broker") == "$(POD_IP):9190"

    run(use, cluster())


def test_a_service_of_another_is_no_first_one_and_nothing_is_made_in_a_pause() -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "prod-nodes", "namespace": "shop"},
        "spec": {"ipFamilies": ["IPv6"]},
    }

    async def taken(world: World) -> None:
        assert (await world.look("prod"))[1] == "NameTaken"
        assert world.there("Service", "prod-nodes")["spec"] == theirs["spec"] and not world.has(
            "StatefulSet", "prod-broker"
        )

    run(taken, cluster(), theirs)

    async def paused(world: World) -> None:
        await world.look("prod")
        assert not world.has("Service", "prod-nodes")

    run(paused, cluster(paused=True))


@pytest.mark.parametrize("ipv6", [True, False])
def test_nodes_of_a_lane_tell_addresses_as_those_of_the_base_do(ipv6: bool) -> None:
    of = Cluster.model_validate(
        {"metadata": {"name": "bmq", "namespace": "shop", "uid": "u-1"}, "spec": {"store": {"url": "s3://b"}}}
    )
    base = next(one for one in desired(of, replace(INPUTS, ipv6=ipv6)) if one["metadata"]["name"] == "bmq-proxy")
    lane = Lane.model_validate(
        {"metadata": {"name": "dev", "namespace": "shop", "uid": "u-2"}, "spec": {"brokers": {"replicas": 1}}}
    )
    objects = objects_of_lane(lane, of, base, node_ids_from=20_000, with_brokers=True)
    made = {one["metadata"]["name"]: one for one in objects if one["kind"] == "StatefulSet"}
    for name in ("bmq-lane-dev-proxy", "bmq-lane-dev-broker"):
        assert env_of(made[name])["BMQ_ADVERTISED_INTERNAL"] == ("[$(POD_IP)]:9190" if ipv6 else "$(POD_IP):9190")
