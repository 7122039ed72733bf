"""What a node says of itself and of the cluster as it knows it: without the framework of the other pages, which most
nodes never need.
"""

import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from bmq.config.topic_config import pool_of
from bmq.metadata.image import Image
from bmq.values import NO_NODE
from bmq_controller.api.sources import ApiSources
from bmq_controller.machine.lanes import POOLS_OF_LANES

HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(r"secret|password|token(?!_file)|credential|private|(access|api).?key", re.IGNORECASE)


def cluster_document(sources: ApiSources) -> dict[str, Any]:
    """What `/v1/cluster` answers: the cluster as this node knows it, with the fields of ClusterView."""
    image = sources.image
    return {
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "controller_epoch": image.controller_epoch,
        "metadata_position": image.position,
        "answered_by": sources.node_id,
        "nodes": [
            {
                "node_id": node.node_id,
                "roles": list(node.roles),
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
            }
            for _, node in sorted(image.nodes.items())
        ],
        "topics": len(image.topics),
        "partitions": sum(image.owned_counts.values()),
        "partitions_unowned": image.owned_counts.get(NO_NODE, 0),
        "partitions_unowned_of_lanes": unowned_of_lanes(image),
        "partitions_moving": len(image.moving),
        "cordoned": sorted(image.cordoned),
        "features": dict(image.features),
    }


def unowned_of_lanes(image: Image) -> int:
    """Partitions without an owner that only brokers of a lane's own may have: nothing that the base's brokers do
    changes it.
    """
    if not image.owned_counts.get(NO_NODE, 0):
        return 0
    of_lanes = (topic for topic in image.topics.values() if pool_of(topic.configs).startswith(POOLS_OF_LANES))
    return sum(meta.node_id == NO_NODE for topic in of_lanes for meta in topic.partitions)


def self_document(sources: ApiSources) -> dict[str, Any]:
    """What `/v1/self` answers: this node and its configuration without secrets, with the fields of SelfView."""
    return {
        "node_id": sources.node_id,
        "version": _bmq_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started_ms": sources.started_ms,
        "uptime_s": max(0, sources.clock.now_ms() - sources.started_ms) / 1000,
        "leads": sources.leading() is not None,
        "metadata_position": sources.image.position,
        "configuration": without_secrets(sources.describe()),
    }


OWN_PAGES: Final[Mapping[str, Callable[[ApiSources], dict[str, Any]]]] = {
    "/v1/cluster": cluster_document,
    "/v1/self": self_document,
}
"""By path."""


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with what looks like a secret by its name hidden, nested mappings too."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found[name] = without_secrets(value)
        else:
            found[name] = HIDDEN if _SECRET.search(str(name)) and value not in ("", None) else value
    return found


def _bmq_version() -> str:
    try:
        return version("bmq-core")
    except PackageNotFoundError:
        return "unknown"
