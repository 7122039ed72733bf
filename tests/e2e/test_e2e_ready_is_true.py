"""Ready tells the truth: what keeps a Cluster from being as it was asked for is named, with what helps, and mended by
that.
"""

import base64
from typing import Any

import pytest
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, SMALL, Release


@pytest.fixture(scope="module")
def store(release: Release) -> Release:
    """A release with a Cluster whose MinIO is the store of all others."""
    release.kubectl.apply(release.example("cluster.yaml"))
    release.kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=180)
    return release


def over(
    store: Release, name: str, *, bucket: str = "", secret: str = f"{CLUSTER}-minio", host: str = "", **spec: Any
) -> Manifest:
    """A small Cluster over a bucket of that MinIO."""
    url = (
        f"s3://{bucket or name}?path_style=true&endpoint=http://{host or f'{CLUSTER}-minio.{store.namespace}.svc'}:9000"
    )
    credentials = {"secretName": secret, "accessKeyIdKey": "user", "secretAccessKeyKey": "password"}
    roles = {role: {"replicas": 1, "resources": SMALL} for role in ("controllers", "brokers", "proxies")}
    made: dict[str, Any] = {"store": {"url": url, "credentials": credentials}, **roles, **spec}
    return {"apiVersion": "bmq.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": made}


def secret(name: str, **values: str) -> Manifest:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {"bmq.io/use": "allowed"}},
        "data": data,
    }


def why_not(kubectl: Kubectl, name: str, reason: str) -> str:
    """The message once Ready is False for that reason."""
    return str(kubectl.until_condition(f"clusters.bmq.io/{name}", status="False", reason=reason)["message"])


def test_a_secret_that_is_missing_or_wrong_is_named_until_it_is_right(store: Release) -> None:
    kubectl = store.kubectl
    keys = {
        key: base64.b64decode(value).decode()
        for key, value in kubectl.json("get", "secret", f"{CLUSTER}-minio")["data"].items()
    }
    kubectl.apply(over(store, "keyed", secret="keys"))
    assert f"there is no Secret 'keys' in namespace {store.namespace}: create it" in why_not(
        kubectl, "keyed", "SecretMissing"
    )
    kubectl.apply(secret("keys", user=keys["user"]))
    assert "has no key 'password' (it has: user)" in why_not(kubectl, "keyed", "SecretKeyMissing")
    kubectl.apply(secret("keys", user=keys["user"], password="not-the-password"))
    assert "the server refuses the keys" in why_not(kubectl, "keyed", "StoreRefusesKeys")
    kubectl.apply(secret("keys", **keys))
    kubectl.until_ready("clusters.bmq.io/keyed", timeout_s=180)
    kubectl("delete", "clusters.bmq.io/keyed", "--timeout=60s")


def test_what_keeps_a_cluster_from_running_is_named(store: Release) -> None:
    kubectl = store.kubectl
    # By its name the operator would know it before anything runs.
    by_ip = kubectl.json("get", f"service/{CLUSTER}-minio")["spec"]["clusterIP"]
    broken: dict[str, tuple[Manifest, str, str]] = {
        "image": (over(store, "image", image={"tag": "missing"}), "ImageUnavailable", ":missing cannot be pulled"),
        "large": (
            over(store, "large", controllers={"replicas": 1, "resources": {"requests": {"cpu": "900"}}}),
            "Unschedulable",
            "finds no node",
        ),
        "setting": (
            over(store, "setting", settings={"env": {"BMQ_FLUSH_BYTES": "huge"}}),
            "Misconfigured",
            "BMQ_FLUSH_BYTES 'huge'",
        ),
        "stranger": (
            over(store, "stranger", bucket="bmq", host=by_ip),
            "StoreOfAnotherCluster",
            f"belongs to cluster '{store.namespace}-{CLUSTER}'",
        ),
        "1st": (over(store, "1st"), "NameUnusable", "beginning with a letter"),
    }
    kubectl.apply(*(manifest for manifest, _, _ in broken.values()))
    for name, (_, reason, words) in broken.items():
        assert words in why_not(kubectl, name, reason), name
    kubectl.apply(over(store, "setting", settings={"env": {"BMQ_FLUSH_BYTES": "8MiB"}}))
    kubectl.until_ready("clusters.bmq.io/setting", timeout_s=180)
    kubectl.apply(over(store, "second", bucket="setting"))
    assert f"is the store of Cluster {store.namespace}/setting" in why_not(kubectl, "second", "StoreShared")
    kubectl("delete", "clusters.bmq.io", "second", *broken, "--timeout=60s")


def test_a_paused_cluster_is_left_as_it_is(store: Release) -> None:
    kubectl, resource = store.kubectl, f"clusters.bmq.io/{CLUSTER}"
    kubectl(
        "patch",
        resource,
        "--type=merge",
        "--patch",
        '{"spec": {"paused": true, "brokers": {"replicas": 4}, "settings": {"lingerMs": 77}}}',
    )
    kubectl.until_condition(resource, kind="Progressing", status="False", reason="Paused")
    assert (
        kubectl.json("get", "statefulset", f"{CLUSTER}-broker")["spec"]["replicas"]
        == store.example("cluster.yaml")["spec"]["brokers"]["replicas"]
    )
    assert not any(
        "linger_ms: 77" in (one.get("data") or {}).get("server.yaml", "")
        for one in kubectl.json("get", "configmaps")["items"]
    )
