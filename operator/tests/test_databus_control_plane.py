"""Pods whose sidecars follow the channels of a Cluster: what they are given, by whom, and how it is renewed and taken
away.
"""

import asyncio
import base64
import copy
from typing import Any

import jsonpatch
import pytest
from databus_of_a_test import config_map, pod
from kube_of_a_test import KubeOfATest

from bmq.naming.bearer import watching_token
from bmq_operator.allowed import Allowed
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.policies import policies
from bmq_operator.databus.channel_sets import BadChannelSet, channel_set_following, channel_set_of
from bmq_operator.databus.credentials import credential_of
from bmq_operator.databus.crediting import Credentials
from bmq_operator.databus.injection import CLUSTER, asked_for, injected
from bmq_operator.databus.named import ChannelSets
from bmq_operator.databus_settings import DatabusSettings
from bmq_resources.cluster import Cluster

TOKEN = "admin-token-of-the-cluster"
NAME = credential_of("queues", "bmq")


def cluster(*namespaces: str, namespace: str = "queues") -> dict[str, Any]:
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "bmq", "namespace": namespace, "uid": f"uid-{namespace}"},
        "spec": {"store": {"minio": {"embedded": True}}, "topicsFrom": {"namespaces": [*namespaces]}},
    }


def auth(token: str = TOKEN, *, namespace: str = "queues") -> dict[str, Any]:
    data = {"admin-token": base64.b64encode(token.encode()).decode()}
    return {"kind": "Secret", "metadata": {"name": "bmq-auth", "namespace": namespace}, "data": data}


class Kube(KubeOfATest):
    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        made = copy.deepcopy(manifest)
        made["metadata"] |= {"uid": f"uid-{made['metadata']['name']}"}
        return await super().create(made)


def token_in(kube: KubeOfATest, namespace: str, name: str = NAME) -> str:
    return base64.b64decode(kube.manifests["Secret", namespace, name]["data"]["token"]).decode()


def follow(kube: KubeOfATest, text: str = "queues/bmq", *, dry_run: bool = False) -> str:
    """What its author is warned of."""
    sets = ChannelSets(kube, Allowed(), namespaces=())  # type: ignore[arg-type]
    found, doubt = asyncio.run(sets.follow("shop", text, field=CLUSTER, dry_run=dry_run))
    assert found.control_plane == found.cluster != None  # noqa: E711
    return doubt


def inject(given: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The pod as it becomes."""
    asked = asked_for(given)
    assert asked is not None
    channel_set = channel_set_following(asked[1], asked[0])
    found = injected(given, channel_set, namespace="shop", image="bmq:1", settings=DatabusSettings(**settings))
    return dict(jsonpatch.apply_patch(copy.deepcopy(given), [*found.patch]))


def test_a_pod_that_names_a_cluster_gets_a_sidecar_that_follows_it_with_a_token_that_it_alone_has() -> None:
    made = inject(pod({CLUSTER: "queues/bmq"}))
    [sidecar] = made["spec"]["initContainers"]
    arguments = " ".join(sidecar["args"])
    assert "--control-plane http://bmq-admin.queues.svc:9080" in arguments and "--channels" not in arguments
    assert f"--spool-bytes {4 << 30}" in arguments
    assert {"name": "BMQ_DATABUS_BOOTSTRAP_SERVERS", "value": "bmq-bootstrap.queues.svc:9092"} in sidecar["env"]
    [volume] = [one for one in made["spec"]["volumes"] if "secret" in one]
    assert volume["secret"]["secretName"] == NAME
    assert not [one for one in made["spec"]["containers"] if one.get("volumeMounts")], "no other container gets it"


def test_how_much_may_be_in_spools_is_what_the_volume_has_and_nobody_says_it_of_a_claim() -> None:
    own = inject(pod({CLUSTER: "bmq", "bmq.io/databus-spool": "8Gi"}))
    assert f"--spool-bytes {8 << 30}" in " ".join(own["spec"]["initContainers"][0]["args"])
    volumes = [{"name": "spool", "emptyDir": {"sizeLimit": "2Gi"}}, {"name": "kept", "persistentVolumeClaim": {}}]
    for name, said in (("spool", True), ("kept", False)):
        made = inject(pod({CLUSTER: "bmq", "bmq.io/databus-spool-volume": name}, volumes=volumes))
        assert (f"--spool-bytes {2 << 30}" in " ".join(made["spec"]["initContainers"][0]["args"])) == said


def test_a_pod_that_names_both_a_set_and_a_cluster_is_told_to_choose() -> None:
    both = pod({"bmq.io/databus": "shop-channels", CLUSTER: "bmq"})
    found = injected(both, channel_set_of(config_map()), namespace="shop", image="i", settings=DatabusSettings())
    assert "leave one out" in found.refused


def test_the_first_pod_of_a_namespace_has_a_secret_made_with_a_token_that_watches_channels_and_nothing_else() -> None:
    kube = Kube(cluster("shop"), auth())
    assert follow(kube, dry_run=True) == "" and ("Secret", "shop", NAME) not in kube.manifests
    assert follow(kube) == ""
    assert token_in(kube, "shop") == watching_token(TOKEN)
    follow(kube)
    assert [one for one in kube.manifests if one[:2] == ("Secret", "shop")] == [("Secret", "shop", NAME)]


@pytest.mark.parametrize("there", [[], [cluster()], [cluster("other")]], ids=["none", "takes none", "takes another's"])
def test_a_cluster_elsewhere_that_takes_nothing_of_the_pods_namespace_gives_no_token(there: list[Any]) -> None:
    kube = Kube(*there, auth())
    with pytest.raises(BadChannelSet, match="there is none that takes"):
        follow(kube)
    assert ("Secret", "shop", NAME) not in kube.manifests


def test_a_secret_of_that_name_that_is_somebody_elses_stays_and_is_told() -> None:
    kube = Kube(cluster("shop"), auth())
    kube.keep({"kind": "Secret", "metadata": {"name": NAME, "namespace": "shop", "uid": "u"}, "data": {}})
    with pytest.raises(BadChannelSet, match="is not the operator's"):
        follow(kube)
    assert kube.manifests["Secret", "shop", NAME]["data"] == {}


def test_pods_that_come_before_their_cluster_get_a_token_once_it_has_one() -> None:
    kube, name = Kube(), credential_of("shop", "bmq")
    assert "there is none yet" in follow(kube, "bmq")
    before = token_in(kube, "shop", name)
    keeper = Credentials(kube, ("",))  # type: ignore[arg-type]
    asyncio.run(keeper.look())
    assert token_in(kube, "shop", name) == before
    kube.keep(cluster(namespace="shop"))
    kube.keep(auth(namespace="shop"))
    asyncio.run(keeper.look())
    assert token_in(kube, "shop", name) == watching_token(TOKEN)
    [owner] = kube.manifests["Secret", "shop", name]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Cluster", "uid-shop"), "it goes with the Cluster"


def test_another_token_of_the_cluster_reaches_sidecars_and_one_that_is_taken_no_more_loses_it() -> None:
    kube = Kube(cluster("shop"), auth())
    follow(kube)
    keeper = Credentials(kube, ("",))  # type: ignore[arg-type]
    kube.keep(auth("another-token-of-the-cluster"))
    asyncio.run(keeper.look())
    assert token_in(kube, "shop") == watching_token("another-token-of-the-cluster")
    kube.keep(cluster("elsewhere"))
    asyncio.run(keeper.look())
    assert ("Secret", "shop", NAME) not in kube.manifests
    assert ("Secret", "queues", "bmq-auth") in kube.manifests


def test_a_network_policy_that_names_who_reaches_the_admin_address_lets_sidecars_of_taken_namespaces_in() -> None:
    spec = cluster("shop", "*")["spec"] | {"network": {"policies": True, "adminFromNamespaces": ["monitoring"]}}
    found = Cluster.model_validate(cluster() | {"spec": spec})
    inputs = Inputs(default_image="i", cluster_secret="", admin_token="", operator_namespace="bmq-system")
    [rule] = [
        one
        for one in policies(found, inputs)[0]["spec"]["ingress"]
        if [port["port"] for port in one["ports"]] == [9080]
    ]
    sidecars = {"podSelector": {"matchLabels": {"bmq.io/databus-injected": "true"}}}
    named = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
    assert rule["from"][-2:] == [{**named, **sidecars}, {"namespaceSelector": {}, **sidecars}]
    assert all("podSelector" not in one for one in rule["from"][:-2])


def test_metrics_are_at_the_pods_address_unless_they_are_not_wanted() -> None:
    [sidecar] = inject(pod({CLUSTER: "bmq"}))["spec"]["initContainers"]
    assert sidecar["ports"] == [{"name": "databus-metrics", "containerPort": 8601, "protocol": "TCP"}]
    at = sidecar["args"].index("--health-listen")
    assert sidecar["args"][at + 1] == "[$(BMQ_POD_IP)]:8601"
    assert {"name": "BMQ_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in sidecar["env"]
    [sidecar] = inject(pod({CLUSTER: "bmq"}), metrics=False)["spec"]["initContainers"]
    assert "ports" not in sidecar and "--health-listen" not in sidecar["args"]


@pytest.mark.parametrize("port", [8600, 8601])
def test_a_pod_whose_application_has_a_port_of_the_sidecars_is_told(port: int) -> None:
    taken = pod({CLUSTER: "bmq"})
    taken["spec"]["containers"][0]["ports"] = [{"containerPort": port}]
    found = injected(
        taken, channel_set_following("bmq", CLUSTER), namespace="shop", image="i", settings=DatabusSettings()
    )
    assert f"port {port}" in found.refused
    alone = DatabusSettings(metrics=False)
    found = injected(taken, channel_set_following("bmq", CLUSTER), namespace="shop", image="i", settings=alone)
    assert bool(found.refused) == (port == 8600)
