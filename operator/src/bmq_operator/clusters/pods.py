"""The pods of nodes: one template for all roles, of the base and of lanes. Pure.

Everything here satisfies the restricted Pod Security Standard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import ADMIN_TOKEN, ADMIN_TOKENS_ACCEPTED, CLUSTER_SECRET, CLUSTER_SECRETS_ACCEPTED
from bmq_operator.clusters.listener_ports import listener_port_name
from bmq_operator.clusters.names import (
    CONFIG_HASH,
    INTERNAL_PORT,
    LANE_LABEL,
    PROXY_PORTS,
    ZONE_LABEL,
    Component,
    Names,
    labels_of,
    selector_of,
)
from bmq_operator.clusters.store_keys import store_keys
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster
from bmq_resources.pods import Image, Placement, Resources

USER: Final = 10001
STOP_TIMEOUT_MS: Final = 15_000
"""The default of `bmq server`'s stop_timeout_ms."""
STOP_TIMEOUT_MS_MAX: Final = 600_000
"""The most that it takes."""
_NUMBER: Final = TypeAdapter(int)
GRACE_S: Final = 20
"""How much longer than its own stop timeout a pod may take."""
CONTAINER: Final = "bmq"
KEY_VARIABLES: Final = (
    "BMQ_CLUSTER_SECRET",
    "BMQ_CLUSTER_SECRETS_ACCEPTED",
    "BMQ_ADMIN_TOKEN",
    "BMQ_ADMIN_TOKENS_ACCEPTED",
)
"""By which a node takes what it presents and accepts."""
ADVERTISED_INTERNAL: Final = "BMQ_ADVERTISED_INTERNAL"
GOODBYE_S: Final = 3
CONFIG_VOLUME: Final = "config"
ADVERTISED_PATH: Final = "/etc/bmq-advertised"
ADVERTISED_FILE: Final = "listeners"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A StatefulSet of nodes."""

    name: str
    component: Component
    replicas: int | None
    """None: whoever scales it says so."""
    node_ids_from: int
    resources: Resources
    placement: Placement
    config_hash: str
    config_map: str
    """The one with `server.yaml`."""
    lane: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Further keys of `bmq server`, by their variables."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Further ports."""
    advertised_config_map: str = ""


def image_of(cluster: Cluster, default: str) -> str:
    """REPOSITORY:TAG or REPOSITORY:TAG@DIGEST: what of it the Cluster does not say is the default's."""
    repository, tag = split_image(default)
    return f"{cluster.spec.image.repository or repository}:{cluster.spec.image.tag or tag}"


def split_image(image: str) -> tuple[str, str]:
    """What is before the tag, and the tag, with its digest if it has one. A registry's port is no tag."""
    place, slash, name = image.rpartition("/")
    name, _, tag = name.partition(":")
    return f"{place}{slash}{name}", tag


def pod_security() -> dict[str, Any]:
    """The security context of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """The security context of a container."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def stateful_set(cluster: Cluster, inputs: Inputs, workload: Workload) -> Manifest:
    """The StatefulSet, without owner and namespace. It has no volumes but an empty /tmp."""
    names = Names.of(cluster)
    spec: Manifest = {
        "serviceName": names.nodes,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector_of(names.cluster, workload.component, workload.lane)},
        "template": {
            "metadata": {
                "labels": {
                    **workload.placement.labels,
                    **labels_of(names.cluster, workload.component),
                    LANE_LABEL: workload.lane,
                },
                "annotations": {**workload.placement.annotations, CONFIG_HASH: workload.config_hash},
            },
            "spec": _pod(cluster, inputs, workload),
        },
    }
    if workload.replicas is not None:
        spec["replicas"] = workload.replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": workload.name,
            "labels": labels_of(names.cluster, workload.component) | {LANE_LABEL: workload.lane},
        },
        "spec": spec,
    }


def config_map_of(pod_spec: Manifest) -> str:
    """The ConfigMap from which a pod, or those of a template, take `server.yaml`; empty: none is named."""
    found = (
        one.get("configMap", {}).get("name", "") for one in pod_spec.get("volumes", ()) if one["name"] == CONFIG_VOLUME
    )
    return str(next(found, ""))


def tells_ipv6(pod_spec: Manifest) -> bool:
    """Whether nodes of this pod, or template, tell their address as one of IPv6."""
    return any(
        one["name"] == ADVERTISED_INTERNAL and str(one.get("value", "")).startswith("[")
        for one in pod_spec["containers"][0].get("env", ())
    )


def literal(text: str) -> str:
    """As a container's arguments and variables have to say a text: the kubelet puts a variable's value in place of
    $(NAME), and $ of $$.
    """
    return text.replace("$", "$$")


def erase_job(cluster: Cluster, *, image: str) -> Manifest:
    """The Job that deletes all records of the Cluster from its store, without owner and namespace.

    It runs where controllers may, and has what they have to reach the store by besides its keys: a region, an identity
    by labels.
    """
    names = Names.of(cluster)
    part = cluster.spec.controllers
    labels = labels_of(names.cluster, "erase")
    plain = {one.name: one.value for one in part.placement.env if not one.name.startswith("BMQ_")}
    keys = _keys_to_store(cluster)
    pod: Manifest = {
        "serviceAccountName": names.cluster,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "securityContext": pod_security(),
        **placement_of(part.placement, labels),
        "containers": [
            {
                "name": CONTAINER,
                "image": image_of(cluster, image),
                "imagePullPolicy": cluster.spec.image.pull_policy,
                "args": [
                    "store",
                    "erase",
                    "--store",
                    literal(cluster.spec.store.url),
                    "--cluster-id",
                    cluster.cluster_id,
                    "--yes",
                ],
                "env": [
                    *({"name": name, "value": value} for name, value in plain.items() if name not in keys),
                    *({"name": name, "valueFrom": source} for name, source in keys.items()),
                ],
                "resources": resources_of(part.resources),
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if secrets := pull_secrets_of(cluster.spec.image):
        pod["imagePullSecrets"] = secrets
    meta = {"labels": {**part.placement.labels, **labels}, "annotations": dict(part.placement.annotations)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": names.erase, "labels": labels},
        "spec": {"backoffLimit": 1_000, "template": {"metadata": meta, "spec": pod}},
    }


def placement_of(placement: Placement, selector: Mapping[str, str]) -> dict[str, Any]:
    """Where pods run: spread over nodes and zones where that is possible."""
    spread = {"labelSelector": {"matchLabels": dict(selector)}, "topologyKey": "kubernetes.io/hostname"}
    found: dict[str, Any] = {
        "affinity": placement.affinity
        or {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": spread}]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": ZONE_LABEL,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(selector)},
            }
        ],
    }
    if placement.node_selector:
        found["nodeSelector"] = placement.node_selector
    if placement.tolerations:
        found["tolerations"] = [_without_empty(one.written()) for one in placement.tolerations]
    if placement.priority_class_name:
        found["priorityClassName"] = placement.priority_class_name
    return found


def pull_secrets_of(image: Image) -> list[Manifest]:
    """Each name once: the API server makes a pod with two of one name, and refuses to apply it ever after."""
    return [{"name": name} for name in dict.fromkeys(image.pull_secrets)]


def resources_of(resources: Resources) -> dict[str, Any]:
    """As Kubernetes writes them."""
    return {
        name: {key: str(value) for key, value in part.items()}
        for name, part in (("requests", resources.requests), ("limits", resources.limits))
        if part
    }


def _pod(cluster: Cluster, inputs: Inputs, workload: Workload) -> Manifest:
    names = Names.of(cluster)
    spec = cluster.spec
    stop_ms = _stop_timeout_ms(_plain(cluster, workload).get("BMQ_STOP_TIMEOUT_MS", ""))
    volumes: list[Manifest] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": CONFIG_VOLUME, "configMap": {"name": workload.config_map}},
    ]
    mounts: list[Manifest] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": CONFIG_VOLUME, "mountPath": "/etc/bmq", "readOnly": True},
    ]
    if workload.advertised_config_map:
        volumes.append({"name": "advertised", "configMap": {"name": workload.advertised_config_map, "optional": True}})
        mounts.append({"name": "advertised", "mountPath": ADVERTISED_PATH, "readOnly": True})
    pod: Manifest = {
        "serviceAccountName": names.cluster,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": -(-stop_ms // 1000) + GRACE_S,
        "securityContext": pod_security(),
        **placement_of(workload.placement, selector_of(names.cluster, workload.component, workload.lane)),
        "containers": [
            {
                "name": CONTAINER,
                "image": image_of(cluster, inputs.default_image),
                "imagePullPolicy": spec.image.pull_policy,
                "args": ["server", "--config", "/etc/bmq/server.yaml"],
                "env": _env(cluster, inputs, workload),
                "ports": _ports(workload),
                "resources": resources_of(workload.resources),
                "securityContext": container_security(),
                # What a node says before it ends is in the pod's status, and the operator quotes it.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "startupProbe": _probe("/livez", period_s=2, failures=60),
                **_goodbye(workload),
                "livenessProbe": _probe("/livez", period_s=10, failures=6),
                "readinessProbe": _probe("/readyz", period_s=2, failures=2),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if secrets := pull_secrets_of(spec.image):
        pod["imagePullSecrets"] = secrets
    return pod


def _goodbye(workload: Workload) -> Manifest:
    """A proxy goes on until Services lead nobody to it any more: who connects to the IP of a pod that is gone gets no
    answer, and waits for 30 s.
    """
    if workload.component != "proxy":
        return {}
    return {"lifecycle": {"preStop": {"exec": {"command": ["sleep", str(GOODBYE_S)]}}}}


def _probe(path: str, *, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "admin"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _ports(workload: Workload) -> list[Manifest]:
    names = [name for name in PROXY_PORTS if name != "kafka" or workload.component == "proxy"]
    own = [_port(PROXY_PORTS[name], name) for name in names]
    return own + [_port(number, listener_port_name(name)) for name, number in workload.ports.items()]


def _port(number: int, name: str) -> Manifest:
    return ({"name": name} if name else {}) | {"containerPort": number, "protocol": "TCP"}


def _stop_timeout_ms(told: str) -> int:
    """As nodes read it, which take a number in all ways to write one (120_000, +120000). What they would refuse, which
    they say themselves when they start, is not acted on; a variable in its place is read by them alone, and so may be
    the most."""
    if "$(" in told:
        return STOP_TIMEOUT_MS_MAX
    try:
        found = _NUMBER.validate_python(told)
    except ValidationError:
        return STOP_TIMEOUT_MS
    return min(found, STOP_TIMEOUT_MS_MAX) if found >= 0 else STOP_TIMEOUT_MS


def _plain(cluster: Cluster, workload: Workload) -> dict[str, str]:
    """What people, and a role, say by variables: later ones go before earlier ones of the same name."""
    return {one.name: one.value for one in workload.placement.env} | cluster.spec.settings.env | dict(workload.env)


def _env(cluster: Cluster, inputs: Inputs, workload: Workload) -> list[Manifest]:
    """What only the operator may say is last."""
    plain = _plain(cluster, workload)
    # By its IP: a name may lead to the pod's predecessor for as long as a DNS server remembers it.
    plain |= {ADVERTISED_INTERNAL: f"{'[$(POD_IP)]' if inputs.ipv6 else '$(POD_IP)'}:{INTERNAL_PORT}"}
    plain |= {"BMQ_ROLES": workload.component, "BMQ_NODE_ID_BASE": str(workload.node_ids_from)}
    keys = (CLUSTER_SECRET, CLUSTER_SECRETS_ACCEPTED, ADMIN_TOKEN, ADMIN_TOKENS_ACCEPTED)
    secret: dict[str, Manifest] = {
        **{
            variable: _from_secret(inputs.keys_name, key, optional=variable.endswith("_ACCEPTED"))
            for variable, key in zip(KEY_VARIABLES, keys, strict=True)
        },
        **_keys_to_store(cluster),
        "BMQ_RACK": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{ZONE_LABEL}']"}},
    }
    if "BMQ_RACK" in plain:
        del secret["BMQ_RACK"]
    return [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        *({"name": name, "value": value} for name, value in plain.items() if name not in secret and name != "POD_IP"),
        *({"name": name, "valueFrom": source} for name, source in secret.items()),
    ]


def _keys_to_store(cluster: Cluster) -> dict[str, Manifest]:
    store = cluster.spec.store
    if store.minio.embedded:
        secret = Names.of(cluster).minio
        return {
            "AWS_ACCESS_KEY_ID": _from_secret(secret, "user"),
            "AWS_SECRET_ACCESS_KEY": _from_secret(secret, "password"),
        }
    return {one.variable: _from_secret(store.credentials.secret_name, one.key) for one in store_keys(store)}


def _from_secret(name: str, key: str, *, optional: bool = False) -> Manifest:
    return {"secretKeyRef": {"name": name, "key": key} | ({"optional": True} if optional else {})}


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one not in ("", {}, [])}
