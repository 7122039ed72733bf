"""What nodes start with never changes under them: each configuration is a ConfigMap of its own, and stays for as long
as a node may start with it.
"""

import copy
from random import Random
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from clusters_world import World, cluster, run
from test_clusters_rotation import OF_CLUSTER, lane, runs, write_secret

from bmq_operator.clusters.configuration import FILE, config_hash, config_name, server_yaml, store_of_nodes
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.pods import config_map_of
from bmq_operator.kube import KubeProblem
from bmq_resources.cluster import Cluster

BROKEN = {"num.partitions": "many"}


def configs(world: World) -> set[str]:
    return {name for kind, _, name in world.kube.manifests if kind == "ConfigMap"}


def says(world: World, name: str) -> Any:
    return yaml.safe_load(world.there("ConfigMap", name)["data"]["server.yaml"]).get("cluster_config")


def of_pod(world: World, name: str) -> str:
    return config_map_of(world.there("Pod", name)["spec"])


def of_set(world: World, name: str) -> str:
    return config_map_of(world.there("StatefulSet", name)["spec"]["template"]["spec"])


def write(world: World, config: dict[str, str]) -> None:
    world.there("Cluster", "prod")["spec"]["config"] = config


async def begins(world: World) -> str:
    """The first configuration's name."""
    await world.look("prod")
    world.pods_are_made()
    await world.look("prod")
    [first] = configs(world)
    return first


def test_a_setting_that_breaks_nodes_is_in_no_file_that_the_running_ones_read() -> None:
    async def use(world: World) -> None:
        first = await begins(world)
        text = copy.deepcopy(world.there("ConfigMap", first))
        write(world, BROKEN)
        await world.look("prod")
        assert world.there("ConfigMap", first)["data"] == text["data"]
        assert {of_pod(world, name) for kind, _, name in world.kube.manifests if kind == "Pod"} == {first}
        newest = of_set(world, "prod-broker")
        assert newest != first
        assert says(world, newest) == BROKEN
        assert all(world.there("ConfigMap", name)["immutable"] for name in configs(world))
        write(world, {})
        await world.look("prod")
        assert of_set(world, "prod-broker") == first, "taken back, and no node starts anew for it"

    run(use, cluster())


def test_a_configuration_goes_once_neither_a_pod_nor_a_revision_names_it() -> None:
    async def use(world: World) -> None:
        first = await begins(world)
        template = copy.deepcopy(world.there("StatefulSet", "prod-broker")["spec"]["template"])
        meta = {"name": "prod-broker-1", "namespace": "shop", "labels": template["metadata"]["labels"]}
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": meta,
            "data": {"spec": {"template": template}},
        }
        world.kube.keep(revision)
        write(world, {"num.partitions": "3"})
        await world.look("prod")
        assert configs(world) == {first, of_set(world, "prod-broker")}
        for name in [name for kind, _, name in world.kube.manifests if kind == "Pod"]:
            world.kube.drop("Pod", "shop", name)
        world.pods_are_made()
        await world.look("prod")
        assert first in configs(world), "Kubernetes may make a pod of the revision"
        world.kube.drop("ControllerRevision", "shop", "prod-broker-1")
        await world.look("prod")
        assert configs(world) == {of_set(world, "prod-broker")}

    run(use, cluster())


def test_an_operator_whose_chart_is_older_and_lets_it_see_no_revisions_keeps_all_configurations() -> None:
    async def use(world: World) -> None:
        first = await begins(world)
        listed = world.kube.list

        async def refuses(kind: str, *of: Any, **more: Any) -> Any:
            if kind == "ControllerRevision":
                raise KubeProblem(status=403, reason="Forbidden", message="cannot list resource controllerrevisions")
            return await listed(kind, *of, **more)

        world.kube.list = refuses  # type: ignore[method-assign]
        write(world, {"num.partitions": "3"})
        await world.look("prod")
        newest = of_set(world, "prod-broker")
        for name in [name for kind, _, name in world.kube.manifests if kind == "Pod"]:
            world.kube.drop("Pod", "shop", name)
        world.pods_are_made()
        await world.look("prod")
        assert configs(world) == {first, newest}
        assert of_set(world, "prod-broker") == newest

    run(use, cluster())


def test_what_an_operator_before_made_is_used_as_long_as_it_says_what_the_spec_says() -> None:
    async def use(world: World) -> None:
        first = await begins(world)
        _as_an_operator_before(world, first)
        before = copy.deepcopy(world.there("StatefulSet", "prod-broker")["spec"])
        await world.look("prod")
        assert world.there("StatefulSet", "prod-broker")["spec"] == before, "no node starts anew for another name"
        assert configs(world) == {"prod-config"}
        write(world, BROKEN)
        await world.look("prod")
        assert says(world, "prod-config") is None
        assert "immutable" not in world.there("ConfigMap", "prod-config"), (
            "that operator could still change it, should it come back"
        )
        assert says(world, of_set(world, "prod-broker")) == BROKEN

    run(use, cluster())


def _as_an_operator_before(world: World, first: str) -> None:
    made = copy.deepcopy(world.there("ConfigMap", first))
    del made["immutable"]
    world.kube.drop("ConfigMap", "shop", first)
    world.kube.keep(made | {"metadata": made["metadata"] | {"name": "prod-config"}})
    for kind, _, name in list(world.kube.manifests):
        if kind in ("StatefulSet", "Pod"):
            there = world.there(kind, name)
            spec = there["spec"] if kind == "Pod" else there["spec"]["template"]["spec"]
            for volume in spec["volumes"]:
                if volume["name"] == "config":
                    volume["configMap"]["name"] = "prod-config"


def test_nodes_of_a_lane_that_is_refused_keep_their_configuration_until_they_get_new_keys() -> None:
    async def use(world: World) -> None:
        await runs(world, OF_CLUSTER)
        first = of_set(world, "prod-lane-dev-proxy")
        write(world, {"num.partitions": "3"})
        for _ in range(2):
            await world.look("prod")
            for name in [name for kind, _, name in world.kube.manifests if kind == "Pod" and "lane" not in name]:
                world.kube.drop("Pod", "shop", name)
            world.pods_are_made()
        assert first == of_set(world, "prod-lane-dev-proxy") != of_set(world, "prod-proxy")
        assert first in configs(world)
        write_secret(world)
        await world.look("prod")
        assert of_set(world, "prod-lane-dev-proxy") == of_set(world, "prod-proxy")
        assert first in configs(world), "its pods have yet to be replaced"

    run(use, cluster(), lane())


@pytest.mark.parametrize("path", ["?region=x", "/" + "a" * 2_000, "/" + "a b " * 500 + "c", ": #"])
def test_the_store_that_nodes_run_over_is_read_and_nothing_else_of_their_configuration(path: str) -> None:
    url = f"s3://b{path}"
    text = server_yaml(Cluster.model_validate(cluster(store={"url": url})))
    assert store_of_nodes({"data": {FILE: text}}) == url
    assert store_of_nodes({"data": {FILE: f"{text}\nrest: [[[ is not read"}}) == url
    for odd in ("", "x: 1", "store: [", "store: {}", "store: " + "[" * 100_000, "store: a\n" + " b\n" * 100_000):
        assert store_of_nodes({"data": {FILE: odd}}) == ""


ODD = ("a", " ", "'", '"', ":", "#", "-", "?", "{", "[", ",", "&", "*", "!", "|", ">", "%", "@", "\\", "0", "1e3", "~")
"""What YAML writes in quotes, or takes for something else."""
BEYOND = ("\n", "\t", "\r", "\x00", "\x7f", "\x85", "é", "\u2028", "\ufeff", "\U0001f600")
LONG = ("null", "true", "---", "...", "<<", "x" * 130, "long words " * 60, "2026-01-01", "0x1f", " #", ": ")


@pytest.mark.parametrize("letters", [(*ODD, *LONG), (*ODD, *LONG, *BEYOND)], ids=["ASCII", "all"])
def test_the_file_of_nodes_is_the_same_text_as_pyyaml_itself_writes(letters: tuple[str, ...]) -> None:
    """libyaml's differs: all nodes would start anew with an operator that has another one of the two."""
    rng = Random(1)

    def text() -> str:
        return "".join(rng.choice(letters) for _ in range(rng.choice([1, 2, 3, 5, 30])))

    for _ in range(300):
        spec = {"store": {"url": f"s3://b/{text()[:1_000]}"}, "config": {text(): text() for _ in range(3)}}
        written = server_yaml(Cluster.model_validate(cluster(**spec)))
        keys = yaml.safe_load(written)
        assert (keys["store"], keys["cluster_config"]) == (spec["store"]["url"], spec["config"])
        _, _, after_comment = written.partition("\n")
        assert after_comment == yaml.dump(keys, Dumper=yaml.SafeDumper, sort_keys=False, width=1_000)


@pytest.mark.parametrize(
    ("spec", "digest", "name"),
    [
        ({"store": {"url": "s3://bucket/prefix?region=eu-west-1"}}, "10d7901db68a6d0c", "prod-config-a132eb6603"),
        (
            {"config": {"num.partitions": "3", "compression.type": "zstd", "a": "'x: #"}},
            "a93867baa7035558",
            "prod-config-e37fdb9e74",
        ),
        ({"config": {"ä": "\x7f\n" * 600}}, "35fbf6a933b50001", "prod-config-99e485d705"),
    ],
)
def test_nodes_of_an_operator_before_start_anew_for_no_other_digest(
    spec: dict[str, Any], digest: str, name: str
) -> None:
    found = Cluster.model_validate(cluster(**spec))
    inputs = Inputs(default_image="bmq:1", cluster_secret="c", admin_token="a", credentials_digest="d")
    text = server_yaml(found)
    assert (config_hash(text, inputs), config_name(found, inputs, text)) == (digest, name)
