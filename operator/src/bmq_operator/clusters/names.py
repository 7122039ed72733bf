"""Names, labels, ports and node ids of a Cluster's objects (decision 22). Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from bmq.storage.binary import CLUSTER_ID_SIZE_BYTES
from bmq_resources.cluster import Cluster

Component = Literal["controller", "broker", "proxy", "minio"]

CLUSTER_LABEL: Final = "bmq.io/cluster"
LANE_LABEL: Final = "bmq.io/lane"
LISTENER_LABEL: Final = "bmq.io/listener"
OF_LANE: Final = "bmq.io/of-lane"
OF_NAMESPACE: Final = "bmq.io/of-namespace"
"""On what a lane has: its Lane's name and namespace."""
TABLES_LABEL: Final = "bmq.io/tables-of"
"""On the pods that write tables from topics: their Cluster. They are none of its nodes."""
SIDECAR_LABEL: Final = "bmq.io/databus-injected"
"""On the pods with a sidecar of Databus, whoever's they are."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
CONFIG_HASH: Final = "bmq.io/config-hash"
ADVERTISED_HASH: Final = "bmq.io/advertised-hash"

KAFKA_PORT: Final = 9092
INTERNAL_PORT: Final = 9190
ADMIN_PORT: Final = 9080
MINIO_PORT: Final = 9000
PROXY_PORTS: Final[Mapping[str, int]] = {"kafka": KAFKA_PORT, "internal": INTERNAL_PORT, "admin": ADMIN_PORT}
"""A proxy's own, by their names in its pod."""

NODE_IDS_FROM: Final[dict[Component, int]] = {"controller": 1, "broker": 1_000, "proxy": 10_000}
ROLES: Final[tuple[Component, ...]] = ("controller", "broker", "proxy")

DEFAULT_ACCOUNT: Final = "default"
"""Kubernetes makes a ServiceAccount of this name in each namespace, and anew where somebody deletes it."""
LABEL_LENGTH_MAX: Final = 63
REVISION_LENGTH: Final = 11
"""What Kubernetes appends to a StatefulSet's name in a label of its pods."""
_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one Cluster's objects."""

    cluster: str
    namespace: str

    @classmethod
    def of(cls, cluster: Cluster) -> "Names":
        return cls(cluster.metadata.name, cluster.metadata.namespace)

    def role(self, component: Component) -> str:
        """A StatefulSet; also its PodDisruptionBudget."""
        return f"{self.cluster}-{component}"

    @property
    def nodes(self) -> str:
        return f"{self.cluster}-nodes"

    @property
    def bootstrap(self) -> str:
        return f"{self.cluster}-bootstrap"

    @property
    def admin(self) -> str:
        return f"{self.cluster}-admin"

    @property
    def config(self) -> str:
        """What the names of the ConfigMaps with `server.yaml` begin with. Operators before had one of this very name,
        and changed it.
        """
        return f"{self.cluster}-config"

    def is_config(self, name: str) -> bool:
        """Whether a ConfigMap of this name is one of those."""
        return name == self.config or name.startswith(f"{self.config}-")

    @property
    def auth(self) -> str:
        """The Secret in which people find, and replace, the secret between nodes and the admin API's token."""
        return f"{self.cluster}-auth"

    @property
    def keys(self) -> str:
        """What the names of the Secrets that nodes take both from begin with."""
        return f"{self.cluster}-keys-"

    @property
    def minio(self) -> str:
        return f"{self.cluster}-minio"

    @property
    def minio_claim(self) -> str:
        """The volume of the embedded MinIO."""
        return f"data-{self.minio}-0"

    @property
    def advertised(self) -> str:
        """The ConfigMap with the addresses of listeners that are known only once Kubernetes or the cloud gave them."""
        return f"{self.cluster}-advertised"

    @property
    def probe(self) -> str:
        """The StatefulSet that measures what clients see."""
        return f"{self.cluster}-probe"

    @property
    def erase(self) -> str:
        """The Job that deletes the records."""
        return f"{self.cluster}-erase"

    def inside(self, which: str | int) -> str:
        """The Service of one proxy for clients inside; `internal` is no other listener's name."""
        return self.listener("internal", which)

    def listener(self, name: str, which: str | int) -> str:
        """A Service of a listener: `bootstrap`, or a proxy's number."""
        return f"{self.cluster}-{name}-{which}"

    def host(self, service: str) -> str:
        """A Service's name within Kubernetes."""
        return f"{service}.{self.namespace}.svc"


def labels_of(cluster: str, component: str = "") -> dict[str, str]:
    """The labels of an object of a Cluster."""
    common = {
        NAME_LABEL: "bmq",
        INSTANCE_LABEL: cluster,
        MANAGED_LABEL: "bmq-operator",
        CLUSTER_LABEL: cluster,
    }
    return common | ({COMPONENT_LABEL: component} if component else {})


def selector_of(cluster: str, component: str, lane: str = "") -> dict[str, str]:
    """What selects the pods of a role. Those of the base have an empty lane, so that nothing of the base selects a
    lane's.
    """
    return {CLUSTER_LABEL: cluster, COMPONENT_LABEL: component, LANE_LABEL: lane}


def minio_selector(names: Names) -> dict[str, str]:
    """What selects the embedded MinIO's pod. Kubernetes gives its claim the same labels."""
    return selector_of(names.cluster, "minio")


def claim_is_of_minio(claim: Mapping[str, Any], names: Names) -> bool:
    """Whether a volume claim is the embedded MinIO's of a Cluster of this name, an earlier one's too."""
    labels: Mapping[str, str] = claim["metadata"].get("labels", {})
    return minio_selector(names).items() <= labels.items()


def why_unusable(cluster: Cluster) -> str:
    """Why the name of this Cluster cannot be used for its objects, with the remedy; empty: it can."""
    names = Names.of(cluster)
    if not _SERVICE_NAME.fullmatch(names.cluster):
        return (
            f"metadata.name {names.cluster!r} is no name for Services: use lower-case letters, digits and -, "
            "beginning with a letter"
        )
    if names.cluster == DEFAULT_ACCOUNT:
        return (
            f"metadata.name {names.cluster!r} is that of the ServiceAccount that every namespace has: create the "
            "Cluster with another name"
        )
    longest = max((names.listener(one.name, "bootstrap") for one in cluster.spec.listeners), key=len, default="")
    needed = max(len(names.role("controller")) + REVISION_LENGTH, len(longest))
    if needed > LABEL_LENGTH_MAX:
        shorter = len(names.cluster) - (needed - LABEL_LENGTH_MAX)
        return (
            f"metadata.name {names.cluster!r} makes names of more than {LABEL_LENGTH_MAX} characters: create "
            f"the Cluster with {shorter} at most"
        )
    if len(cluster.cluster_id) > CLUSTER_ID_SIZE_BYTES:
        text = (
            f"without clusterId the id of this Cluster is {cluster.cluster_id!r}, and nodes take "
            f"{CLUSTER_ID_SIZE_BYTES} characters at most"
        )
        return f"{text}: create the Cluster with a clusterId, as it cannot be added later"
    # A lane's Service is NAME-lane-LANE, and the Cluster's own where its Lane is in another namespace.
    clash = next((one.name for one in cluster.spec.listeners if f"{one.name}-".startswith("lane-")), "")
    return (
        f"listeners: the name {clash!r} would clash with the Services of lanes: choose one that does not begin "
        "with lane-"
        if clash
        else ""
    )
