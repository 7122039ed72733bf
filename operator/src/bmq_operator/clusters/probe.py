"""The pod that measures what clients see: `bmq probe`, where a Cluster asks for it. Pure."""

from typing import Final

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.names import ADMIN_PORT, KAFKA_PORT, LANE_LABEL, Names, labels_of, selector_of
from bmq_operator.clusters.pods import (
    CONTAINER,
    container_security,
    image_of,
    placement_of,
    pod_security,
    pull_secrets_of,
)
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster

COMPONENT: Final = "probe"
_GRACE_S: Final = 20


def probe(cluster: Cluster, inputs: Inputs) -> list[Manifest]:
    """A StatefulSet of one pod, so that its name, and the metrics' labels, stay. It is no node: Kubernetes replaces it
    by itself.

    It runs where proxies may.
    """
    spec = cluster.spec
    if not spec.probe.enabled:
        return []
    names = Names.of(cluster)
    labels = labels_of(names.cluster, COMPONENT) | {LANE_LABEL: ""}
    pod: Manifest = {
        "serviceAccountName": names.cluster,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": pod_security(),
        **placement_of(spec.proxies.placement, selector_of(names.cluster, COMPONENT)),
        "containers": [
            {
                "name": CONTAINER,
                "image": image_of(cluster, inputs.default_image),
                "imagePullPolicy": spec.image.pull_policy,
                "args": [
                    "probe",
                    "--bootstrap-server",
                    f"{names.host(names.bootstrap)}:{KAFKA_PORT}",
                    "--interval-ms",
                    str(spec.probe.interval_ms),
                    "--admin",
                    f"0.0.0.0:{ADMIN_PORT}",
                ],
                "env": [{"name": "BMQ_LOG_LEVEL", "value": spec.settings.log_level}],
                "ports": [{"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}},
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                # Not ready before a record has come through; whether the cluster is well later is not the pod's affair.
                "livenessProbe": _asked("/livez"),
                "readinessProbe": _asked("/readyz"),
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if secrets := pull_secrets_of(spec.image):
        pod["imagePullSecrets"] = secrets
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": names.probe, "labels": labels},
            "spec": {
                "serviceName": names.nodes,
                "replicas": 1,
                "podManagementPolicy": inputs.pod_management.get(COMPONENT, "Parallel"),
                "revisionHistoryLimit": 2,
                "selector": {"matchLabels": selector_of(names.cluster, COMPONENT)},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
    ]


def _asked(path: str) -> Manifest:
    return {"httpGet": {"path": path, "port": "admin"}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 6}
