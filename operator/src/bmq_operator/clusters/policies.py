"""NetworkPolicies: who may connect to the pods. Pure.

What Kafka clients reach is open to all; addresses between nodes are open to the Cluster's own pods
alone, MinIO besides to those that write tables from its topics.
"""

from collections.abc import Iterator

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.listener_ports import listener_port_name
from bmq_operator.clusters.names import (
    ADMIN_PORT,
    CLUSTER_LABEL,
    COMPONENT_LABEL,
    INTERNAL_PORT,
    KAFKA_PORT,
    MINIO_PORT,
    TABLES_LABEL,
    Names,
    labels_of,
)
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster

NAMESPACE_NAME = "kubernetes.io/metadata.name"


def policies(cluster: Cluster, inputs: Inputs) -> list[Manifest]:
    """All of them; none if they are switched off."""
    if not cluster.spec.network.policies:
        return []
    names = Names.of(cluster)
    own = {"podSelector": {"matchLabels": {CLUSTER_LABEL: names.cluster}}}
    nodes = _policy(
        names,
        names.nodes,
        ["controller", "broker", "proxy", "probe"],
        [
            {"ports": [_port(INTERNAL_PORT)], "from": [own]},
            {"ports": [_port(KAFKA_PORT), *(_port(one) for one in _of_listeners(cluster))]},
            {"ports": [_port(ADMIN_PORT)], **_admin_from(cluster, inputs)},
        ],
    )
    if not cluster.spec.store.minio.embedded:
        return [nodes]
    tables = {"podSelector": {"matchLabels": {TABLES_LABEL: names.cluster}}}
    return [nodes, _policy(names, names.minio, ["minio"], [{"ports": [_port(MINIO_PORT)], "from": [own, tables]}])]


def _admin_from(cluster: Cluster, inputs: Inputs) -> Manifest:
    """An empty list of namespaces lets everybody in."""
    named = cluster.spec.network.admin_from_namespaces
    if not named:
        return {}
    namespaces = dict.fromkeys((*named, cluster.metadata.namespace, inputs.operator_namespace))
    return {"from": [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: one}}} for one in namespaces if one]}


def _policy(names: Names, name: str, components: list[str], ingress: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels_of(names.cluster)},
        "spec": {
            "podSelector": {
                "matchLabels": {CLUSTER_LABEL: names.cluster},
                "matchExpressions": [{"key": COMPONENT_LABEL, "operator": "In", "values": components}],
            },
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _of_listeners(cluster: Cluster) -> Iterator[int | str]:
    """By name, too: who is not replaced yet after a port was changed has the former one."""
    for listener in cluster.spec.listeners:
        yield listener.port
        if name := listener_port_name(listener.name):
            yield name


def _port(which: int | str) -> Manifest:
    return {"port": which, "protocol": "TCP"}
