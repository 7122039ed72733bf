"""The objects of a Cluster: what each spec makes, and what holds for all of them.

After a change that is meant, run it with BMQ_WRITE_GOLDEN=1, which writes the expected manifests anew, and review the
difference.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from bmq_operator.clusters.desired import desired
from bmq_operator.clusters.gathering import _proxies
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import Keys
from bmq_operator.clusters.names import why_unusable
from bmq_operator.clusters.reconcile import _wanted
from bmq_resources.cluster import Cluster

GOLDEN = Path(__file__).parent / "golden"
INPUTS = Inputs(
    default_image="registry:5000/bmq:1.2.3",
    cluster_secret="c" * 32,
    admin_token="a" * 32,
    keys_name="demo-keys-1",
    keys={"demo-keys-1": Keys(("c" * 32,), ("a" * 32,))},
    minio_user="bmq",
    minio_password="m" * 32,
    operator_namespace="bmq-system",
)
SPECS: dict[str, dict[str, Any]] = {
    "trial": {},
    "production": {
        "image": {"repository": "example.com/bmq", "tag": "9.9.9", "pullSecrets": ["pull"]},
        "clusterId": "prod",
        "store": {
            "url": "s3://bucket/prefix?region=eu-west-1",
            "credentials": {"secretName": "keys", "accessKeyIdKey": "id"},
        },
        "brokers": {
            "replicas": 5,
            "placement": {
                "nodeSelector": {"pool": "bmq"},
                "tolerations": [{"key": "bmq", "operator": "Exists", "effect": "NoSchedule"}],
                "priorityClassName": "high",
                "labels": {"team": "queue", "bmq.io/cluster": "forged"},
                "annotations": {"a": "b"},
                "env": [{"name": "TZ", "value": "UTC"}, {"name": "BMQ_ROLES", "value": "proxy"}],
            },
        },
        "proxies": {"autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 3}},
        "listeners": [
            {"name": "external", "type": "NodePort", "nodePort": 30100},
            {
                "name": "lb",
                "type": "LoadBalancer",
                "port": 9095,
                "sourceRanges": ["10.0.0.0/8"],
                "annotations": {"cloud/kind": "internal"},
            },
        ],
        "config": {"num.partitions": "3"},
        "settings": {"lingerMs": 100, "env": {"BMQ_FLUSH_BYTES": "8MiB", "BMQ_STOP_TIMEOUT_MS": "60000"}},
        "network": {"adminFromNamespaces": ["monitoring"]},
        "probe": {"enabled": True, "intervalMs": 500},
    },
}


def cluster(spec: dict[str, Any], name: str = "demo") -> Cluster:
    return Cluster.model_validate(
        {
            "metadata": {"name": name, "namespace": "prod", "uid": "u-1"},
            "spec": {"store": {"minio": {"embedded": True}}} | spec,
        }
    )


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    sets = of_kind(manifests, "StatefulSet")
    assert sets, "there is nothing to look at"
    for name, one in sets.items():
        yield name, one["spec"]["template"]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


@pytest.fixture(params=SPECS)
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return desired(cluster(SPECS[request.param]), INPUTS)


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_makes_the_expected_objects(name: str) -> None:
    made = yaml.safe_dump_all(desired(cluster(SPECS[name]), INPUTS), sort_keys=False, width=140)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("BMQ_WRITE_GOLDEN"):
        file.write_text(made)
    assert made == file.read_text()


def test_every_pod_is_restricted(manifests: list[dict[str, Any]]) -> None:
    for name, template in pods(manifests):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
        assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} <= {"emptyDir", "configMap"}, name


def test_every_object_is_labelled_and_owned(manifests: list[dict[str, Any]]) -> None:
    for one in manifests:
        meta = one["metadata"]
        assert meta["namespace"] == "prod"
        assert meta["labels"]["bmq.io/cluster"] == meta["labels"]["app.kubernetes.io/instance"] == "demo", meta["name"]
        assert [owner["uid"] for owner in meta["ownerReferences"]] == ["u-1"]
        assert len(meta["name"]) <= 63


def test_nodes_have_no_volumes_that_last(manifests: list[dict[str, Any]]) -> None:
    for name, one in of_kind(manifests, "StatefulSet").items():
        assert ("volumeClaimTemplates" in one["spec"]) == (name == "demo-minio")


def test_selectors_match_the_pods_of_their_role_and_no_others(manifests: list[dict[str, Any]]) -> None:
    labels = {name: template["metadata"]["labels"] for name, template in pods(manifests)}
    for name, one in of_kind(manifests, "StatefulSet").items():
        assert [other for other in labels if selects(one["spec"]["selector"]["matchLabels"], labels[other])] == [name]
    for name, one in of_kind(manifests, "PodDisruptionBudget").items():
        assert [other for other in labels if selects(one["spec"]["selector"]["matchLabels"], labels[other])] == [name]
    services = of_kind(manifests, "Service")
    assert [other for other in labels if selects(services["demo-bootstrap"]["spec"]["selector"], labels[other])] == [
        "demo-proxy"
    ]
    assert [other for other in labels if selects(services["demo-admin"]["spec"]["selector"], labels[other])] == [
        "demo-controller"
    ]


def test_what_selects_the_base_selects_no_pod_of_a_lane(manifests: list[dict[str, Any]]) -> None:
    lane = dict(next(template for name, template in pods(manifests) if name == "demo-proxy")["metadata"]["labels"]) | {
        "bmq.io/lane": "dev"
    }
    assert not selects(of_kind(manifests, "Service")["demo-bootstrap"]["spec"]["selector"], lane)
    assert not selects(of_kind(manifests, "StatefulSet")["demo-proxy"]["spec"]["selector"]["matchLabels"], lane)


def test_a_pod_has_longer_to_stop_than_the_node_takes(manifests: list[dict[str, Any]]) -> None:
    for name, template in pods(manifests):
        env = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
        assert template["spec"]["terminationGracePeriodSeconds"] * 1000 > int(
            env.get("BMQ_STOP_TIMEOUT_MS") or 15_000
        ), name


def test_nobody_but_the_operator_says_the_role_and_the_labels() -> None:
    made = desired(cluster(SPECS["production"]), INPUTS)
    template = dict(pods(made))["demo-broker"]
    env = [(one["name"], one.get("value")) for one in template["spec"]["containers"][0]["env"]]
    assert [value for name, value in env if name == "BMQ_ROLES"] == ["broker"]
    assert len({name for name, _ in env}) == len(env)
    assert template["metadata"]["labels"]["bmq.io/cluster"] == "demo"
    assert template["metadata"]["labels"]["team"] == "queue"


def test_with_an_autoscaler_the_number_of_proxies_is_left_to_it() -> None:
    assert "replicas" not in of_kind(desired(cluster(SPECS["production"]), INPUTS), "StatefulSet")["demo-proxy"]["spec"]


def test_a_change_of_settings_changes_the_pods_of_all_roles_and_a_change_of_replicas_none() -> None:
    def templates(spec: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in pods(desired(cluster(spec), INPUTS)) if name != "demo-minio"}

    before = templates({})
    assert templates({"brokers": {"replicas": 7}, "controllers": {"replicas": 3}, "proxies": {"replicas": 9}}) == before
    changed = templates({"settings": {"lingerMs": 50}})
    assert all(changed[name] != before[name] for name in before)


def test_proxies_that_somebody_scaled_to_none_come_back_as_no_autoscaler_brings_them() -> None:
    found = cluster({"proxies": {"autoscaling": {"enabled": True, "minReplicas": 3}}})
    meta = {
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Update",
                "subresource": "scale",
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }
        ]
    }
    assert _proxies(found, {"metadata": meta, "spec": {"replicas": 0}}) == 3
    assert _proxies(found, {"metadata": meta, "spec": {"replicas": 1}}) is None
    sets = {"proxy": {"metadata": meta, "spec": {"replicas": 0}}}
    assert _wanted(found, sets)["proxy"] == 1, "a Cluster without proxies is not Ready"


def test_a_listener_of_proxies_restarts_proxies_alone() -> None:
    def templates(spec: dict[str, Any]) -> dict[str, Any]:
        return dict(pods(desired(cluster(spec), INPUTS)))

    before, after = templates({}), templates({"listeners": [{"name": "out"}]})
    assert [name for name in before if before[name] != after[name]] == ["demo-proxy"]


def test_a_deletion_that_is_confirmed_takes_the_volume_with_it() -> None:
    kept = of_kind(desired(cluster({}), INPUTS), "StatefulSet")["demo-minio"]["spec"][
        "persistentVolumeClaimRetentionPolicy"
    ]
    assert kept == {"whenDeleted": "Retain", "whenScaled": "Retain"}


@pytest.mark.parametrize(
    ("name", "spec", "word"),
    [
        ("a" * 42, {}, "41 at most"),
        ("a" * 41, {"listeners": [{"name": "external-listen"}]}, "37 at most"),
        ("1st", {}, "beginning with a letter"),
        ("a.b", {}, "beginning with a letter"),
        ("default", {}, "create the Cluster with another name"),
        ("demo", {"listeners": [{"name": "lane"}]}, "clash"),
    ],
)
def test_a_name_that_makes_names_which_kubernetes_refuses_is_told_with_a_remedy(
    name: str, spec: dict[str, Any], word: str
) -> None:
    assert word in why_unusable(cluster(spec, name))


def in_namespace(namespace: str, name: str, **spec: Any) -> Cluster:
    found = cluster(spec, name)
    return found.model_copy(update={"metadata": found.metadata.model_copy(update={"namespace": namespace})})


def test_a_cluster_whose_id_nodes_would_refuse_is_told_before_anything_is_made_as_the_id_cannot_be_changed() -> None:
    assert why_unusable(in_namespace("n" * 32, "c" * 31)) == ""
    said = why_unusable(in_namespace("n" * 32, "c" * 32))
    assert "64 characters at most" in said and "create the Cluster with a clusterId" in said
    assert why_unusable(in_namespace("n" * 63, "c" * 41, clusterId="prod")) == ""


def test_the_longest_name_that_is_allowed_makes_names_of_63_characters_at_most() -> None:
    longest = cluster({"listeners": [{"name": "external-listen"}]}, "a" * 37)
    assert why_unusable(longest) == ""
    assert max(len(one["metadata"]["name"]) for one in desired(longest, INPUTS)) == 63


STORE_KEYS = {
    "s3://bucket": {"AWS_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY"},
    "gs://bucket": {"GOOGLE_SERVICE_ACCOUNT_KEY": "GOOGLE_SERVICE_ACCOUNT_KEY"},
    "az://container?account=mine": {"AZURE_STORAGE_ACCOUNT_KEY": "AZURE_STORAGE_ACCOUNT_KEY"},
}


@pytest.mark.parametrize(("url", "expected"), STORE_KEYS.items())
def test_the_keys_of_each_kind_of_store_reach_its_nodes_from_the_secret(url: str, expected: dict[str, str]) -> None:
    made = desired(cluster({"store": {"url": url, "credentials": {"secretName": "keys"}}}), INPUTS)
    for _, pod in pods(made):
        sources = {
            one["name"]: one["valueFrom"].get("secretKeyRef", {})
            for one in pod["spec"]["containers"][0]["env"]
            if "valueFrom" in one
        }
        assert {name: source["key"] for name, source in sources.items() if source.get("name") == "keys"} == expected


def test_without_a_secret_the_pods_identity_is_all_that_the_store_gets() -> None:
    for _, pod in pods(desired(cluster({"store": {"url": "gs://bucket"}}), INPUTS)):
        assert not [
            one for one in pod["spec"]["containers"][0]["env"] if one["name"].startswith(("AWS_", "GOOGLE_", "AZURE_"))
        ]


def test_what_clients_inside_are_told_of_a_proxy_is_a_service_of_that_proxy_alone(
    manifests: list[dict[str, Any]],
) -> None:
    proxies = of_kind(manifests, "StatefulSet")["demo-proxy"]
    env = {one["name"]: one.get("value") for one in proxies["spec"]["template"]["spec"]["containers"][0]["env"]}
    services = of_kind(manifests, "Service")
    scaled = of_kind(manifests, "HorizontalPodAutoscaler").get("demo-proxy", {"spec": {"maxReplicas": 0}})
    most = proxies["spec"].get("replicas") or scaled["spec"]["maxReplicas"]
    assert most > 1
    for ordinal in range(most):
        host, port = str(env["BMQ_ADVERTISED_LISTEN"]).replace("{ordinal}", str(ordinal)).split(":")
        own = services[host.split(".")[0]]
        pod = proxies["spec"]["template"]["metadata"]["labels"] | {
            "statefulset.kubernetes.io/pod-name": f"demo-proxy-{ordinal}"
        }
        assert selects(own["spec"]["selector"], pod)
        assert not selects(
            own["spec"]["selector"], pod | {"statefulset.kubernetes.io/pod-name": f"demo-proxy-{ordinal + 1}"}
        )
        assert "clusterIP" not in own["spec"], "the IP has to outlive pods"
        assert [one["port"] for one in own["spec"]["ports"]] == [int(port)]


@pytest.mark.parametrize(
    ("told", "grace_s"),
    [
        *((text, 140) for text in ("120000", "120_000", "+120000", " 120000 ", "120000.0")),
        ("9000000", 620),
        ("$(FROM_ELSEWHERE)", 620),
        *((text, 35) for text in ("", "-5", "1e5", "two minutes", "9" * 5_000)),
    ],
)
@pytest.mark.parametrize("where", ["settings", "placement"])
def test_a_pod_is_given_the_time_that_its_node_takes_to_stop_however_that_is_written(
    told: str, grace_s: int, where: str
) -> None:
    written: dict[str, Any] = {"settings": {"env": {"BMQ_STOP_TIMEOUT_MS": told}}}
    if where == "placement":
        written = {"brokers": {"placement": {"env": [{"name": "BMQ_STOP_TIMEOUT_MS", "value": told}]}}}
    meta = {"name": "demo", "namespace": "shop", "uid": "uid-demo"}
    cluster = Cluster.model_validate({"metadata": meta, "spec": {"store": {"url": "s3://b"}, **written}})
    sets = {one["metadata"]["name"]: one for one in desired(cluster, INPUTS) if one["kind"] == "StatefulSet"}
    assert sets["demo-broker"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace_s


def test_what_settings_say_goes_before_what_placement_says_of_the_time_to_stop() -> None:
    variable = "BMQ_STOP_TIMEOUT_MS"
    spec = {
        "settings": {"env": {variable: "60000"}},
        "brokers": {"placement": {"env": [{"name": variable, "value": "120000"}]}},
    }
    cluster = Cluster.model_validate(
        {"metadata": {"name": "demo", "namespace": "shop", "uid": "u"}, "spec": {"store": {"url": "s3://b"}, **spec}}
    )
    [broker] = [
        one
        for one in desired(cluster, INPUTS)
        if (one["kind"], one["metadata"]["name"]) == ("StatefulSet", "demo-broker")
    ]
    pod = broker["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 80
    assert {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}[variable] == "60000"
