"""What tests write into a Cluster, and see of its nodes: words of the topic `orders` by the pod `client`, pods,
keys.
"""

import base64
import json
from collections.abc import Mapping

from e2e_kubectl import Kubectl
from e2e_release import CLUSTER

RESOURCE = f"clusters.bmq.io/{CLUSTER}"
NEW_KEYS = {"cluster-secret": "another-secret-between-nodes", "admin-token": "another-token-of-the-admin-api"}
OF_NODES = f"--selector=bmq.io/cluster={CLUSTER},app.kubernetes.io/component in (controller,broker,proxy)"


def uids(kubectl: Kubectl) -> dict[str, str]:
    """Of the nodes' pods, by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in kubectl.json("get", "pods", OF_NODES)["items"]}


def write(kubectl: Kubectl, word: str) -> str:
    """The word, once it is acknowledged."""
    kubectl.exec("client", "bmq", "produce", "orders", given=f"{word}\n")
    return word


def read(kubectl: Kubectl) -> set[str]:
    """All words."""
    return set(kubectl.exec("client", "bmq", "consume", "orders").splitlines())


def keys(kubectl: Kubectl) -> dict[str, str]:
    """What people find, and replace."""
    data = kubectl.json("get", "secret", f"{CLUSTER}-auth")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def replace_keys(kubectl: Kubectl, values: Mapping[str, str]) -> None:
    """Writes others."""
    patch = {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}
    kubectl("patch", "secret", f"{CLUSTER}-auth", "--type=merge", "--patch", json.dumps(patch))
