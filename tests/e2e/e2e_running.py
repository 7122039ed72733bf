"""A Cluster that runs, and what tests do to it."""

import base64
from dataclasses import dataclass
from typing import Any

from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, Release, client_pod, status_of
from minio import Minio

RESOURCE = f"clusters.bmq.io/{CLUSTER}"
OUTSIDE = {"name": "outside", "type": "NodePort", "port": 9094}
READY_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The Cluster of `release`, Ready, with a listener for clients outside. `doomed`: a namespace that may be
    deleted.
    """

    release: Release
    doomed: Kubectl
    outside: str

    @classmethod
    def started(cls, release: Release, doomed: Kubectl) -> "Running":
        """Makes the Cluster of examples/ and waits until it is Ready."""
        topics_from = {"namespaces": [doomed.namespace]}
        release.kubectl.apply(release.example("cluster.yaml", listeners=[OUTSIDE], topicsFrom=topics_from))
        release.kubectl.until_ready(RESOURCE, timeout_s=READY_S)
        (listener,) = status_of(release.kubectl, RESOURCE)["listeners"]
        return cls(release=release, doomed=doomed, outside=listener["bootstrapServers"])

    @property
    def kubectl(self) -> Kubectl:
        """In the Cluster's namespace."""
        return self.release.kubectl

    def with_client(self) -> Kubectl:
        """In the Cluster's namespace, where the pod `client` runs then."""
        self.kubectl.apply(client_pod(self.release.images))
        self.kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
        return self.kubectl

    def topic(self, name: str, **spec: Any) -> None:
        """Makes a topic by a Topic resource, and waits until it is there."""
        self.kubectl.apply(topic(name, **spec))
        self.kubectl.until_ready(f"topics.bmq.io/{name}")

    def bmq(self, *command: str) -> str:
        """What the `bmq` command prints in a controller's pod."""
        script = f'export BMQ_TOKEN="$BMQ_ADMIN_TOKEN" BMQ_BOOTSTRAP_SERVER={CLUSTER}-bootstrap:9092; exec bmq "$@"'
        return self.kubectl.exec(f"{CLUSTER}-controller-0", "sh", "-c", script, "bmq", *command, container="bmq")

    def objects(self, bucket: str = CLUSTER) -> dict[str, tuple[str, int]]:
        """A bucket's objects: key to ETag and size in bytes."""
        secret = self.kubectl.json("get", f"secret/{CLUSTER}-minio")["data"]
        user, password = (base64.b64decode(secret[key]).decode() for key in ("user", "password"))
        with self.kubectl.forwarded(f"service/{CLUSTER}-minio", [":9000"]) as (port,):
            client = Minio(f"127.0.0.1:{port}", access_key=user, secret_key=password, secure=False)
            return {
                str(one.object_name): (str(one.etag), int(one.size or 0))
                for one in client.list_objects(bucket, recursive=True)
            }


def topic(name: str, *, cluster_namespace: str = "", **spec: Any) -> Manifest:
    """A Topic of the Cluster."""
    reference = {"name": CLUSTER} | ({"namespace": cluster_namespace} if cluster_namespace else {})
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"clusterRef": reference, **spec},
    }
