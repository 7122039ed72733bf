"""A release of the chart in a namespace, which looks after that namespace alone: several may be on one cluster."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from chart_helm import CHART, ROOT, helm
from e2e_images import Images
from e2e_kubectl import Kubectl, Manifest

SMALL = {"requests": {"cpu": "20m", "memory": "128Mi"}}
CLUSTER = "bmq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The operator in the namespace of `kubectl`."""

    kubectl: Kubectl
    images: Images
    name: str = "queue"
    chart: Path = CHART

    @property
    def namespace(self) -> str:
        """Where it is, and what it looks after."""
        return self.kubectl.namespace

    @property
    def bootstrap_servers(self) -> str:
        """Of the Cluster, for clients in the cluster."""
        return f"{CLUSTER}-bootstrap.{self.namespace}.svc:9092"

    def values(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the tests need of the chart."""
        own: dict[str, Any] = {
            "image": {"repository": self.images.repository, "tag": self.images.tag},
            "watchNamespaces": [self.namespace],
            "rbac": {"readNodes": True},
            **self._allow(),
            "resources": SMALL,
            "test": {"bootstrapServers": self.bootstrap_servers},
        }
        return own | dict(more or {})

    def _allow(self) -> dict[str, Any]:
        """The MinIO that was loaded; an older chart has no value for it."""
        allow = {"images": [self.images.minio.rpartition(":")[0]], "secrets": [f"{CLUSTER}-minio"]}
        if self.chart == CHART:
            return {"allow": allow}
        return {"extraEnv": [{"name": "BMQ_OPERATOR_ALLOW", "value": json.dumps(allow)}]}

    def install(self, more: Mapping[str, Any] | None = None) -> str:
        """Installs or upgrades it. CRDs that are there, whoever made them, become its own, so that several runs may
        share a cluster.
        """
        wait = ["--take-ownership", "--wait", "--timeout", "180s"]
        return self.helm("upgrade", "--install", self.name, str(self.chart), *wait, values=self.values(more))

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Helm in the namespace."""
        try:
            return helm(*arguments, "--namespace", self.namespace, values=values, environment=self.kubectl.environment)
        except Exception as problem:
            problem.add_note(self.kubectl.explanation())
            raise

    def uninstall(self) -> str:
        """Takes the operator away."""
        return self.helm("uninstall", self.name, "--wait", "--timeout", "180s")

    def leave(self) -> None:
        """Takes everything away at the end of the tests, so that the namespace may go: no operator is there any more to
        take its finalizers off.
        """
        self.helm("uninstall", self.name, "--ignore-not-found", "--no-hooks", "--wait", "--timeout", "60s")
        for kind in ("clusters.bmq.io", "topics.bmq.io", "lanes.bmq.io"):
            for one in self.kubectl.json("get", kind)["items"]:
                if one["metadata"].get("finalizers"):
                    self.kubectl(
                        "patch",
                        kind,
                        one["metadata"]["name"],
                        "--type=merge",
                        "--patch",
                        '{"metadata": {"finalizers": []}}',
                    )

    def operator_log(self) -> str:
        """What the operator said."""
        return self.kubectl("logs", f"deployment/{self.name}-bmq", "--tail=-1")

    def example(self, name: str, **spec: Any) -> Manifest:
        """A file of examples/, for a small machine: its pods request little, and MinIO is the one that was loaded."""
        manifest: Manifest = yaml.safe_load((ROOT / "examples" / name).read_text())
        for part, value in spec.items():
            manifest["spec"][part] = manifest["spec"].get(part, {}) | value if isinstance(value, dict) else value
        if manifest["kind"] == "Cluster":
            manifest["spec"].setdefault("rollout", {"settleSeconds": 1})
            for role in ("controllers", "brokers", "proxies"):
                if "resources" not in spec.get(role, {}):
                    manifest["spec"].setdefault(role, {})["resources"] = SMALL
            if minio := manifest["spec"].get("store", {}).get("minio"):
                minio |= {"image": self.images.minio, "storage": "1Gi", "resources": SMALL}
        return manifest


def client_pod(images: Images) -> Manifest:
    """A pod with `bmq`, to be used by `kubectl exec`; bmq finds the Cluster of the namespace by itself."""
    security = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "bmq",
        "image": images.bmq,
        "command": ["python3", "-c", "import signal; signal.sigwait({signal.SIGTERM})"],
        "env": [{"name": "BMQ_BOOTSTRAP_SERVER", "value": f"{CLUSTER}-bootstrap:9092"}],
        "securityContext": security,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}


def status_of(kubectl: Kubectl, resource: str) -> dict[str, Any]:
    """What a resource shows."""
    return dict(kubectl.json("get", resource).get("status", {}))


def kept() -> bool:
    """Whether what the tests made is to be left."""
    return bool(os.environ.get("BMQ_E2E_KEEP"))
