"""What sidecars in a namespace present to a Cluster whose channels they follow: a Secret there, with a token that lets
its bearer watch channels and nothing else. Pure.

It is made of the admin API's token (`bmq.naming.bearer`), so nodes need not be told of it, and it changes with that.
"""

import base64
import hashlib
from typing import Final

from bmq_operator.kube import Manifest

TOKEN: Final = "token"
"""The key of the Secret."""
CREDENTIAL: Final = "bmq.io/databus-credential"
"""The label by which these Secrets are found."""
OF_CLUSTER: Final = "bmq.io/databus-cluster"
"""The annotation that says whose it is: NAMESPACE/NAME."""
_NAME_CHARS: Final = 40


def credential_of(namespace: str, name: str) -> str:
    """What the Secret is called, for a Cluster of this name and namespace: the same wherever its sidecars are."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:10]
    return f"bmq-databus-{name[:_NAME_CHARS].rstrip('.-')}-{digest}"


def credential(namespace: str, cluster: tuple[str, str], *, token: str) -> Manifest:
    """The Secret in a namespace for the sidecars of a Cluster (namespace, name)."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": credential_of(*cluster),
            "namespace": namespace,
            "labels": {CREDENTIAL: "true", "app.kubernetes.io/managed-by": "bmq-operator"},
            "annotations": {OF_CLUSTER: "/".join(cluster)},
        },
        "type": "Opaque",
        "data": data_of(token),
    }


def data_of(token: str) -> dict[str, str]:
    """As a Secret has it."""
    return {TOKEN: base64.b64encode(token.encode()).decode()}


def cluster_of(secret: Manifest) -> tuple[str, str] | None:
    """Namespace and name of the Cluster whose it is; None: it is none of these, whatever it is called."""
    meta = secret["metadata"]
    namespace, slash, name = str((meta.get("annotations") or {}).get(OF_CLUSTER, "")).partition("/")
    if (meta.get("labels") or {}).get(CREDENTIAL) != "true" or not slash:
        return None
    return (namespace, name) if meta["name"] == credential_of(namespace, name) else None
