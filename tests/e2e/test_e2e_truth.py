"""Ready tells the truth: without the Secret, with keys that the store refuses, and with right ones again."""

import base64

import pytest
from e2e_kubectl import Kubectl, Manifest
from e2e_load import ready_cluster
from e2e_release import CLUSTER, Release

OTHER = "clusters.bmq.io/other"


@pytest.fixture(scope="module")
def ready(release: Release) -> Kubectl:
    """kubectl where a Cluster with a MinIO is, whose store another Cluster may have a bucket in."""
    one = {"replicas": 1}
    return ready_cluster(release, controllers=one, brokers=one, proxies=one)


def keys(kubectl: Kubectl) -> dict[str, str]:
    """MinIO's."""
    return {name: base64.b64decode(text).decode() for name, text in kubectl.json("get", "secret", f"{CLUSTER}-minio")["data"].items()}


def secret(user: str, password: str) -> Manifest:
    """As a Cluster over S3 wants it."""
    data = {"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": data}


def other(release: Release) -> Manifest:
    """A Cluster over a prefix of the same bucket."""
    url = f"s3://bmq/other?endpoint=http://{CLUSTER}-minio:9000&region=us-east-1"
    manifest = release.example("cluster.yaml", **{role: {"replicas": 1} for role in ("controllers", "brokers", "proxies")})
    manifest["metadata"]["name"] = "other"
    manifest["spec"]["store"] = {"url": url, "credentials": {"secretName": "keys"}}
    return manifest


def test_ready_names_the_secret_that_is_missing_the_keys_that_are_refused_and_comes_back(ready: Kubectl, release: Release) -> None:
    right = keys(ready)
    ready.apply(other(release))
    missing = ready.until_condition(OTHER, status="False", reason="SecretMissing")
    assert "keys" in missing["message"]
    ready.apply(secret(right["user"], "not the password"))
    refused = ready.until_condition(OTHER, status="False", reason="StoreRefusesKeys", timeout_s=180)
    assert "key" in refused["message"]
    ready.apply(secret(right["user"], right["password"]))
    ready.until_ready(OTHER, timeout_s=240)
