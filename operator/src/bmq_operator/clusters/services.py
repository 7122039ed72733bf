"""The Services of a Cluster: of all pods, for clients inside, of the admin API, and of listeners for clients outside.
Pure.
"""

from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.listener_ports import listener_port_name
from bmq_operator.clusters.names import (
    ADMIN_PORT,
    CLUSTER_LABEL,
    INTERNAL_PORT,
    KAFKA_PORT,
    LISTENER_LABEL,
    Names,
    labels_of,
    selector_of,
)
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster, Listener

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"


def services(cluster: Cluster, inputs: Inputs) -> list[Manifest]:
    """All of them."""
    names = Names.of(cluster)
    return [
        nodes_service(cluster),
        _service(names, names.bootstrap, selector_of(names.cluster, "proxy"), {"kafka": KAFKA_PORT}, component="proxy"),
        _service(
            names, names.admin, selector_of(names.cluster, "controller"), {"admin": ADMIN_PORT}, component="controller"
        ),
        *(_own(names, ordinal) for ordinal in range(proxies_max(cluster))),
        *(service for listener in cluster.spec.listeners for service in _listener(cluster, listener, inputs)),
    ]


def nodes_service(cluster: Cluster) -> Manifest:
    """The one by which nodes find each other, before they are ready, too."""
    names = Names.of(cluster)
    headless = _service(
        names,
        names.nodes,
        {CLUSTER_LABEL: names.cluster},
        {"kafka": KAFKA_PORT, "internal": INTERNAL_PORT, "admin": ADMIN_PORT},
    )
    headless["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return headless


def _own(names: Names, ordinal: int) -> Manifest:
    """A proxy's address for clients inside: name and IP outlive its pods, so that nobody who remembers them is led to a
    pod that is gone.
    """
    own = selector_of(names.cluster, "proxy") | {POD_NAME_LABEL: f"{names.role('proxy')}-{ordinal}"}
    return _service(names, names.inside(ordinal), own, {"kafka": KAFKA_PORT}, component="proxy")


def proxies_max(cluster: Cluster) -> int:
    """How many proxies there may be: each has a Service of its own for each listener."""
    proxies = cluster.spec.proxies
    return proxies.autoscaling.max_replicas if proxies.autoscaling.enabled else proxies.replicas


def of_going(cluster: Cluster, count: int) -> frozenset[str]:
    """Names of Services of proxies beyond those that there may be, as long as there are so many: they stay as they are
    until their proxies are gone."""
    names = Names.of(cluster)
    going = range(proxies_max(cluster), count)
    listeners = [one.name for one in cluster.spec.listeners]
    return frozenset(
        [names.inside(ordinal) for ordinal in going]
        + [names.listener(name, ordinal) for name in listeners for ordinal in going]
    )


def why_too_many(cluster: Cluster, *, node_ports: int) -> str:
    """Why its listeners may not have as many ports of all nodes as they need; empty: they may."""
    listeners, proxies = len(cluster.spec.listeners), proxies_max(cluster)
    needed = listeners * (proxies + 1)
    if needed <= node_ports:
        return ""
    field = "proxies.autoscaling.maxReplicas" if cluster.spec.proxies.autoscaling.enabled else "proxies.replicas"
    return (
        f"listeners: {listeners} of them for up to {proxies} proxies need {needed} ports of all nodes, and a Cluster "
        f"may have {node_ports}: lower {field}, or have allow.nodePorts of bmq's chart raised"
    )


def _listener(cluster: Cluster, listener: Listener, inputs: Inputs) -> list[Manifest]:
    names = Names.of(cluster)
    # By name each proxy is reached at its own port, those too that are not replaced yet after the port was changed.
    by_name = "" if listener.name in inputs.reached_by_number else listener_port_name(listener.name)
    target = by_name or listener.port
    proxies = selector_of(names.cluster, "proxy")
    found = [_outside(names, listener, "bootstrap", proxies, target, node_port=listener.node_port)]
    for ordinal in range(proxies_max(cluster)):
        own = proxies | {POD_NAME_LABEL: f"{names.role('proxy')}-{ordinal}"}
        node_port = listener.node_port + 1 + ordinal if listener.node_port else 0
        found.append(_outside(names, listener, ordinal, own, target, node_port=node_port))
    return found


def _outside(
    names: Names, listener: Listener, which: str | int, selector: dict[str, str], target: str | int, *, node_port: int
) -> Manifest:
    service = _service(
        names, names.listener(listener.name, which), selector, {"kafka": listener.port}, component="proxy"
    )
    service["metadata"]["labels"][LISTENER_LABEL] = listener.name
    if listener.annotations:
        service["metadata"]["annotations"] = dict(listener.annotations)
    spec = service["spec"]
    spec["type"] = listener.type
    spec["ports"][0]["targetPort"] = target
    # A client connects to the node that the proxy is on: no further hop, and the proxy sees the client's own address.
    spec["externalTrafficPolicy"] = "Cluster" if which == "bootstrap" else "Local"
    if node_port:
        spec["ports"][0]["nodePort"] = node_port
    if listener.type == "LoadBalancer" and listener.source_ranges:
        spec["loadBalancerSourceRanges"] = list(listener.source_ranges)
    return service


def _service(
    names: Names, name: str, selector: dict[str, str], ports: dict[str, int], *, component: str = ""
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels_of(names.cluster, component)},
        "spec": {
            "selector": selector,
            "ports": [
                {"name": port, "port": number, "targetPort": port, "protocol": "TCP"} for port, number in ports.items()
            ],
        },
    }
