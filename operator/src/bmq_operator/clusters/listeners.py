"""The addresses of listeners: what Kubernetes and the cloud gave, as clients are told. Pure."""

from collections.abc import Mapping

from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.listener_ports import former_names
from bmq_operator.clusters.names import Names
from bmq_operator.clusters.nodes import replicas
from bmq_operator.clusters.services import proxies_max
from bmq_operator.conditions import Finding, first_of
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster, Listener, ListenerStatus


def listener_statuses(cluster: Cluster, existing: Existing, nodes: Mapping[str, str]) -> list[ListenerStatus]:
    """What clients outside are given. `nodes` are addresses of Kubernetes nodes by their names."""
    names = Names.of(cluster)
    found = []
    for one in cluster.spec.listeners:
        service = existing.get("Service", names.listener(one.name, "bootstrap"))
        some_node = min(nodes.values(), default="")
        found.append(ListenerStatus(name=one.name, bootstrap_servers=_address(one, service, host=some_node, ordinal=0)))
    return found


def advertised_file(cluster: Cluster, existing: Existing, nodes: Mapping[str, str]) -> str:
    """A line NAME.ORDINAL=HOST:PORT for each listener of each proxy, but for those whose address is not known yet. One
    that was renamed has its former name, too, as long as a proxy knows it by that.
    """
    names = Names.of(cluster)
    former = former_names(cluster.spec.listeners, existing.pods)
    there = existing.get("StatefulSet", names.role("proxy"))
    proxies = 0 if there is None else replicas(there)  # more than there may be, until some may go
    where = {pod["metadata"]["name"]: nodes.get(pod.get("spec", {}).get("nodeName", ""), "") for pod in existing.pods}
    lines = []
    for one in cluster.spec.listeners:
        for ordinal in range(max(proxies_max(cluster), proxies)):
            service = existing.get("Service", names.listener(one.name, ordinal))
            address = _address(one, service, host=where.get(f"{names.role('proxy')}-{ordinal}", ""), ordinal=ordinal)
            if address:
                lines += [f"{name}.{ordinal}={address}\n" for name in (one.name, *former[one.name])]
    return "".join(lines)


def addresses_note(cluster: Cluster, existing: Existing, nodes: Mapping[str, str]) -> Finding | None:
    """What is told where clients outside cannot be told an address; None: they can, or the Services are yet to be
    made.
    """
    listeners = cluster.spec.listeners
    if blind := [one.name for one in listeners if one.type == "NodePort" and not one.advertised_host and not nodes]:
        text = (
            f"clients of the listener {', '.join(blind)} are told no address, as the operator may list no nodes: "
            "set rbac.readNodes: true in bmq's chart, or write listeners[].advertisedHost"
        )
        return Finding(type="ListenersKnown", status="False", reason="NodesUnknown", message=text)
    names = Names.of(cluster)
    which = [
        (one, number)
        for one in listeners
        if one.type == "LoadBalancer"
        for number in ("bootstrap", *range(proxies_max(cluster)))
    ]
    services = [
        (one, service)
        for one, number in which
        if (service := existing.get("Service", names.listener(one.name, number))) is not None
    ]
    waiting = [
        str(service["metadata"]["name"]) for one, service in services if not _address(one, service, host="", ordinal=0)
    ]
    if not waiting:
        return None
    text = (
        f"no address was given yet to {first_of(waiting)}: kubectl describe service says what keeps the cloud from it"
    )
    return Finding(type="ListenersKnown", status="False", reason="NoAddress", message=text)


def node_address(node: Manifest) -> str:
    """An address of a Kubernetes node that reaches furthest."""
    by_type = {one["type"]: one["address"] for one in node.get("status", {}).get("addresses", ())}
    return next(
        (by_type[kind] for kind in ("ExternalIP", "ExternalDNS", "InternalIP", "Hostname") if kind in by_type), ""
    )


def _address(listener: Listener, service: Manifest | None, *, host: str, ordinal: int) -> str:
    """HOST:PORT; empty: not known yet."""
    if service is None:
        return ""
    told = listener.advertised_host.replace("{ordinal}", str(ordinal))
    if listener.type == "NodePort":
        port = service["spec"]["ports"][0].get("nodePort", 0)
        return _joined(told or host, port)
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    return _joined(told or ingress[0].get("hostname") or ingress[0].get("ip") or "", listener.port)


def _joined(host: str, port: int) -> str:
    if not host or not port:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
