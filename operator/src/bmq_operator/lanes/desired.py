"""All objects of a Lane, as they are to be: a pure function of the Lane, its Cluster, and how the Cluster's own nodes
run.

They are in the Cluster's namespace, whose Secret, configuration and account they use. Where the Lane is there too, it
owns them; else the Cluster does, and they are deleted by name when the Lane goes.
"""

from dataclasses import dataclass

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import reference
from bmq_operator.clusters.names import (
    CONFIG_HASH,
    KAFKA_PORT,
    LABEL_LENGTH_MAX,
    LANE_LABEL,
    OF_LANE,
    OF_NAMESPACE,
    REVISION_LENGTH,
    Component,
    Names,
    labels_of,
    selector_of,
)
from bmq_operator.clusters.pods import Workload, config_map_of, stateful_set, tells_ipv6
from bmq_operator.kube import Manifest
from bmq_operator.lanes.slots import brokers_from
from bmq_resources.cluster import Cluster
from bmq_resources.lane import Lane, LaneBrokers, LaneProxies


@dataclass(frozen=True, slots=True)
class LaneNames:
    """The names of one Lane's objects."""

    cluster: str
    namespace: str
    lane: str

    @property
    def service(self) -> str:
        """The lane's endpoint."""
        return f"{self.cluster}-lane-{self.lane}"

    def role(self, component: str) -> str:
        """A StatefulSet; also its PodDisruptionBudget."""
        return f"{self.service}-{component}"

    @property
    def bootstrap_servers(self) -> str:
        """What clients within Kubernetes are given."""
        return f"{self.service}.{self.namespace}.svc:{KAFKA_PORT}"


def names_of(cluster: Cluster, lane: Lane) -> LaneNames:
    """The names of the objects of this Lane."""
    return LaneNames(cluster.metadata.name, cluster.metadata.namespace, lane.lane_name)


def why_unusable(names: LaneNames) -> str:
    """Why objects cannot have these names, with the remedy; empty: they can."""
    too_much = len(names.role("broker")) + REVISION_LENGTH - LABEL_LENGTH_MAX
    if too_much <= 0:
        return ""
    longest = len(names.lane) - too_much
    remedy = (
        f"create another Lane with a laneName of at most {longest} characters"
        if longest > 0
        else "use a Cluster with a shorter name"
    )
    return (
        f"the lane {names.lane} makes names of more than {LABEL_LENGTH_MAX} characters in the Cluster "
        f"{names.cluster}: {remedy}"
    )


def desired(lane: Lane, cluster: Cluster, base: Manifest, *, node_ids_from: int, with_brokers: bool) -> list[Manifest]:
    """`base` is the StatefulSet of the Cluster's proxies: a lane's nodes start anew when those do, and run the same
    image.
    """
    names = names_of(cluster, lane)
    found = [
        _service(names),
        _nodes(
            lane, cluster, base, names=names, component="proxy", part=lane.spec.proxies, node_ids_from=node_ids_from
        ),
        _budget(names, "proxy"),
    ]
    if with_brokers:
        from_here = brokers_from(node_ids_from)
        found.append(
            _nodes(
                lane, cluster, base, names=names, component="broker", part=lane.spec.brokers, node_ids_from=from_here
            )
        )
        found.append(_budget(names, "broker"))
    return [_marked(lane, cluster, manifest) for manifest in found]


def all_names(names: LaneNames) -> list[tuple[str, str]]:
    """Kinds and names of everything that a Lane may have, pods first."""
    return [
        (kind, names.role(role)) for kind in ("StatefulSet", "PodDisruptionBudget") for role in ("proxy", "broker")
    ] + [("Service", names.service)]


def _nodes(
    lane: Lane,
    cluster: Cluster,
    base: Manifest,
    *,
    names: LaneNames,
    component: Component,
    part: LaneProxies | LaneBrokers,
    node_ids_from: int,
) -> Manifest:
    template = base["spec"]["template"]
    own = {"BMQ_LANE": names.lane} if component == "proxy" else {"BMQ_POOL": f"lane-{names.lane}"}
    workload = Workload(
        name=names.role(component),
        component=component,
        replicas=part.replicas,
        node_ids_from=node_ids_from,
        resources=part.resources,
        placement=part.placement,
        config_hash=template["metadata"].get("annotations", {}).get(CONFIG_HASH, ""),
        config_map=config_map_of(template["spec"]),
        lane=names.lane,
        env=own,
    )
    # The lane's nodes talk to the base's: with the keys that those are to have, and by addresses of the same family.
    keys_name, _ = reference(template["spec"])
    image, ipv6 = template["spec"]["containers"][0]["image"], tells_ipv6(template["spec"])
    inputs = Inputs(default_image=image, cluster_secret="", admin_token="", keys_name=keys_name, ipv6=ipv6)
    return stateful_set(cluster, inputs, workload)


def _service(names: LaneNames) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": names.service, "labels": labels_of(names.cluster, "proxy") | {LANE_LABEL: names.lane}},
        "spec": {
            "selector": selector_of(names.cluster, "proxy", names.lane),
            "ports": [{"name": "kafka", "port": KAFKA_PORT, "targetPort": "kafka", "protocol": "TCP"}],
        },
    }


def _budget(names: LaneNames, component: Component) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": names.role(component),
            "labels": labels_of(names.cluster, component) | {LANE_LABEL: names.lane},
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector_of(names.cluster, component, names.lane)},
        },
    }


def _marked(lane: Lane, cluster: Cluster, manifest: Manifest) -> Manifest:
    """In the Cluster's namespace, with an owner, and with the Lane that it is of, which may be in another namespace."""
    same = lane.metadata.namespace == cluster.metadata.namespace
    owner: Lane | Cluster = lane if same else cluster
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    annotations = {OF_LANE: lane.metadata.name, OF_NAMESPACE: lane.metadata.namespace}
    meta = manifest["metadata"] | {
        "namespace": Names.of(cluster).namespace,
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    return manifest | {"metadata": meta}
