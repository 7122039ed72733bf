"""What is kept of the objects that carry a Cluster's label, as far as a look needs it: they are many, and anybody may
have written them. Pure.
"""

from collections.abc import Iterable
from typing import Final

from bmq_operator.answers import fields_of, part_of
from bmq_operator.clusters.keys import ADMIN_TOKEN_VARIABLE
from bmq_operator.clusters.names import (
    ADVERTISED_HASH,
    CLUSTER_LABEL,
    COMPONENT_LABEL,
    LANE_LABEL,
    OF_LANE,
    OF_NAMESPACE,
)
from bmq_operator.clusters.nodes import REVISION_LABEL, ROOM
from bmq_operator.clusters.pods import CONFIG_VOLUME, KEY_VARIABLES
from bmq_operator.kube import Manifest

_LABELS: Final = (CLUSTER_LABEL, COMPONENT_LABEL, LANE_LABEL, REVISION_LABEL)
_CONTAINER: Final = ("name", "image", "resources")
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_OF_CONTAINER: Final = ("image", "state", "lastState", "restartCount")
_ANNOTATIONS: Final = (ADVERTISED_HASH, OF_LANE, OF_NAMESPACE)
_SCALED: Final = ("replicas", "updateRevision", "observedGeneration")


def kept_of_orphan(stateful_set: Manifest) -> Manifest:
    """One that nobody owns: which it is, and of what."""
    return _known(stateful_set) | {"metadata": _meta(stateful_set)}


def kept_of_lane(one: Manifest) -> Manifest:
    """An object of a lane that is no pod: which it is, and of what Lane. Of a StatefulSet how many pods it wants and
    has, and what its template takes keys and configuration from.
    """
    spec = one.get("spec") or {}
    if one["kind"] != "StatefulSet":
        return _known(one) | {"metadata": _meta(one), "spec": fields_of(spec, ("ports",))}
    pod_spec = spec["template"]["spec"]
    containers = [_container(container, ("name",), KEY_VARIABLES) for container in pod_spec.get("containers") or ()]
    template = {"metadata": {}, "spec": {"containers": containers, "volumes": _configuration(pod_spec)}}
    return _known(one) | {
        "metadata": _meta(one),
        "spec": fields_of(spec, ("replicas",)) | {"template": template},
        "status": fields_of(one.get("status"), _SCALED),
    }


def kept_of_template(stateful_set: Manifest) -> Manifest:
    """The pods' part of a lane's template: where they may run, and what they take keys and configuration from."""
    return _pod_spec(stateful_set["spec"]["template"], KEY_VARIABLES)


def kept_of_pod(pod: Manifest) -> Manifest:
    """Whose it is, how it does, where it runs and may run, and what it takes keys and configuration from."""
    status = pod.get("status") or {}
    said = {
        "conditions": [fields_of(one, _CONDITION) for one in status.get("conditions") or ()],
        "containerStatuses": [fields_of(one, _OF_CONTAINER) for one in status.get("containerStatuses") or ()],
    }
    spec = _pod_spec(pod, (ADMIN_TOKEN_VARIABLE,), (*_CONTAINER, "ports"))
    return _known(pod) | {"metadata": _meta(pod), "spec": spec, "status": said}


def _pod_spec(pod: Manifest, variables: Iterable[str], container: Iterable[str] = _CONTAINER) -> Manifest:
    spec = pod.get("spec") or {}
    containers = [_container(one, container, variables) for one in spec.get("containers") or ()]
    return fields_of(spec, ("nodeName", *ROOM)) | {"containers": containers, "volumes": _configuration(spec)}


def _configuration(pod_spec: Manifest) -> list[Manifest]:
    return [one for one in pod_spec.get("volumes") or () if one.get("name") == CONFIG_VOLUME]


def _container(container: Manifest, fields: Iterable[str], variables: Iterable[str]) -> Manifest:
    env = [one for one in container.get("env") or () if one.get("name") in variables]
    return fields_of(container, fields) | {"env": env}


def _known(one: Manifest) -> Manifest:
    return fields_of(one, ("apiVersion", "kind"))


def _meta(one: Manifest) -> Manifest:
    meta = one["metadata"]
    which: Manifest = part_of(one)["metadata"]
    return which | {
        "labels": fields_of(meta.get("labels"), _LABELS),
        "annotations": fields_of(meta.get("annotations"), _ANNOTATIONS),
        "ownerReferences": [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")][:1],
    }
