"""The native sidecar of a pod: its container and the volumes that it brings. Pure.

It satisfies the restricted Pod Security Standard, whatever the pod's own context is, and has no token of the pod's
ServiceAccount.
"""

from dataclasses import dataclass
from typing import Any, Final

from bmq_operator.clusters.names import ADMIN_PORT, KAFKA_PORT, Names
from bmq_operator.clusters.pods import USER, container_security
from bmq_operator.databus.channel_sets import BOOTSTRAP, CHANNELS, ChannelSet
from bmq_operator.databus.credentials import TOKEN, credential_of
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.kube import Manifest

CONTAINER: Final = "bmq-databus"
PORT: Final = 8600
METRICS_PORT: Final = 8601
"""At the pod's address, where it serves health and metrics alone."""
GRPC_PORT: Final = 8602
METRICS_PORT_NAME: Final = "databus-metrics"
ENDS_S: Final = 5
"""What is left of a pod's time to end once its sidecar has given up to empty its spools."""
CHANNELS_VOLUME: Final = "bmq-databus-channels"
SPOOL_VOLUME: Final = "bmq-databus-spool"
TOKENS_VOLUME: Final = "bmq-databus-tokens"
EMPTY_VOLUME: Final = "bmq-databus-empty"
CONTROL_PLANE_VOLUME: Final = "bmq-databus-control-plane"
VOLUMES: Final = (CHANNELS_VOLUME, SPOOL_VOLUME, TOKENS_VOLUME, EMPTY_VOLUME, CONTROL_PLANE_VOLUME)
SOCKET: Final = "databus.sock"
GRPC_SOCKET: Final = "databus-grpc.sock"
TOKENS_KEY: Final = "tokens"
_CHANNELS_PATH: Final = "/etc/bmq-databus"
_CONTROL_PLANE_PATH: Final = "/etc/bmq-databus-control-plane"
_TOKENS_PATH: Final = "/etc/bmq-databus-tokens"
_SPOOL_PATH: Final = "/var/lib/bmq-databus"
_SOCKET_PATH: Final = "/run/bmq-databus"
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_POD_IP: Final = "BMQ_POD_IP"
_RESOURCES: Final = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sidecar has its spools, and its socket if it has one: names of the pod's volumes."""

    spool_volume: str = ""
    """Empty: one that it brings, which goes with the pod."""
    spool_bytes: int
    """How large that one may become; 0: nobody says."""
    outlives_pod: bool = False
    """What is in the spools stays for another pod."""
    socket_volume: str = ""
    grpc: bool = False
    """Whether it is called by gRPC, too."""


def container_of(
    channel_set: ChannelSet, place: Place, *, namespace: str, grace_s: int, image: str, settings: DatabusSettings
) -> Manifest:
    """The init container that runs as long as the pod does. `grace_s`: how long the pod may take to end."""
    empty_s = 0 if place.outlives_pod else max(1, grace_s - ENDS_S)
    arguments = ["databus", "serve", "--listen", f"127.0.0.1:{PORT}"]
    arguments += ["--spool", f"{_SPOOL_PATH}/spool", "--empty-spools-seconds", str(empty_s)]
    if channel_set.control_plane is not None:
        names = Names(channel_set.control_plane.name, channel_set.control_plane.namespace or namespace)
        arguments += ["--control-plane", f"http://{names.host(names.admin)}:{ADMIN_PORT}"]
        arguments += ["--control-plane-token-file", f"{_CONTROL_PLANE_PATH}/{TOKEN}"]
        arguments += ["--spool-bytes", str(place.spool_bytes)] if place.spool_bytes else []
        channels = {"name": CONTROL_PLANE_VOLUME, "mountPath": _CONTROL_PLANE_PATH, "readOnly": True}
    else:
        arguments += ["--channels", f"{_CHANNELS_PATH}/{CHANNELS}"]
        channels = {"name": CHANNELS_VOLUME, "mountPath": _CHANNELS_PATH, "readOnly": True}
    watched: Manifest = {}
    env = [_bootstrap(channel_set, namespace), {"name": "BMQ_LOG_FORMAT", "value": "json"}]
    if settings.metrics:
        # In brackets it is an address of either family.
        arguments += ["--health-listen", f"[$({_POD_IP})]:{METRICS_PORT}"]
        env.append({"name": _POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
        watched["ports"] = [{"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT, "protocol": "TCP"}]
    mounts = [
        channels,
        {"name": place.spool_volume or SPOOL_VOLUME, "mountPath": _SPOOL_PATH},
        # Where a token would be, Kubernetes mounts none over what is mounted there already.
        {"name": EMPTY_VOLUME, "mountPath": _TOKEN_PATH, "readOnly": True},
    ]
    if place.socket_volume:
        arguments += ["--unix", f"{_SOCKET_PATH}/{SOCKET}"]
        mounts.append({"name": place.socket_volume, "mountPath": _SOCKET_PATH})
    if place.grpc:
        arguments += ["--grpc-listen", f"127.0.0.1:{GRPC_PORT}"]
        arguments += ["--grpc-unix", f"{_SOCKET_PATH}/{GRPC_SOCKET}"] if place.socket_volume else []
    if channel_set.tokens_secret:
        arguments += ["--token-file", f"{_TOKENS_PATH}/{TOKENS_KEY}"]
        mounts.append({"name": TOKENS_VOLUME, "mountPath": _TOKENS_PATH, "readOnly": True})
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "restartPolicy": "Always",
        "command": ["bmq"],
        "args": arguments,
        "env": env,
        **watched,
        "resources": settings.resources or _RESOURCES,
        "securityContext": {
            **container_security(),
            "privileged": False,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "startupProbe": _probe("/livez", period_s=1, failures=60),
        "livenessProbe": _probe("/livez", period_s=10, failures=3),
        "readinessProbe": _probe("/readyz", period_s=5, failures=3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def volumes_of(channel_set: ChannelSet, place: Place, *, namespace: str) -> list[Manifest]:
    """What the pod gets beside its own volumes."""
    found: list[Manifest] = [{"name": EMPTY_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}}]
    if channel_set.control_plane is not None:
        plane = channel_set.control_plane
        name = credential_of(plane.namespace or namespace, plane.name)
        secret: Manifest = {"secretName": name, "items": [{"key": TOKEN, "path": TOKEN}]}
        found.insert(0, {"name": CONTROL_PLANE_VOLUME, "secret": secret})
    else:
        channels = {"name": channel_set.name, "items": [{"key": CHANNELS, "path": CHANNELS}]}
        found.insert(0, {"name": CHANNELS_VOLUME, "configMap": channels})
    if not place.spool_volume:
        found.append({"name": SPOOL_VOLUME, "emptyDir": {"sizeLimit": str(place.spool_bytes)}})
    if channel_set.tokens_secret:
        items = [{"key": TOKENS_KEY, "path": TOKENS_KEY}]
        found.append({"name": TOKENS_VOLUME, "secret": {"secretName": channel_set.tokens_secret, "items": items}})
    return found


def _bootstrap(channel_set: ChannelSet, namespace: str) -> dict[str, Any]:
    variable = "BMQ_DATABUS_BOOTSTRAP_SERVERS"
    if channel_set.cluster is None:
        reference = {"name": channel_set.name, "key": BOOTSTRAP}
        return {"name": variable, "valueFrom": {"configMapKeyRef": reference}}
    names = Names(channel_set.cluster.name, channel_set.cluster.namespace or namespace)
    return {"name": variable, "value": f"{names.host(names.bootstrap)}:{KAFKA_PORT}"}


def _probe(path: str, *, period_s: int, failures: int) -> dict[str, Any]:
    """From within: the kubelet does not reach the pod's loopback. bash is in the image, and takes milliseconds."""
    asked = f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{PORT} && printf '{asked}' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"
    )
    return {
        "exec": {"command": ["bash", "-c", script]},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
