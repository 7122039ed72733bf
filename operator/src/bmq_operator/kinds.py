"""Where the API server keeps the kinds that the operator knows."""

import re
from typing import Final

from bmq_resources import KINDS
from bmq_resources.base import API_VERSION

_PLURALS: Final[dict[str, tuple[str, str]]] = {
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Event": ("v1", "events"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "ControllerRevision": ("apps/v1", "controllerrevisions"),
    "Deployment": ("apps/v1", "deployments"),
    "Job": ("batch/v1", "jobs"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "ScheduledSparkApplication": ("sparkoperator.k8s.io/v1beta2", "scheduledsparkapplications"),
} | {model.__name__: (API_VERSION, model.naming.plural) for model in KINDS}

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?")
_CLUSTER_SCOPED: Final = frozenset(("Namespace", "Node", "MutatingWebhookConfiguration"))


class NoName(Exception):
    """What stands for a name in a resource would lead elsewhere as a part of a path."""


def path_of(kind: str, namespace: str = "", name: str = "") -> str:
    """The path of an object, or of all of a kind; of all namespaces where none is given. Raises NoName."""
    for part in (namespace, name):
        if part and _NAME.fullmatch(part) is None:
            raise NoName(f"{kind} {part[:100]!r}: no object has such a name")
    api_version, plural = _PLURALS[kind]
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    where = f"/namespaces/{namespace}" if namespace and kind not in _CLUSTER_SCOPED else ""
    return f"{root}{where}/{plural}" + (f"/{name}" if name else "")
