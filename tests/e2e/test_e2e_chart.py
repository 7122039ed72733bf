"""The chart against the API server itself: every manifest is one that it knows, and applied twice there is no
difference.
"""

import json
import subprocess
from typing import Any

import pytest
from chart_helm import objects, rendered
from e2e_cluster import ROOT, Kubernetes
from e2e_kubectl import Kubectl, Manifest

MONITORING = {part: {"enabled": True} for part in ("serviceMonitor", "podMonitor", "rules", "dashboards")}
PROMETHEUS_GROUP = "monitoring.coreos.com/v1"


def of_release(namespace: str, more: dict[str, Any]) -> list[Manifest]:
    """What a GitOps tool applies, without what Prometheus' operator would have to be there for."""
    made = objects(rendered(more, namespace=namespace, release="gitops"))
    return [one for one in made if one["apiVersion"] != PROMETHEUS_GROUP]


@pytest.mark.parametrize(
    "more",
    [
        {"watchNamespaces": ["*"], "replicas": 2, "cluster": {"create": True}, "monitoring": MONITORING},
        {
            "networkPolicy": {"metricsFromNamespaces": ["monitoring"]},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
        },
        {
            "podAnnotations": {"a": "b"},
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "imagePullSecrets": [{"name": "registry"}],
        },
    ],
    ids=["cluster-wide", "placed", "annotated"],
)
def test_the_api_server_accepts_every_manifest(kubectl: Kubectl, kubernetes: Kubernetes, more: dict[str, Any]) -> None:
    manifests = of_release(kubectl.namespace, {"watchNamespaces": [kubectl.namespace]} | more)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    options = [
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "--field-manager=bmq-tests",
    ]
    said = kubernetes.kubectl("apply", *options, "--filename", "-", given=listed)
    assert len(said.splitlines()) == len(manifests)


def test_applied_twice_there_is_no_difference(kubectl: Kubectl) -> None:
    values = {
        "watchNamespaces": [kubectl.namespace],
        "rbac": {"readNodes": False},
        "crds": {"install": False},
        "uninstall": {"release": False},
        "replicas": 0,
    }
    passing = ("Pod", "ClusterRole", "ClusterRoleBinding")  # what runs, and what would stay when the namespace goes
    manifests = [one for one in of_release(kubectl.namespace, values) if one["kind"] not in passing]
    kubectl("apply", "--filename", str(ROOT / "crds"), "--server-side", "--force-conflicts")
    cluster = {
        "apiVersion": "bmq.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "plain"},
        "spec": {"store": {"url": "s3://bucket"}},
    }
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests, cluster]})
    options = ["--server-side", "--field-manager=argocd", "--filename", "-"]
    kubectl("apply", *options, given=listed)
    line = kubectl.line("diff", *options)
    again = subprocess.run(
        line, input=listed, capture_output=True, text=True, check=False, env=kubectl.environment, timeout=120
    )
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    changed = listed.replace('"s3://bucket"', '"s3://bucket", "minio": {"storage": "3Gi"}')
    differs = subprocess.run(
        line, input=changed, capture_output=True, text=True, check=False, env=kubectl.environment, timeout=120
    )
    assert differs.returncode == 1
    assert "3Gi" in differs.stdout
