"""Other keys between the nodes of a cluster that serves, and keys that are deleted under it."""

import base64

import pytest
from e2e_kubectl import Kubectl
from e2e_release import CLUSTER, SMALL, Release, client_pod, status_of

RESOURCE = f"clusters.bmq.io/{CLUSTER}"
NEW = {"cluster-secret": "another-secret-between-nodes", "admin-token": "another-token-of-the-admin-api"}
OF_NODES = f"--selector=bmq.io/cluster={CLUSTER},app.kubernetes.io/component in (controller,broker,proxy)"


@pytest.fixture(scope="module")
def kubectl(release: Release) -> Kubectl:
    """With a Cluster of two controllers and two brokers, and a client."""
    two = {"replicas": 2, "resources": SMALL}
    cluster = release.example("cluster.yaml", controllers=two, brokers=two, proxies={"replicas": 1, "resources": SMALL})
    release.kubectl.apply(cluster, client_pod(release.images))
    release.kubectl.until_ready(RESOURCE, timeout_s=180)
    release.kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
    release.kubectl.exec("client", "bmq", "topics", "create", "orders", "--partitions", "4")
    return release.kubectl


def uids(kubectl: Kubectl) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in kubectl.json("get", "pods", OF_NODES)["items"]}


def write(kubectl: Kubectl, word: str) -> str:
    """The word, once it is acknowledged."""
    kubectl.exec("client", "bmq", "produce", "orders", given=f"{word}\n")
    return word


def read(kubectl: Kubectl) -> set[str]:
    """All words."""
    return set(kubectl.exec("client", "bmq", "consume", "orders").splitlines())


def keys(kubectl: Kubectl) -> dict[str, str]:
    data = kubectl.json("get", "secret", f"{CLUSTER}-auth")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def test_other_keys_reach_all_nodes_while_it_serves_and_deleted_ones_come_back(kubectl: Kubectl) -> None:
    before = uids(kubectl)
    patch = {key: base64.b64encode(value.encode()).decode() for key, value in NEW.items()}
    kubectl("patch", "secret", f"{CLUSTER}-auth", "--type=merge", "--patch", f'{{"data": {patch}}}'.replace("'", '"'))
    kubectl.until_condition(RESOURCE, kind="KeysAsWritten", status="False", reason="Replacing", timeout_s=30)

    words = set()

    def replaced() -> bool:
        words.add(write(kubectl, f"word {len(words)}"))
        shown = status_of(kubectl, RESOURCE)["conditions"]
        return not any(one["type"] == "KeysAsWritten" for one in shown) and any(one["type"] == "Ready" and one["status"] == "True" for one in shown)

    kubectl.until("all nodes have the new keys", replaced, timeout_s=330)
    assert not set(before.values()) & set(uids(kubectl).values()), "a node has its old keys"
    environment = kubectl.exec(f"{CLUSTER}-broker-0", "cat", "/proc/1/environ", container="bmq").split("\0")
    assert f"BMQ_CLUSTER_SECRET={NEW['cluster-secret']}" in environment
    assert not [one for one in environment if one.startswith("BMQ_CLUSTER_SECRETS_ACCEPTED")]
    rolled = uids(kubectl)
    kubectl("delete", "secret", f"{CLUSTER}-auth")
    kubectl.until("the keys are there again", lambda: keys(kubectl) == NEW, timeout_s=30)
    kubectl.until_ready(RESOURCE)
    assert uids(kubectl) == rolled
    assert words <= read(kubectl)
