"""What is kept of the objects that carry a Cluster's label, as far as a look needs it: they are many, and anybody may
have written them. Pure.
"""

from typing import Final

from bmq_operator.answers import fields_of, part_of
from bmq_operator.clusters.keys import ADMIN_TOKEN_VARIABLE
from bmq_operator.clusters.names import ADVERTISED_HASH, CLUSTER_LABEL, COMPONENT_LABEL, LANE_LABEL
from bmq_operator.clusters.nodes import REVISION_LABEL, ROOM
from bmq_operator.clusters.pods import CONFIG_VOLUME
from bmq_operator.kube import Manifest

_LABELS: Final = (CLUSTER_LABEL, COMPONENT_LABEL, LANE_LABEL, REVISION_LABEL)
_CONTAINER: Final = ("name", "image", "resources")
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_OF_CONTAINER: Final = ("image", "state", "lastState", "restartCount")


def kept_of_orphan(stateful_set: Manifest) -> Manifest:
    """One that nobody owns: which it is, and of what."""
    return _known(stateful_set) | {"metadata": _meta(stateful_set)}


def kept_of_pod(pod: Manifest) -> Manifest:
    """Whose it is, how it does, where it runs and may run, and what it takes keys and configuration from."""
    part, spec, status = part_of(pod, spec=("nodeName", *ROOM)), pod.get("spec") or {}, pod.get("status") or {}
    volumes = [one for one in spec.get("volumes") or () if one.get("name") == CONFIG_VOLUME]
    containers = [_container(one) for one in spec.get("containers") or ()]
    more = {"containers": containers, "volumes": volumes}
    said = {
        "conditions": [fields_of(one, _CONDITION) for one in status.get("conditions") or ()],
        "containerStatuses": [fields_of(one, _OF_CONTAINER) for one in status.get("containerStatuses") or ()],
    }
    return _known(pod) | {"metadata": _meta(pod), "spec": part["spec"] | more, "status": said}


def _container(container: Manifest) -> Manifest:
    env = [one for one in container.get("env") or () if one.get("name") == ADMIN_TOKEN_VARIABLE]
    return fields_of(container, _CONTAINER) | {"env": env}


def _known(one: Manifest) -> Manifest:
    return fields_of(one, ("apiVersion", "kind"))


def _meta(one: Manifest) -> Manifest:
    meta = one["metadata"]
    which: Manifest = part_of(one)["metadata"]
    return which | {
        "labels": fields_of(meta.get("labels"), _LABELS),
        "annotations": fields_of(meta.get("annotations"), (ADVERTISED_HASH,)),
        "ownerReferences": [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")][:1],
    }
