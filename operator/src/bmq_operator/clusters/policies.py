"""NetworkPolicies: who may connect to the pods. Pure.

What Kafka clients reach is open to all; addresses between nodes are open to the Cluster's own pods
alone, MinIO besides to those that write tables from its topics, the admin address to
sidecars in namespaces whose resources the Cluster takes.
"""

from collections.abc import Iterator
from typing import Final

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.listener_ports import listener_port_name
from bmq_operator.clusters.names import (
    ADMIN_PORT,
    CLUSTER_LABEL,
    COMPONENT_LABEL,
    INTERNAL_PORT,
    KAFKA_PORT,
    MINIO_PORT,
    SIDECAR_LABEL,
    TABLES_LABEL,
    Names,
    labels_of,
)
from bmq_operator.hearing import ALL
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster

NAMESPACE_NAME = "kubernetes.io/metadata.name"
_SIDECARS: Final[Manifest] = {"podSelector": {"matchLabels": {SIDECAR_LABEL: "true"}}}
"""Pods with a sidecar of Databus, which may follow the channels."""


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
    whole = [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: one}}} for one in namespaces if one]
    others = [one for one in cluster.spec.topics_from.namespaces if one not in namespaces]
    return {"from": [*whole, *({**_in_namespace(one), **_SIDECARS} for one in others)]}


def _in_namespace(name: str) -> Manifest:
    return {"namespaceSelector": {} if name == ALL else {"matchLabels": {NAMESPACE_NAME: name}}}


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
