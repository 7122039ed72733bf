"""The embedded MinIO: one pod with a volume, for trials. Pure."""

from bmq_operator.applied import quantity
from bmq_operator.clusters.configuration import secret
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.names import CONFIG_HASH, LANE_LABEL, MINIO_PORT, Names, labels_of, selector_of
from bmq_operator.clusters.pods import container_security, placement_of, pod_security, pull_secrets_of, resources_of
from bmq_operator.conditions import Finding
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster
from bmq_resources.pods import Placement

CLAIM = "data"


def minio(cluster: Cluster, inputs: Inputs) -> list[Manifest]:
    """StatefulSet, Service and Secret; nothing where the store is elsewhere."""
    if not cluster.spec.store.minio.embedded:
        return []
    names = Names.of(cluster)
    labels = labels_of(names.cluster, "minio")
    selector = selector_of(names.cluster, "minio")
    return [
        secret(names.minio, labels, {"user": inputs.minio_user, "password": inputs.minio_password}),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": names.minio, "labels": labels},
            "spec": {
                "selector": selector,
                "ports": [{"name": "s3", "port": MINIO_PORT, "targetPort": "s3", "protocol": "TCP"}],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": names.minio, "labels": labels},
            "spec": {
                "serviceName": names.minio,
                "replicas": 1,
                "selector": {"matchLabels": selector},
                "podManagementPolicy": inputs.pod_management.get("minio", "Parallel"),
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "volumeClaimTemplates": inputs.minio_claim_templates or [_claim(cluster)],
                "template": {
                    "metadata": {
                        "labels": labels | {LANE_LABEL: ""},
                        "annotations": {CONFIG_HASH: inputs.minio_digest},
                    },
                    "spec": _pod(cluster),
                },
            },
        },
    ]


def volume_note(cluster: Cluster, stateful_set: Manifest | None, claim: Manifest | None) -> Finding | None:
    """Kubernetes lets no volume of a StatefulSet change: a condition says what was written and is not so, by the claim
    where there is one.
    """
    templates = (stateful_set or {}).get("spec", {}).get("volumeClaimTemplates") or []
    if not cluster.spec.store.minio.embedded or not templates:
        return None
    there, wanted = (claim or {}).get("spec") or templates[0]["spec"], _claim(cluster)["spec"]
    size, size_wanted = there["resources"]["requests"]["storage"], str(wanted["resources"]["requests"]["storage"])
    kind, kind_wanted = there.get("storageClassName", ""), wanted.get("storageClassName", "")
    name = Names.of(cluster).minio_claim
    if quantity(size) != quantity(size_wanted):
        text = f"it has {size}, and {size_wanted} was written. Enlarge the claim {name} itself, or write what it has"
    elif kind_wanted and kind_wanted != kind:
        text = (
            f"it has the class {kind or '(none)'}, and {kind_wanted} was written. Write what it has, or leave "
            "storageClassName out"
        )
    else:
        return None
    text = f"store.minio.storage and storageClassName hold for new volumes alone: {text}"
    return Finding(type="VolumeAsWritten", status="False", reason="CannotChange", message=text)


def _claim(cluster: Cluster) -> Manifest:
    wanted = cluster.spec.store.minio
    spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": wanted.storage}}}
    if wanted.storage_class_name:
        spec["storageClassName"] = wanted.storage_class_name
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec}


def _pod(cluster: Cluster) -> Manifest:
    names = Names.of(cluster)
    wanted = cluster.spec.store.minio
    pod: Manifest = {
        "serviceAccountName": names.cluster,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(),
        **placement_of(Placement(), selector_of(names.cluster, "minio")),
        "containers": [
            {
                "name": "minio",
                "image": wanted.image,
                "imagePullPolicy": cluster.spec.image.pull_policy,
                "args": ["server", "/data", "--address", f":{MINIO_PORT}"],
                "env": [
                    {"name": "HOME", "value": "/tmp"},
                    {"name": "MINIO_UPDATE", "value": "off"},
                    {"name": "MINIO_BROWSER", "value": "off"},
                    {"name": "MINIO_ROOT_USER", "valueFrom": {"secretKeyRef": {"name": names.minio, "key": "user"}}},
                    {
                        "name": "MINIO_ROOT_PASSWORD",
                        "valueFrom": {"secretKeyRef": {"name": names.minio, "key": "password"}},
                    },
                ],
                "ports": [{"name": "s3", "containerPort": MINIO_PORT, "protocol": "TCP"}],
                "resources": resources_of(wanted.resources),
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "startupProbe": _probe("/minio/health/live", failures=60),
                "livenessProbe": _probe("/minio/health/live", failures=12),
                "readinessProbe": _probe("/minio/health/ready", failures=3),
                "volumeMounts": [{"name": CLAIM, "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if secrets := pull_secrets_of(cluster.spec.image):
        pod["imagePullSecrets"] = secrets
    return pod


def _probe(path: str, *, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "s3"},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
