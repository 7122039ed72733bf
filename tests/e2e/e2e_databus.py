"""Pods with a sidecar of Databus, and applications in them that speak HTTP alone."""

import json
from pathlib import Path
from typing import Any

from e2e_images import Images
from e2e_kubectl import Kubectl, Manifest
from e2e_release import CLUSTER, SMALL, Release

SET = "shop-channels"
ENABLED = {"databus": {"injection": {"enabled": True, "resources": SMALL}}}
LABEL = "bmq.io/databus-injection=enabled"
CHANNELS = """
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: orders}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: clicks}
spec: {acknowledgement: accepted, spool: {maxBytes: 16777216}}
"""
APPLICATION = (Path(__file__).parent / "fixtures" / "application.py").read_text()
_SECURITY = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def channel_set() -> Manifest:
    """For the Cluster of the namespace."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SET, "labels": {"bmq.io/use": "allowed"}},
        "data": {"cluster": CLUSTER, "channels.yaml": CHANNELS},
    }


def pod(images: Images, *arguments: str, asks: bool = True, **spec: Any) -> Manifest:
    """One whose application is fixtures/application.py with these arguments."""
    container = {
        "name": "app",
        "image": images.bmq,
        "command": ["python3", "-c", APPLICATION, *arguments],
        "securityContext": _SECURITY,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    return {
        "metadata": {"annotations": {"bmq.io/databus": SET} if asks else {}},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            **spec,
        },
    }


def named(name: str, manifest: Manifest) -> Manifest:
    """As a pod of its own."""
    metadata = {**manifest["metadata"], "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": manifest["spec"]}


def job(name: str, manifest: Manifest) -> Manifest:
    """As a Job's."""
    template = {**manifest, "spec": {**manifest["spec"], "restartPolicy": "Never"}}
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def sidecar_of(kubectl: Kubectl, name: str) -> Manifest | None:
    """Its status."""
    found = kubectl.json("get", "pod", name)["status"].get("initContainerStatuses", [])
    return next((one for one in found if one["name"] == "bmq-databus"), None)


def accepted(kubectl: Kubectl, name: str) -> list[str]:
    """What the application of a pod was told that it is accepted."""
    return kubectl.exec(name, "cat", "/tmp/accepted", container="app").split()


def consumed(kubectl: Kubectl, name: str, topic: str) -> list[str]:
    """All that the topic has, read in this pod."""
    return kubectl.exec(name, "bmq", "consume", topic, "-b", f"{CLUSTER}-bootstrap:9092", container="app").split()


def waiting(kubectl: Kubectl, name: str) -> float:
    """How many messages wait in the pod's spools."""
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8600/metrics', timeout=5).read().decode())"
    text = kubectl.exec(name, "python3", "-c", program, container="app")
    return sum(float(one.split()[-1]) for one in text.splitlines() if one.startswith("bmq_databus_spool_messages{"))


def restart_cluster(release: Release) -> None:
    """All of its pods go at once, its store among them, and come back."""
    kubectl = release.kubectl
    before = {one["metadata"]["uid"] for one in _nodes(kubectl)}
    kubectl("delete", "pods", "--selector", f"bmq.io/cluster={CLUSTER}", "--wait=false", "--grace-period=1")

    def back() -> bool:
        pods = _nodes(kubectl)
        new = not before & {one["metadata"]["uid"] for one in pods}
        return new and len(pods) >= len(before) and all(_is_ready(one) for one in pods)

    kubectl.until("all pods of the Cluster are others", back, timeout_s=240)
    kubectl.until_ready(f"clusters.bmq.io/{CLUSTER}", timeout_s=180)


def _nodes(kubectl: Kubectl) -> list[Manifest]:
    return list(json.loads(kubectl("get", "pods", "-l", f"bmq.io/cluster={CLUSTER}", "-o", "json"))["items"])


def _is_ready(found: Manifest) -> bool:
    conditions = found["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
