"""Channel sets and pods of tests."""

from typing import Any

CHANNELS = """
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: orders}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: clicks}
spec: {topic: clicks-raw, acknowledgement: accepted, spool: {maxBytes: 16777216}}
"""


def config_map(*, labels: dict[str, str] | None = None, name: str = "shop-channels", **data: str) -> dict[str, Any]:
    """One that may be used, in the namespace shop."""
    given = {"channels.yaml": CHANNELS} | data
    if "cluster" not in given:
        given.setdefault("bootstrapServers", "bmq-bootstrap.shop.svc:9092")
    meta = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {"bmq.io/use": "allowed"} if labels is None else labels,
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": given}


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """One that asks for the channel set of `config_map`."""
    asked = {"bmq.io/databus": "shop-channels"} if annotations is None else annotations
    containers = [{"name": "app", "image": "app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "app", "annotations": asked},
        "spec": {"containers": containers, **spec},
    }
