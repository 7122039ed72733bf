"""A second Cluster, of three pods, in a bucket of its own in the first one's MinIO."""

import base64

from e2e_kubectl import Kubectl
from e2e_release import SMALL
from e2e_running import Running

ONE = {"replicas": 1, "resources": SMALL}


def store_url(running: Running, bucket: str) -> str:
    """A bucket in the first one's MinIO, as pods reach it."""
    return f"s3://{bucket}?endpoint=http://bmq-minio.{running.release.namespace}.svc:9000&region=us-east-1"


def second(running: Running, **spec: object) -> dict[str, object]:
    """The resource."""
    store = {"url": store_url(running, "second"), "credentials": {"secretName": "second-store"}}
    roles = {"controllers": ONE, "brokers": ONE, "proxies": ONE}
    return {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "second"},
        "spec": {"store": store, **roles, **spec},
    }


def store_secret(running: Running) -> dict[str, object]:
    """The first one's keys, as a user would write them down."""
    keys = running.kubectl.json("get", "secret/bmq-minio")["data"]
    names = {"AWS_ACCESS_KEY_ID": keys["user"], "AWS_SECRET_ACCESS_KEY": keys["password"]}
    data = {name: base64.b64decode(value).decode() for name, value in names.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "second-store", "labels": {"bmq.io/use": "allowed"}},
        "stringData": data,
    }


def in_second(kubectl: Kubectl, *command: str, given: str | None = None) -> str:
    """What `bmq` prints in the second Cluster; what was just made may not be reached at once from all sides on a busy
    machine.
    """
    return kubectl.exec(
        "second-controller-0",
        "bmq",
        *command,
        "-b",
        "second-bootstrap:9092",
        "--timeout",
        "60",
        given=given,
        container="bmq",
    )
