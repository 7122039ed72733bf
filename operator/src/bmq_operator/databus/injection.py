"""What becomes of a pod that asks for a sidecar: operations of a JSON patch (RFC 6902), or why not. Pure.

Nothing of the pod that was there is changed, but for the annotation that says why it has none. A pod that has a
sidecar stays as it is.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bmq_operator.clusters.names import SIDECAR_LABEL
from bmq_operator.databus.channel_sets import ChannelSet
from bmq_operator.databus.sidecar import (
    CONTAINER,
    GRPC_PORT,
    METRICS_PORT,
    PORT,
    VOLUMES,
    Place,
    container_of,
    volumes_of,
)
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.kube import Manifest

CHANNEL_SET: Final = "bmq.io/databus"
SPOOL: Final = "bmq.io/databus-spool"
SPOOL_VOLUME: Final = "bmq.io/databus-spool-volume"
SOCKET_VOLUME: Final = "bmq.io/databus-socket-volume"
GRPC: Final = "bmq.io/databus-grpc"
GRPC_VALUES: Final = ("enabled", "disabled")
CLUSTER: Final = "bmq.io/databus-cluster"
"""In the place of a channel set: the Cluster whose channels are followed, and that they are written to."""
ANNOTATIONS: Final = frozenset((CHANNEL_SET, CLUSTER, SPOOL, SPOOL_VOLUME, SOCKET_VOLUME, GRPC))
REFUSED: Final = "bmq.io/databus-refused"
"""Why a pod that asked for a sidecar has none: who made it is often a controller, to whom nobody listens."""
INJECTED: Final = SIDECAR_LABEL
SPOOL_BYTES: Final = 1 << 30
SPOOL_BYTES_FOLLOWING: Final = 4 << 30
"""Where nobody knows how many channels there will be."""
GRACE_S: Final = 30
"""Kubernetes' own."""
GRACE_S_MIN: Final = 15
WHY_MAX: Final = 1_000
_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{one}i": 1 << (10 * power) for power, one in enumerate("KMGT", 1)
}
_QUANTITY: Final = re.compile(r"([0-9]{1,15})(k|M|G|T|Ki|Mi|Gi|Ti)?")
_READ_ONLY: Final = ("configMap", "secret", "projected", "downwardAPI", "image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """`refused`: why there is no sidecar; empty: there is one, or none was asked for."""

    patch: tuple[Manifest, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: str = ""


class _Refused(Exception):
    """Why a pod cannot have a sidecar, with the remedy."""


def asked_for(pod: Manifest) -> tuple[str, str] | None:
    """What a pod without a sidecar names, by which annotation: CHANNEL_SET, or CLUSTER; None: it is to be left as it
    is.
    """
    found = _annotations(pod)
    asked = next((one for one in (CHANNEL_SET, CLUSTER) if one in found), None)
    return None if asked is None or _has_one(pod) else (asked, found[asked])


def injected(
    pod: Manifest, channel_set: ChannelSet, *, namespace: str, image: str, settings: DatabusSettings
) -> Injection:
    """A pod with the annotation, in this namespace, gets its sidecar."""
    if asked_for(pod) is None:
        return Injection()
    try:
        grpc = _has_grpc(pod)
        ports = [PORT, *([METRICS_PORT] if settings.metrics else ()), *([GRPC_PORT] if grpc else ())]
        if why := _why_not(pod, ports=ports):
            return refused(pod, why)
        place = replace(_place(pod, channel_set), grpc=grpc)
    except _Refused as error:
        return refused(pod, str(error))
    spec = pod["spec"]
    grace_s = spec.get("terminationGracePeriodSeconds")
    container = container_of(
        channel_set,
        place,
        namespace=namespace,
        grace_s=GRACE_S if grace_s is None else grace_s,
        image=image,
        settings=settings,
    )
    patch = [_label(pod)]
    if REFUSED in _annotations(pod):
        patch.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(REFUSED)}"})
    if spec.get("initContainers"):
        # Before all others, so that they may write, too.
        patch.append({"op": "add", "path": "/spec/initContainers/0", "value": container})
    else:
        patch.append({"op": "add", "path": "/spec/initContainers", "value": [container]})
    added = volumes_of(channel_set, place, namespace=namespace)
    if spec.get("volumes"):
        patch += [{"op": "add", "path": "/spec/volumes/-", "value": one} for one in added]
    else:
        patch.append({"op": "add", "path": "/spec/volumes", "value": added})
    return Injection(patch=tuple(patch), warnings=tuple(_doubts(pod, channel_set, place)))


def refused(pod: Manifest, why: str) -> Injection:
    """The pod runs without one, and says why."""
    text = f"no sidecar of Databus: {why}"[:WHY_MAX]
    # It has annotations, else it would not have asked.
    note = {"op": "add", "path": f"/metadata/annotations/{_escaped(REFUSED)}", "value": text}
    return Injection(patch=(note,), warnings=(text,), refused=why)


def _has_one(pod: Manifest) -> bool:
    there = pod.get("spec", {}).get("initContainers") or ()
    return any(one.get("name") == CONTAINER and one.get("restartPolicy") == "Always" for one in there)


def _why_not(pod: Manifest, *, ports: Collection[int]) -> str:
    """Empty: it can have one, as far as its containers go."""
    spec = pod["spec"]
    if {CHANNEL_SET, CLUSTER} <= _annotations(pod).keys():
        return f"{CHANNEL_SET} and {CLUSTER}: its channels come from one of them, leave one out"
    if unknown := sorted(
        one for one in _annotations(pod) if one.startswith(CHANNEL_SET) and one not in {*ANNOTATIONS, REFUSED}
    ):
        return f"{unknown[0]} is no annotation of Databus': there are {', '.join(sorted(ANNOTATIONS))}"
    if spec.get("hostNetwork"):
        return "hostNetwork: the sidecar would listen on the node's loopback, for all of its pods: leave it out"
    if (spec.get("os") or {}).get("name") == "windows":
        return "os.name: the sidecar runs on Linux alone"
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if any(one.get("name") == CONTAINER for one in containers):
        return f"a container of the pod is called {CONTAINER}: give it another name"
    taken = next((one["name"] for one in spec.get("volumes") or () if one.get("name") in VOLUMES), "")
    if taken:
        return f"a volume of the pod is called {taken}: give it another name"
    for one in containers:
        for port in one.get("ports") or ():
            if port.get("containerPort") in ports and port.get("protocol", "TCP") == "TCP":
                taken = port["containerPort"]
                return f"container {one['name']} has port {taken}, which is the sidecar's: choose another one for it"
    return ""


def _has_grpc(pod: Manifest) -> bool:
    """Raises _Refused."""
    said = _annotations(pod).get(GRPC, "disabled")
    if said not in GRPC_VALUES:
        raise _Refused(f"{GRPC}: {said[:60]!r}: write {' or '.join(GRPC_VALUES)}")
    return said == "enabled"


def _place(pod: Manifest, channel_set: ChannelSet) -> Place:
    """Raises _Refused."""
    annotations = _annotations(pod)
    socket_volume, spool_volume = annotations.get(SOCKET_VOLUME, ""), annotations.get(SPOOL_VOLUME, "")
    if SOCKET_VOLUME in annotations:
        _writable(pod, SOCKET_VOLUME, socket_volume)
    needed = channel_set.spool_bytes
    if SPOOL_VOLUME not in annotations:
        usual = SPOOL_BYTES if channel_set.control_plane is None else SPOOL_BYTES_FOLLOWING
        given = _bytes(annotations[SPOOL]) if SPOOL in annotations else max(usual, needed)
        _check_room(given, channel_set, field=SPOOL)
        return Place(spool_bytes=given, socket_volume=socket_volume)
    if SPOOL in annotations:
        raise _Refused(f"{SPOOL} and {SPOOL_VOLUME}: write one of them, as a volume of the pod's own has its own size")
    volume = _writable(pod, SPOOL_VOLUME, spool_volume)
    if (limit := (volume.get("emptyDir") or {}).get("sizeLimit")) is not None and _QUANTITY.fullmatch(str(limit)):
        needed = _bytes(str(limit))
        _check_room(needed, channel_set, field=f"volume {spool_volume}, sizeLimit")
    return Place(
        spool_volume=spool_volume,
        spool_bytes=needed,
        outlives_pod="persistentVolumeClaim" in volume,
        socket_volume=socket_volume,
    )


def _check_room(given: int, channel_set: ChannelSet, *, field: str) -> None:
    """Raises _Refused: Kubernetes ends a pod whose emptyDir is larger, and all that is in it goes."""
    if given < channel_set.spool_bytes:
        raise _Refused(
            f"{field}: the channels of {channel_set.name} may keep {channel_set.spool_bytes} bytes on disk, and of "
            f"{given} Kubernetes would end the pod, and delete them: make it larger, or the channels' spool.maxBytes "
            "smaller"
        )


def _writable(pod: Manifest, annotation: str, name: str) -> Mapping[str, Any]:
    """The pod's volume of this name. Raises _Refused."""
    found = next((one for one in pod["spec"].get("volumes") or () if one.get("name") == name), None)
    if found is None:
        raise _Refused(f"{annotation}: the pod has no volume {name!r}: add it to spec.volumes, or name another one")
    if kind := next((one for one in _READ_ONLY if one in found), ""):
        raise _Refused(f"{annotation}: volume {name} is a {kind}, into which nobody writes: name another one")
    return dict(found)


def _doubts(pod: Manifest, channel_set: ChannelSet, place: Place) -> list[str]:
    """What works, but perhaps not as it is meant."""
    spec = pod["spec"]
    has_group = (spec.get("securityContext") or {}).get("fsGroup") is not None
    grace_s = spec.get("terminationGracePeriodSeconds")
    found = []
    if place.socket_volume and not has_group:
        text = f"{SOCKET_VOLUME}: without securityContext.fsGroup"
        found.append(f"{text} the socket is for the sidecar's own user and group, 10001")
    if place.spool_volume and not has_group:
        text = f"{SPOOL_VOLUME}: without securityContext.fsGroup"
        found.append(f"{text} the sidecar, which is user and group 10001, may not be able to write there")
    accepts = channel_set.spool_bytes or channel_set.control_plane is not None
    if accepts and not place.outlives_pod and grace_s is not None and grace_s < GRACE_S_MIN:
        text = f"terminationGracePeriodSeconds: {grace_s} s are little for what was accepted to reach the cluster"
        found.append(f"{text} before the pod's volume goes: take {GRACE_S}, or a PersistentVolumeClaim")
    return found


def _label(pod: Manifest) -> Manifest:
    if pod["metadata"].get("labels"):
        return {"op": "add", "path": f"/metadata/labels/{_escaped(INJECTED)}", "value": "true"}
    return {"op": "add", "path": "/metadata/labels", "value": {INJECTED: "true"}}


def _annotations(pod: Manifest) -> Mapping[str, str]:
    return pod.get("metadata", {}).get("annotations") or {}


def _bytes(text: str) -> int:
    """Raises _Refused."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise _Refused(f"{SPOOL}: {text[:60]!r} is no size: write 2Gi, for example")
    return int(found[1]) * _UNITS[found[2] or ""]


def _escaped(name: str) -> str:
    """As a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
